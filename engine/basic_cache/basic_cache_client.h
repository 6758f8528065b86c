// A cache without a manager: each sequence owns its slots alone.
#ifndef PAGODA_ENGINE_BASIC_CACHE_BASIC_CACHE_CLIENT_H_
#define PAGODA_ENGINE_BASIC_CACHE_BASIC_CACHE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "manager/api/cache_client.h"
#include "pools/layout.h"
#include "pools/memory/huge_pages.h"

namespace pagoda {

// How an engine uses the memory of the pools.
enum class KvArrangement : uint8_t {
  // One tensor per sequence and layer. Each sequence has a run of slots, from its first operation
  // to
  // its end. The engine does not use the run as blocks: it attends over the tensor with loops of
  // its
  // own (model/kv/contiguous_backend.h).
  kTensorPerSequence,
  // One tensor per layer, [token slot][kv_head][head_dim], for all sequences: a TokenFlatPool. A
  // sequence's blocks are runs of token slots, which it takes as it grows (flat_slots.h). The
  // engine
  // attends with its paged kernels, which follow the strides (model/kv/token_flat_layers.h).
  kTokenFlat,
};

struct BasicCacheOptions {
  CacheSpec spec;
  uint32_t max_sequences = 0;        // Open at the same time.
  uint32_t max_sequence_tokens = 0;  // Per sequence; rounded up to whole blocks.
  // Sparse token-flat pools take memory only as sequences grow.
  PageRequest pages = {};
  KvArrangement arrangement = KvArrangement::kTensorPerSequence;
};

// A CacheClient whose blocks never move. Nothing is shared, matched, evicted or copied, except that
// ForkSequence copies everything. The paged cache is compared with this one: it is simple enough to
// be right, and it needs as much memory as such caches need.
//
// Serves the operations of sequences. QueryCapacity, MatchPrefix, OffloadPrefix, PrefetchPrefix and
// WaitForTicket are served too, and find nothing to do. All others are UNIMPLEMENTED. Block ids
// number the slots and have one generation. Operations return the errors of BlockManager;
// token-flat ones that need a slot also OUT_OF_MEMORY. Errors of this function: INVALID_ARGUMENT
// (no sequences or tokens, an impossible layout), OUT_OF_MEMORY.
absl::StatusOr<std::unique_ptr<CacheClient>> MakeBasicCacheClient(const BasicCacheOptions& options);

// The arrangement of such a cache. None for a client that MakeBasicCacheClient has not made.
std::optional<KvArrangement> ArrangementOf(const CacheClient& client);

// With kTensorPerSequence: the length of each sequence's run of slots. A run begins at a multiple
// of it. 0 for every other client.
uint32_t SlotsPerSequence(const CacheClient& client);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_BASIC_CACHE_BASIC_CACHE_CLIENT_H_
