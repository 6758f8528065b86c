// Fetches what decode reads next.
#ifndef PAGODA_KERNELS_CPU_ROW_FETCHER_H_
#define PAGODA_KERNELS_CPU_ROW_FETCHER_H_

#include <immintrin.h>

#include "kernels/cpu/attention_tile.h"

namespace pagoda::kernels::cpu {
namespace {

// The tile's next_rows in their order, some in each step, as many as the step's weight is of all
// steps' together: the more work lies between two steps, the more rows come meanwhile. Into the
// second cache, because the first one's few lines in flight would bound the bandwidth.
class RowFetcher {
 public:
  RowFetcher(const DecodeTile& tile, uint32_t row_bytes, uint32_t total_weight)
      : row_(tile.next_rows),
        end_(tile.next_rows + tile.num_next_rows),
        num_rows_(tile.num_next_rows),
        row_bytes_(row_bytes),
        total_weight_(total_weight) {}

  void Step(uint32_t weight) {
    for (due_ += num_rows_ * weight; due_ >= total_weight_ && row_ != end_; due_ -= total_weight_) {
      const auto* row = reinterpret_cast<const char*>(*row_++);
      for (uint32_t i = 0; i < row_bytes_; i += 64) _mm_prefetch(row + i, _MM_HINT_T1);
    }
  }

 private:
  const std::byte* const* row_;
  const std::byte* const* const end_;
  const uint32_t num_rows_;
  const uint32_t row_bytes_;
  const uint32_t total_weight_;
  uint32_t due_ = 0;  // Rows times the total weight.
};

// Weights of decode's steps, about in proportion to their time: for some dot products, for a row's
// softmax, for the values of a token.
inline constexpr uint32_t kDotWeight = 4;
inline constexpr uint32_t kSoftmaxWeight = 8;
inline constexpr uint32_t kValueWeight = 2;

}  // namespace
}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ROW_FETCHER_H_
