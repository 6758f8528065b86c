// The cache that needs no manager: each sequence has a place of its own for all that it may become.
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
  uint32_t max_sequences = 0;        // At once.
  uint32_t max_sequence_tokens = 0;  // Of each; whole blocks are taken for them.
};

// A CacheClient without blocks that move: a sequence's KV lies in one run of slots from its first
// token to its last, in every window, from its first operation to its end. Nothing is shared, found
// again, evicted or copied but by ForkSequence, which copies everything. It is what the paged cache
// is compared with: simple enough to be right, and as greedy for memory as such caches are.
//
// Takes the operations of sequences, and QueryCapacity, MatchPrefix, OffloadPrefix, PrefetchPrefix
// and WaitForTicket, which find nothing to do; the others are UNIMPLEMENTED. Block ids number the
// slots and have one generation. Errors of operations: those of BlockManager. Errors:
// INVALID_ARGUMENT (no sequences or tokens, a layout that cannot be), OUT_OF_MEMORY.
absl::StatusOr<std::unique_ptr<CacheClient>> MakeBasicCacheClient(const BasicCacheOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_BASIC_CACHE_CLIENT_H_
