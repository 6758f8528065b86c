// Describes where one layer's bytes lie in a KV pool. Owns nothing. The pointers are host or device
// memory, according to the kernel that gets them.
#ifndef PAGODA_KERNELS_TYPES_H_
#define PAGODA_KERNELS_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace pagoda::kernels {

// fp32, fp16 and bf16 can be used everywhere; the two 8-bit types (OCP's FP8) only in pools.
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

// The factors of an FP8 pool: a kernel multiplies by them when it reads, and divides by them when
// it writes. Null: 1. Other pools have none.
struct KvScales {
  const float* keys = nullptr;  // Slot 0's key scales: [num_kv_heads] if per_head, else one number.
  const float* values = nullptr;  // Slot 0's value scales, in the same shape.
  bool per_head = false;
  // The distance between the scales of two neighbouring slots, in numbers. 0: all slots have the
  // same scales.
  uint64_t slot_stride = 0;

  bool per_slot() const { return slot_stride != 0; }
  // The address of the scale of a head in a slot. `part` is `keys` or `values`, and not null.
  const float* At(const float* part, uint32_t slot, uint32_t head) const {
    return part + slot * slot_stride + (per_head ? head : 0);
  }
};

// K and V of one layer in every slot of a pool. Element i of token t of head h in slot s is at
//   keys + s * slot_stride_bytes + h * head_stride_bytes + t * token_stride_bytes + i *
//   ElementBytes(type),
// and the same holds for `values`. The pool's slots are [layer][K, V][kv_head][token][head_dim].
// The kernels follow the strides, so they accept any layout in which the elements of a head are
// contiguous: [token_slot][kv_head][head_dim] has slot_stride_bytes = tokens_per_block *
// token_stride_bytes.
struct KvLayer {
  std::byte* keys = nullptr;    // This layer's K in slot 0. Aligned to the element type.
  std::byte* values = nullptr;  // This layer's V in slot 0, aligned as well; latents: `keys`.
  ElementType type = ElementType::kFloat32;
  uint32_t num_slots = 0;
  uint32_t num_kv_heads = 0;
  uint32_t tokens_per_block = 0;
  uint32_t head_dim = 0;
  // The elements of a value: the first value_dim of head_dim. 0: all of them. Multi-head latent
  // attention (K only) has values == keys; with head_dim 576 it has value_dim 512.
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
