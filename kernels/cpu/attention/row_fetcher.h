// Prefetches the rows that decode reads next.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_ROW_FETCHER_H_
#define PAGODA_KERNELS_CPU_ATTENTION_ROW_FETCHER_H_

#include <immintrin.h>

#include "kernels/cpu/attention/attention_tile.h"

namespace pagoda::kernels::cpu {
namespace {

// Decode's steps. The values take a step per kStepTokens tokens. The dot products of the keys are
// computed kTokens at a time: they take one step per group if kTokens <= kStepTokens, else one step
// for each part of their elements.
inline constexpr uint32_t kStepTokens = 4;

// The steps of the keys, whose elements are processed `elements` at a time.
template <uint32_t kTokens>
inline uint32_t FetchSteps(const DecodeTile& tile, uint32_t elements) {
  return tile.tokens / kTokens * (kTokens > kStepTokens ? tile.head_dim / elements : 1);
}

// Prefetches the tile's next rows in their order, alternating lines of 64 bytes of a key and of its
// value. Each step fetches enough tokens that the last step ends with the last token.
class RowFetcher {
 public:
  RowFetcher(const DecodeTile& tile, uint32_t row_bytes, uint32_t steps)
      : keys_(tile.next_keys),
        values_(tile.next_values),
        num_tokens_(tile.num_next_tokens),
        row_bytes_(row_bytes),
        step_tokens_((tile.num_next_tokens + steps - 1) / steps),
        near_(tile.near) {}

  void Step() {
    const uint32_t end = num_tokens_ - next_ > step_tokens_ ? next_ + step_tokens_ : num_tokens_;
    if (near_) {
      for (; next_ != end; ++next_) Fetch<_MM_HINT_T0>(keys_[next_], values_[next_]);
    } else {
      for (; next_ != end; ++next_) Fetch<_MM_HINT_T1>(keys_[next_], values_[next_]);
    }
  }

 private:
  template <_mm_hint kHint>
  void Fetch(const std::byte* key, const std::byte* value) const {
    for (uint32_t i = 0; i < row_bytes_; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(key + i), kHint);
      if (value != key) _mm_prefetch(reinterpret_cast<const char*>(value + i), kHint);
    }
  }

  const std::byte* const* const keys_;
  const std::byte* const* const values_;
  const uint32_t num_tokens_;
  const uint32_t row_bytes_;
  const uint32_t step_tokens_;
  const bool near_;
  uint32_t next_ = 0;
};

}  // namespace
}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_ROW_FETCHER_H_
