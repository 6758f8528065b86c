// Moves K or V of tokens between contiguous rows and the blocks of a pool.
#ifndef PAGODA_KERNELS_CPU_CACHE_MOVER_H_
#define PAGODA_KERNELS_CPU_CACHE_MOVER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/isa.h"
#include "kernels/types.h"

namespace pagoda::kernels::cpu {

// One side of a move: where K or V of tokens lie.
template <class Byte>
struct CacheSide {
  Byte* data = nullptr;
  ElementType type = ElementType::kFloat32;
  uint64_t token_stride_bytes = 0;
  uint64_t head_stride_bytes = 0;
};

// The sides of a part, K or V: a pool's, and rows of contiguous heads. Byte may be const.
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

// What the heads of a token have in common on both sides.
struct CacheHeads {
  uint32_t num_heads = 0;
  uint32_t head_elements = 0;
  const float* scales = nullptr;  // This and what follows as in KvScales.
  bool scales_per_head = false;
  uint64_t scales_slot_stride = 0;
};

CacheHeads HeadsOf(const KvLayer& kv, uint32_t head_elements, const float* scales);

// Bytes of a token in the pool, K and V.
uint64_t TokenBytes(const KvLayer& kv);

// A plain value; several threads may use it at once.
class CacheMover {
 public:
  // num_tokens: of all moves, by which it is decided whether they go past the caches.
  CacheMover(const CacheSide<const std::byte>& source, const CacheSide<std::byte>& target,
             const CacheHeads& heads, uint64_t num_tokens, Isa isa);

  // Moves tokens of a slot that are neighbours on both sides, of which the first is at these
  // offsets, in the order in which they lie in the target, unless each head has a scale of its own.
  void Move(uint64_t source_bytes, uint64_t target_bytes, uint64_t num_tokens, uint32_t slot) const;

 private:
  CacheSide<const std::byte> source_;
  CacheSide<std::byte> target_;
  CacheHeads heads_;
  ConvertRows convert_;
  bool by_token_;  // Head after head of a token, else token after token of a head.
};

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_CACHE_MOVER_H_
