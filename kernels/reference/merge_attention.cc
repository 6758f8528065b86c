#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention_merge.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::reference {
namespace {

constexpr double kNoKey = -std::numeric_limits<double>::infinity();

// Merges the row of token n in query head `head`.
template <class T>
void MergeRow(const AttentionMergeParams& params, uint64_t n, uint64_t head) {
  const uint64_t row = n * params.num_heads + head;
  double largest = kNoKey;
  for (const AttentionPart& part : params.parts) largest = std::fmax(largest, part.lse[row]);
  double sum = 0;
  std::vector<double> output(params.value_dim, 0.0);
  for (const AttentionPart& part : params.parts) {
    if (part.lse[row] == kNoKey) continue;
    const double weight = std::exp(part.lse[row] - largest);
    const T* values = static_cast<const T*>(part.output) + row * params.value_dim;
    for (uint32_t i = 0; i < params.value_dim; ++i)
      output[i] += weight * double{ToFloat(values[i])};
    sum += weight;
  }
  T* target =
      static_cast<T*>(params.output) + n * params.output_token_stride + head * params.value_dim;
  for (uint32_t i = 0; i < params.value_dim; ++i) {
    target[i] = FromFloat<T>(sum == 0 ? 0.0f : static_cast<float>(output[i] / sum));
  }
  if (params.lse != nullptr) {
    params.lse[row] = static_cast<float>(sum == 0 ? kNoKey : largest + std::log(sum));
  }
}

}  // namespace

absl::Status MergeAttention(const AttentionMergeParams& params) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  VisitElementType(params.type, [&]<class T>() {
    for (uint64_t n = 0; n < params.num_tokens; ++n) {
      for (uint64_t head = 0; head < params.num_heads; ++head) MergeRow<T>(params, n, head);
    }
  });
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::reference
