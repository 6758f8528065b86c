#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// Rows, [token][head], first to end - 1. `sums` is [value_dim].
template <class T>
void MergeRows(const AttentionMergeParams& params, uint64_t first, uint64_t end, float* sums) {
  const uint32_t value_dim = params.value_dim;
  for (uint64_t row = first; row < end; ++row) {
    float largest = kUnseen;
    for (const AttentionPart& part : params.parts) largest = std::max(largest, part.lse[row]);
    float weight_sum = 0;
    std::fill_n(sums, value_dim, 0.0f);
    for (const AttentionPart& part : params.parts) {
      if (part.lse[row] == kUnseen) continue;  // Its output may be NaN.
      const float weight = std::exp(part.lse[row] - largest);
      const T* output = static_cast<const T*>(part.output) + row * value_dim;
      for (uint32_t i = 0; i < value_dim; ++i) sums[i] += weight * ToFloat(output[i]);
      weight_sum += weight;
    }
    const float share = weight_sum == 0 ? 0.0f : 1.0f / weight_sum;
    T* output = static_cast<T*>(params.output) +
                row / params.num_heads * params.output_token_stride +
                row % params.num_heads * value_dim;
    for (uint32_t i = 0; i < value_dim; ++i) output[i] = FromFloat<T>(sums[i] * share);
    if (params.lse != nullptr) {
      params.lse[row] = weight_sum == 0 ? kUnseen : largest + std::log(weight_sum);
    }
  }
}

}  // namespace

absl::Status MergeAttention(const AttentionMergeParams& params, const Execution& execution) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  const uint64_t rows = uint64_t{params.num_tokens} * params.num_heads;
  const auto merge = [&](uint64_t first, uint64_t end) {
    std::vector<float> sums(params.value_dim);
    switch (params.type) {
      case ElementType::kFloat16:
        return MergeRows<Half>(params, first, end, sums.data());
      case ElementType::kBFloat16:
        return MergeRows<BFloat16>(params, first, end, sums.data());
      default:
        return MergeRows<float>(params, first, end, sums.data());
    }
  };
  if (execution.threads == nullptr) {
    merge(0, rows);
  } else {
    const uint64_t workers = execution.threads->num_threads();
    execution.threads->Run(
        [&](uint32_t w) { merge(rows * w / workers, rows * (w + uint64_t{1}) / workers); });
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
