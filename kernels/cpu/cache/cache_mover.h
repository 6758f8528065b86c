// Moves K or V of tokens between contiguous rows and a pool's blocks.
#ifndef PAGODA_KERNELS_CPU_CACHE_CACHE_MOVER_H_
#define PAGODA_KERNELS_CPU_CACHE_CACHE_MOVER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vectors/convert_rows.h"
#include "kernels/execution/isa.h"
#include "kernels/types.h"

namespace pagoda::kernels::cpu {

// One side of a move: the position of the tokens' K or V.
template <class Byte>
struct CacheSide {
  Byte* data = nullptr;
  ElementType type = ElementType::kFloat32;
  uint64_t token_stride_bytes = 0;
  uint64_t head_stride_bytes = 0;
};

// The two sides of a part (K or V): a pool, and rows of contiguous heads. Byte can be const.
template <class Byte>
CacheSide<Byte> PoolSide(const KvLayer& kv, Byte* part) {
  return {.data = part,
          .type = kv.type,
          .token_stride_bytes = kv.token_stride_bytes,
          .head_stride_bytes = kv.head_stride_bytes};
}
template <class Byte>
CacheSide<Byte> RowsSide(Byte* rows, ElementType type, uint64_t row_bytes, uint32_t head_elements) {
  return {.data = rows,
          .type = type,
          .token_stride_bytes = row_bytes,
          .head_stride_bytes = head_elements * ElementBytes(type)};
}

// The properties of a token's heads that both sides share.
struct CacheHeads {
  uint32_t num_heads = 0;
  uint32_t head_elements = 0;
  const float* scales = nullptr;  // `scales` and the next two are as in KvScales.
  bool scales_per_head = false;
  uint64_t scales_slot_stride = 0;
};

CacheHeads HeadsOf(const KvLayer& kv, uint32_t head_elements, const float* scales);

// The bytes of a token's K and V in the pool.
uint64_t TokenBytes(const KvLayer& kv);

// A plain value. Several threads can use it at the same time.
class CacheMover {
 public:
  // num_tokens: of all moves. It decides whether the stores bypass the caches.
  CacheMover(const CacheSide<const std::byte>& source, const CacheSide<std::byte>& target,
             const CacheHeads& heads, uint64_t num_tokens, Isa isa);

  // Moves tokens of one slot that are neighbours on both sides; the first token is at these
  // offsets. Moves in the target's order, unless each head has a separate scale.
  void Move(uint64_t source_bytes, uint64_t target_bytes, uint64_t num_tokens, uint32_t slot) const;

 private:
  CacheSide<const std::byte> source_;
  CacheSide<std::byte> target_;
  CacheHeads heads_;
  ConvertRows convert_;
  bool by_token_;  // Head by head of each token, else token by token of each head.
};

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_CACHE_CACHE_MOVER_H_
