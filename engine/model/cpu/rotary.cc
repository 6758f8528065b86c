#include "engine/model/cpu/rotary.h"

#include <cmath>

namespace pagoda {
RotaryTable::RotaryTable(const RotaryConfig& config, uint32_t head_dim)
    : pairs_(config.pairs),
      factor_(config.attention_factor),
      frequencies_(RotaryFrequencies(config, head_dim)),
      long_frequencies_(RotaryFrequencies(config, head_dim, RotaryRange::kLong)) {}

void RotaryTable::SetPositions(absl::Span<const int32_t> positions,
                               absl::Span<const RotaryRange> ranges) {
  cosines_.clear();
  sines_.clear();
  for (size_t n = 0; n < positions.size(); ++n) {
    const bool is_long = !ranges.empty() && ranges[n] == RotaryRange::kLong;
    for (const float frequency : is_long ? long_frequencies_ : frequencies_) {
      const float angle = static_cast<float>(positions[n]) * frequency;
      cosines_.push_back(std::cos(angle) * factor_);
      sines_.push_back(std::sin(angle) * factor_);
    }
  }
}

}  // namespace pagoda
