#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/attention/attention.h"
#include "kernels/execution/parallel.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// The number of elements that are summed at a time.
constexpr uint32_t kSums = 64;

// Merges the rows first to end - 1 of [token][head].
template <class T>
void MergeRows(const AttentionMergeParams& params, uint64_t first, uint64_t end) {
  const uint32_t value_dim = params.value_dim;
  const size_t num_parts = params.parts.size();
  for (uint64_t row = first; row < end; ++row) {
    float largest = kUnseen;
    for (const AttentionPart& part : params.parts) largest = std::max(largest, part.lse[row]);
    std::array<bool, kMaxMergedParts> seen;  // The output of a part without keys can be NaN.
    std::array<float, kMaxMergedParts> weights;
    float weight_sum = 0;
    for (size_t k = 0; k < num_parts; ++k) {
      const float lse = params.parts[k].lse[row];
      seen[k] = lse != kUnseen;
      if (!seen[k]) continue;
      weights[k] = std::exp(lse - largest);
      weight_sum += weights[k];
    }
    const float share = weight_sum == 0 ? 0.0f : 1.0f / weight_sum;
    T* output = static_cast<T*>(params.output) +
                row / params.num_heads * params.output_token_stride +
                row % params.num_heads * value_dim;
    for (uint32_t from = 0; from < value_dim; from += kSums) {
      const uint32_t count = std::min(kSums, value_dim - from);
      float sums[kSums] = {};
      for (size_t k = 0; k < num_parts; ++k) {
        if (!seen[k]) continue;
        const T* part = static_cast<const T*>(params.parts[k].output) + row * value_dim + from;
        for (uint32_t i = 0; i < count; ++i) sums[i] += weights[k] * ToFloat(part[i]);
      }
      for (uint32_t i = 0; i < count; ++i) output[from + i] = FromFloat<T>(sums[i] * share);
    }
    if (params.lse != nullptr) {
      params.lse[row] = weight_sum == 0 ? kUnseen : largest + std::log(weight_sum);
    }
  }
}

}  // namespace

absl::Status MergeAttention(const AttentionMergeParams& params, const Execution& execution) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  const uint64_t rows = uint64_t{params.num_tokens} * params.num_heads;
  const uint64_t row_bytes =
      (params.parts.size() + 1) * params.value_dim * ElementBytes(params.type);
  InPieces(execution, rows, row_bytes, [&](uint64_t first, uint64_t end) {
    switch (params.type) {
      case ElementType::kFloat16:
        return MergeRows<Half>(params, first, end);
      case ElementType::kBFloat16:
        return MergeRows<BFloat16>(params, first, end);
      default:
        return MergeRows<float>(params, first, end);
    }
  });
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
