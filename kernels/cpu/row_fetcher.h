// Fetches what decode reads next.
#ifndef PAGODA_KERNELS_CPU_ROW_FETCHER_H_
#define PAGODA_KERNELS_CPU_ROW_FETCHER_H_

#include <immintrin.h>

#include "kernels/cpu/attention_tile.h"

namespace pagoda::kernels::cpu {
namespace {

// The kTileTokens rows in their order, some in each of about `steps` steps that lie between the
// loads of the tile in work. Into the second cache, because the first one's few lines in flight
// would bound the bandwidth.
class RowFetcher {
 public:
  RowFetcher(const std::byte* const* rows, uint32_t row_bytes, uint32_t steps)
      : row_(rows), end_(rows + kTileTokens), row_bytes_(row_bytes), steps_(steps) {}

  void Step() {
    for (due_ += kTileTokens; due_ >= steps_ && row_ != end_; due_ -= steps_) {
      const auto* row = reinterpret_cast<const char*>(*row_++);
      for (uint32_t i = 0; i < row_bytes_; i += 64) _mm_prefetch(row + i, _MM_HINT_T1);
    }
  }

 private:
  const std::byte* const* row_;
  const std::byte* const* const end_;
  const uint32_t row_bytes_;
  const uint32_t steps_;
  uint32_t due_ = 0;  // Rows times steps.
};

}  // namespace
}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ROW_FETCHER_H_
