// Copies the K and V of tokens out of a block, as dense rows.
#ifndef PAGODA_POOLS_DENSE_ROWS_H_
#define PAGODA_POOLS_DENSE_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "pools/layout.h"

namespace pagoda {

// The form of a layer's rows: K and V are [tokens][num_kv_heads][head_dim] each, row-major, in this
// machine's byte order.
struct RowForm {
  // Float8 becomes float32: its elements are multiplied by their block's scales.
  DType dtype = DType::kFloat32;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t kv_factor = 2;  // 1: K only.

  // The bytes of one token's K. Its V, if there is one, has as many.
  uint64_t row_bytes() const { return uint64_t{num_kv_heads} * head_dim * DTypeBytes(dtype); }
  // The bytes of one token's K and V.
  uint64_t token_bytes() const { return row_bytes() * kv_factor; }
  friend bool operator==(const RowForm&, const RowForm&) = default;
};

// REQUIRES: a pool of elements.
RowForm RowFormOf(const PoolLayout& layout);

// The bytes of one slot in a pool of elements, and in the pool of its scales.
struct BlockBytes {
  absl::Span<const std::byte> elements;
  absl::Span<const std::byte> scales;  // Empty unless the pool has scales.
};

// Copies `num_tokens` tokens of a layer from `first_token` of the block on. The layer is at
// `layer_index` of the pool's layer dimension. `keys` has space for as many rows. So has `values`;
// a layer with K only does not use it. REQUIRES: a pool of elements; the tokens are in the block;
// scales if the pool has_scales(). Thread-safe. Cost: O(bytes).
void CopyRows(const PoolLayout& layout, size_t layer_index, const BlockBytes& block,
              uint32_t first_token, uint32_t num_tokens, std::byte* keys, std::byte* values);

}  // namespace pagoda

#endif  // PAGODA_POOLS_DENSE_ROWS_H_
