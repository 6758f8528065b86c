#include "engine/model/layers.h"

#include <cmath>

namespace pagoda {

void RmsNorm(const float* input, uint64_t num_rows, absl::Span<const float> weight, float eps,
             float* output) {
  const size_t size = weight.size();
  for (uint64_t row = 0; row < num_rows; ++row, input += size, output += size) {
    float squares = 0;
    for (size_t i = 0; i < size; ++i) squares += input[i] * input[i];
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
    for (size_t i = 0; i < size; ++i) output[i] = input[i] * scale * weight[i];
  }
}

void SiluMultiply(absl::Span<float> gate, absl::Span<const float> up) {
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0f + std::exp(-gate[i]));
}

void AddTo(absl::Span<float> sum, absl::Span<const float> addend) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
}

RotaryEmbedding::RotaryEmbedding(uint32_t head_dim, float theta) : half_dim_(head_dim / 2) {
  for (uint32_t i = 0; i < half_dim_; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    frequencies_.push_back(1.0f / std::pow(theta, exponent));
  }
}

void RotaryEmbedding::SetPositions(absl::Span<const int32_t> positions) {
  cosines_.clear();
  sines_.clear();
  for (const int32_t position : positions) {
    for (const float frequency : frequencies_) {
      const float angle = static_cast<float>(position) * frequency;
      cosines_.push_back(std::cos(angle));
      sines_.push_back(std::sin(angle));
    }
  }
}

void RotaryEmbedding::Rotate(float* heads, uint32_t num_heads) const {
  for (size_t row = 0; row < cosines_.size(); row += half_dim_) {
    for (uint32_t head = 0; head < num_heads; ++head, heads += 2 * half_dim_) {
      for (uint32_t i = 0; i < half_dim_; ++i) {
        const float first = heads[i];
        const float second = heads[half_dim_ + i];
        heads[i] = first * cosines_[row + i] - second * sines_[row + i];
        heads[half_dim_ + i] = second * cosines_[row + i] + first * sines_[row + i];
      }
    }
  }
}

}  // namespace pagoda
