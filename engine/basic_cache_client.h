// A cache without a manager: each sequence owns a fixed run of slots for all its tokens.
#ifndef PAGODA_ENGINE_BASIC_CACHE_CLIENT_H_
#define PAGODA_ENGINE_BASIC_CACHE_CLIENT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "manager/cache_client.h"
#include "pools/layout.h"

namespace pagoda {

struct BasicCacheOptions {
  CacheSpec spec;
  uint32_t max_sequences = 0;        // Open at the same time.
  uint32_t max_sequence_tokens = 0;  // Per sequence; rounded up to whole blocks.
};

// A CacheClient whose blocks never move. In every window, a sequence's KV lies in one run of slots,
// from its first token to its last and from its first operation to its end. Nothing is shared,
// matched, evicted or copied, except that ForkSequence copies everything. The paged cache is
// compared with this one: it is simple enough to be right, and it needs as much memory as such
// caches need. An engine does not use the run as blocks: it keeps one tensor per layer there, and
// attends over it with loops of its own (model/contiguous_backend.h).
//
// Serves the operations of sequences. QueryCapacity, MatchPrefix, OffloadPrefix, PrefetchPrefix and
// WaitForTicket are served too, and find nothing to do. All others are UNIMPLEMENTED. Block ids
// number the slots and have one generation. Operations return the errors of BlockManager. Errors of
// this function: INVALID_ARGUMENT (no sequences or tokens, an impossible layout), OUT_OF_MEMORY.
absl::StatusOr<std::unique_ptr<CacheClient>> MakeBasicCacheClient(const BasicCacheOptions& options);

// The length of each sequence's run of slots in such a cache. A run begins at a multiple of it. 0
// for a client that MakeBasicCacheClient has not made.
uint32_t SlotsPerSequence(const CacheClient& client);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_BASIC_CACHE_CLIENT_H_
