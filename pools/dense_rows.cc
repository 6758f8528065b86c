#include "pools/dense_rows.h"

#include <cstring>

#include "base/check.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

// The scale of a head, or 1.
float ScaleOf(const PoolLayout& layout, size_t layer_index, uint32_t part, uint32_t head,
              absl::Span<const std::byte> scales) {
  if (scales.empty()) return 1;
  const size_t index = (layer_index * layout.kv_factor + part) * size_t{layout.num_kv_heads} + head;
  float scale;
  std::memcpy(&scale, scales.data() + index * sizeof(scale), sizeof(scale));
  return scale;
}

template <class Float8>
void Widen(const std::byte* from, uint32_t count, float scale, std::byte* to) {
  for (uint32_t i = 0; i < count; ++i) {
    const float value = kernels::ToFloat(Float8{static_cast<uint8_t>(from[i])}) * scale;
    std::memcpy(to + i * sizeof(value), &value, sizeof(value));
  }
}

// Copies one head of one token.
void CopyHead(DType dtype, const std::byte* from, uint32_t head_dim, float scale, std::byte* to) {
  switch (dtype) {
    case DType::kFloat8E4M3:
      return Widen<kernels::Float8E4M3>(from, head_dim, scale, to);
    case DType::kFloat8E5M2:
      return Widen<kernels::Float8E5M2>(from, head_dim, scale, to);
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kUint8:
      std::memcpy(to, from, size_t{head_dim} * DTypeBytes(dtype));
  }
}

}  // namespace

RowForm RowFormOf(const PoolLayout& layout) {
  return {.dtype = IsFloat8(layout.dtype) ? DType::kFloat32 : layout.dtype,
          .num_kv_heads = layout.num_kv_heads,
          .head_dim = layout.head_dim,
          .kv_factor = layout.kv_factor};
}

void CopyRows(const PoolLayout& layout, size_t layer_index, const BlockBytes& block,
              uint32_t first_token, uint32_t num_tokens, std::byte* keys, std::byte* values) {
  PAGODA_CHECK(layout.content == PoolContent::kElements && layer_index < layout.layers.size() &&
                   first_token + uint64_t{num_tokens} <= layout.tokens_per_block &&
                   block.elements.size() >= layout.slot_stride_bytes() &&
                   layout.has_scales() == !block.scales.empty(),
               "the tokens are in the block");
  const RowForm form = RowFormOf(layout);
  const uint64_t head_bytes = uint64_t{form.head_dim} * DTypeBytes(form.dtype);
  for (uint32_t part = 0; part < layout.kv_factor; ++part) {
    std::byte* const rows = part == 0 ? keys : values;
    const std::byte* const elements = block.elements.data() +
                                      layer_index * layout.layer_stride_bytes() +
                                      part * layout.kv_stride_bytes();
    for (uint32_t head = 0; head < layout.num_kv_heads; ++head) {
      const float scale = ScaleOf(layout, layer_index, part, head, block.scales);
      const std::byte* from =
          elements + head * layout.head_stride_bytes() + first_token * layout.token_stride_bytes();
      std::byte* to = rows + head * head_bytes;
      for (uint32_t token = 0; token < num_tokens; ++token) {
        CopyHead(layout.dtype, from, layout.head_dim, scale, to);
        from += layout.token_stride_bytes();
        to += form.row_bytes();
      }
    }
  }
}

}  // namespace pagoda
