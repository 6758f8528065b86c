// A view of one block's elements in one pool, by layer, K or V, head and token.
#ifndef PAGODA_TESTS_POOLS_BLOCK_VIEW_H_
#define PAGODA_TESTS_POOLS_BLOCK_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/types/span.h"
#include "base/check.h"
#include "kernels/numeric.h"
#include "pools/layout.h"

namespace pagoda {

enum class KvPart : uint8_t { kKey = 0, kValue = 1 };

// The dtype of elements of type T: float, or a 16-bit type of kernels/numeric.h.
template <class T>
inline constexpr DType kDTypeOf = [] {
  if constexpr (std::is_same_v<T, kernels::Half>) {
    return DType::kFloat16;
  } else if constexpr (std::is_same_v<T, kernels::BFloat16>) {
    return DType::kBFloat16;
  } else {
    static_assert(std::is_same_v<T, float>, "the tests have no elements of this type");
    return DType::kFloat32;
  }
}();

// A view of a slot's bytes: `BlockView<const float>` reads, `BlockView<float>` reads and writes.
// Small: pass it by value. It is valid while the pool's memory exists.
template <class T>
class BlockView {
 public:
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;

  // REQUIRES: `slot` is a slot of a pool with that layout; the pool holds elements of T's dtype.
  BlockView(const PoolLayout& layout, absl::Span<Byte> slot)
      : elements_(reinterpret_cast<T*>(slot.data())),
        num_layers_(static_cast<uint32_t>(layout.layers.size())),
        kv_factor_(layout.kv_factor),
        num_kv_heads_(layout.num_kv_heads),
        tokens_per_block_(layout.tokens_per_block),
        head_dim_(layout.head_dim) {
    PAGODA_CHECK(layout.content == PoolContent::kElements, "a pool of elements");
    PAGODA_CHECK(layout.dtype == kDTypeOf<std::remove_const_t<T>>,
                 "the pool's dtype is the view's");
    PAGODA_CHECK(slot.size() == layout.slot_stride_bytes(), "the bytes of one slot");
    PAGODA_CHECK(reinterpret_cast<uintptr_t>(slot.data()) % alignof(T) == 0, "aligned elements");
  }

  uint32_t num_layers() const { return num_layers_; }
  uint32_t num_kv_heads() const { return num_kv_heads_; }

  // The head_dim elements of one token. `layer` is an index of PoolLayout::layers. REQUIRES: each
  // index is below its dimension. A pool of keys has no KvPart::kValue.
  absl::Span<T> at(uint32_t layer, KvPart part, uint32_t head, uint32_t token) const {
    const auto kv = static_cast<uint32_t>(part);
    PAGODA_CHECK(layer < num_layers_, "a layer of the pool");
    PAGODA_CHECK(kv < kv_factor_, "K, or V where the pool has values");
    PAGODA_CHECK(head < num_kv_heads_, "a head of the pool");
    PAGODA_CHECK(token < tokens_per_block_, "a token of the block");
    const uint64_t run = (uint64_t{layer} * kv_factor_ + kv) * num_kv_heads_ + head;
    return {elements_ + (run * tokens_per_block_ + token) * head_dim_, head_dim_};
  }

 private:
  T* elements_;
  uint32_t num_layers_;
  uint32_t kv_factor_;
  uint32_t num_kv_heads_;
  uint32_t tokens_per_block_;
  uint32_t head_dim_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_BLOCK_VIEW_H_
