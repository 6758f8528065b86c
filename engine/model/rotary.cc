#include "engine/model/rotary.h"

#include <cmath>
#include <numbers>

namespace pagoda {
namespace {

// Llama 3.1's: long waves are stretched by `factor`, short ones stay, between them a straight line.
float ScaleLlama3(const RotaryConfig& config, float frequency) {
  const auto original = static_cast<float>(config.original_max_position_embeddings);
  const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
  if (wavelength > original / config.low_freq_factor) return frequency / config.factor;
  if (wavelength < original / config.high_freq_factor) return frequency;
  const float share = (original / wavelength - config.low_freq_factor) /
                      (config.high_freq_factor - config.low_freq_factor);
  return (1.0f - share) * frequency / config.factor + share * frequency;
}

}  // namespace

std::vector<float> RotaryFrequencies(const RotaryConfig& config, uint32_t head_dim) {
  std::vector<float> frequencies;
  for (uint32_t i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    float frequency = 1.0f / std::pow(config.theta, exponent);
    switch (config.scaling) {
      case RotaryConfig::Scaling::kNone:
        break;
      case RotaryConfig::Scaling::kLinear:
        frequency /= config.factor;
        break;
      case RotaryConfig::Scaling::kLlama3:
        frequency = ScaleLlama3(config, frequency);
        break;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

RotaryTable::RotaryTable(const RotaryConfig& config, uint32_t head_dim)
    : frequencies_(RotaryFrequencies(config, head_dim)) {}

void RotaryTable::SetPositions(absl::Span<const int32_t> positions) {
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

}  // namespace pagoda
