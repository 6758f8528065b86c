// What the kernels know of a KV pool: where one layer's bytes lie. A description, without
// ownership; the pointers may be host or device memory, whichever the kernel that gets them runs
// on.
#ifndef PAGODA_KERNELS_TYPES_H_
#define PAGODA_KERNELS_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace pagoda::kernels {

// Element type of KV bytes.
enum class ElementType : uint8_t { kFloat32, kFloat16, kBFloat16 };

constexpr uint64_t ElementBytes(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

// K and V of one layer in every slot of a pool. Element i of token t of head h in slot s is at
//   keys + s * slot_stride_bytes + h * head_stride_bytes + t * token_stride_bytes + i *
//   ElementBytes(type),
// and in `values` likewise. The pool's slots are [layer][K, V][kv_head][token][head_dim]; the
// kernels follow the strides and so take any layout in which the elements of a head are contiguous.
struct KvLayer {
  std::byte* keys = nullptr;    // This layer's K in slot 0. Aligned to the element type.
  std::byte* values = nullptr;  // This layer's V in slot 0, aligned likewise.
  ElementType type = ElementType::kFloat32;
  uint32_t num_slots = 0;
  uint32_t num_kv_heads = 0;
  uint32_t tokens_per_block = 0;
  uint32_t head_dim = 0;
  uint64_t slot_stride_bytes = 0;  // Strides are multiples of the element's size.
  uint64_t head_stride_bytes = 0;
  uint64_t token_stride_bytes = 0;

  uint64_t offset_bytes(uint32_t slot, uint32_t head, uint32_t token) const {
    return slot * slot_stride_bytes + head * head_stride_bytes + token * token_stride_bytes;
  }
};

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_TYPES_H_
