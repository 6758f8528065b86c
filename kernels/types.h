// What the kernels know of a KV pool: where one layer's bytes lie. A description, without
// ownership; the pointers may be host or device memory, whichever the kernel that gets them runs
// on.
#ifndef PAGODA_KERNELS_TYPES_H_
#define PAGODA_KERNELS_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace pagoda::kernels {

// fp32, fp16 and bf16 are taken everywhere; the two of 8 bits (OCP's FP8) in pools alone.
enum class ElementType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,  // 4 bits of exponent, 3 of fraction: up to 448, NaN, no infinity.
  kFloat8E5M2,  // 5 bits of exponent, 2 of fraction: up to 57,344, NaN and infinity.
};

constexpr bool IsFloat8(ElementType type) {
  return type == ElementType::kFloat8E4M3 || type == ElementType::kFloat8E5M2;
}

constexpr uint64_t ElementBytes(ElementType type) {
  if (type == ElementType::kFloat32) return 4;
  return IsFloat8(type) ? 1 : 2;
}

// What an element of an FP8 pool is multiplied by when it is read, and divided by when it is
// written. Null: 1. Other pools have none.
struct KvScales {
  const float* keys = nullptr;    // [num_kv_heads] if per_head, else one number; of slot 0.
  const float* values = nullptr;  // Likewise.
  bool per_head = false;
  // Numbers from a slot's scales to the next slot's; 0: all slots have the same. Others the CPU's
  // kernels alone take, attention by its portable loops.
  uint64_t slot_stride = 0;

  bool per_slot() const { return slot_stride != 0; }
  // Where the scale of a head in a slot is; `part` is keys or values, and not null.
  const float* At(const float* part, uint32_t slot, uint32_t head) const {
    return part + slot * slot_stride + (per_head ? head : 0);
  }
};

// K and V of one layer in every slot of a pool. Element i of token t of head h in slot s is at
//   keys + s * slot_stride_bytes + h * head_stride_bytes + t * token_stride_bytes + i *
//   ElementBytes(type),
// and in `values` likewise. The pool's slots are [layer][K, V][kv_head][token][head_dim]; the
// kernels follow the strides and so take any layout in which the elements of a head are contiguous:
// [token_slot][kv_head][head_dim] has slot_stride_bytes = tokens_per_block * token_stride_bytes.
struct KvLayer {
  std::byte* keys = nullptr;    // This layer's K in slot 0. Aligned to the element type.
  std::byte* values = nullptr;  // This layer's V in slot 0, aligned likewise. `keys` for latents.
  ElementType type = ElementType::kFloat32;
  uint32_t num_slots = 0;
  uint32_t num_kv_heads = 0;
  uint32_t tokens_per_block = 0;
  uint32_t head_dim = 0;
  // Elements of a value, the first ones of its head_dim; 0: all of them. Multi-head latent
  // attention (K only) has values == keys and, of 576 elements, 512 here.
  uint32_t value_dim = 0;
  uint64_t slot_stride_bytes = 0;  // Strides are multiples of the element's size.
  uint64_t head_stride_bytes = 0;
  uint64_t token_stride_bytes = 0;
  KvScales scales;

  uint64_t offset_bytes(uint32_t slot, uint32_t head, uint32_t token) const {
    return slot * slot_stride_bytes + head * head_stride_bytes + token * token_stride_bytes;
  }
  uint32_t value_elements() const { return value_dim == 0 ? head_dim : value_dim; }
};

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_TYPES_H_
