#include "engine/model/rotary.h"

#include <cmath>

namespace pagoda {
RotaryTable::RotaryTable(const RotaryConfig& config, uint32_t head_dim)
    : pairs_(config.pairs),
      factor_(config.attention_factor),
      frequencies_(RotaryFrequencies(config, head_dim)) {}

void RotaryTable::SetPositions(absl::Span<const int32_t> positions) {
  cosines_.clear();
  sines_.clear();
  for (const int32_t position : positions) {
    for (const float frequency : frequencies_) {
      const float angle = static_cast<float>(position) * frequency;
      cosines_.push_back(std::cos(angle) * factor_);
      sines_.push_back(std::sin(angle) * factor_);
    }
  }
}

}  // namespace pagoda
