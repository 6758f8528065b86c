// A pool whose memory is one tensor per layer, [token slot][kv_head][head_dim], instead of blocks.
#ifndef PAGODA_POOLS_TOKEN_FLAT_POOL_H_
#define PAGODA_POOLS_TOKEN_FLAT_POOL_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "pools/layout.h"
#include "pools/pool.h"

namespace pagoda {

// The strides of a pool's memory that is cut as
//   [layer][K, V][token slot][kv_head][head_dim].
// These are all bytes of the pool, and the token slots are those of the blocks: the token slots
// s * tokens_per_block to (s + 1) * tokens_per_block - 1 are block s. Block tables and slot
// mappings thus mean the same in both cuts, and a kernel only gets other base addresses and
// strides. A block has one run of bytes per layer, K and V.
struct TokenFlatLayout {
  // REQUIRES: a pool of elements.
  TokenFlatLayout(const PoolLayout& layout, uint32_t num_slots);

  uint64_t token_slots = 0;
  uint64_t head_stride_bytes = 0;
  uint64_t token_stride_bytes = 0;
  uint64_t kv_stride_bytes = 0;  // From K to V of a layer.
  uint64_t layer_stride_bytes = 0;
};

// The memory of a pool, used by token slots. For one engine alone: transfers, tiers and other
// clients know only blocks. Thread-compatible. Other threads may use reserved token slots
// meanwhile.
//
// 1. Token slots and their addresses never change. Reserve keeps all bytes.
// 2. The pool has memory for the first reserved_token_slots() token slots of every layer.
class TokenFlatPool {
 public:
  // `pool` outlives this object, and nothing else uses its slots. A pool that is as large as the
  // engine can ever need should be sparse (Reservation::kSparse): it then takes memory by Reserve.
  // REQUIRES: a pool of elements.
  explicit TokenFlatPool(SharedMemoryPool* pool);

  const TokenFlatLayout& layout() const { return layout_; }
  uint64_t reserved_token_slots() const { return reserved_; }

  // All token slots of a layer's K (kv 0) or V (kv 1), contiguous. `index` is a position in
  // PoolLayout::layers.
  absl::Span<std::byte> part(uint64_t index, uint32_t kv) const;

  // Takes memory for the first `token_slots` token slots of every layer, so that writing them takes
  // no page later. Never gives memory back. Errors: INVALID_ARGUMENT for more token slots than the
  // pool has; OUT_OF_MEMORY, with the needed and the free bytes. After an error, reserved token
  // slots are as before. Cost: the added memory, and a system call per layer, K and V.
  absl::Status Reserve(uint64_t token_slots);

  // Copies `count` token slots in every layer. REQUIRES: both ranges are in the pool, and do not
  // overlap.
  void Copy(uint64_t source, uint64_t target, uint64_t count);

 private:
  SharedMemoryPool& pool_;
  const TokenFlatLayout layout_;
  uint64_t reserved_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_TOKEN_FLAT_POOL_H_
