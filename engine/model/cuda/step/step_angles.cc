#include "engine/model/cuda/step/step_angles.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/device/runtime.h"

namespace pagoda::cuda {

absl::Status StepAngles::Make(const ModelInput& input, absl::Span<const int32_t> positions,
                              const ModelConfig& config) {
  absl::Status status;
  if (!has_frequencies_) status = BringFrequencies(config);
  uint64_t half_dims = 0;
  for (const Rotary& rotary : rotaries_) half_dims += rotary.half_dim;
  const uint64_t rows = positions.size();
  if (status.ok()) status = memory_.Grow(2 * half_dims * rows * sizeof(float));
  float* next = memory_.as<float>();
  for (Rotary& rotary : rotaries_) {
    if (!status.ok()) return status;
    rotary.angles = {
        .cosines = next, .sines = next + rows * rotary.half_dim, .half_dim = rotary.half_dim};
    next += 2 * rows * rotary.half_dim;
    status = MakeOf(rotary, input, positions);
  }
  return status;
}

// A launch for each run of tokens of one range; without LongRoPE there is one run.
absl::Status StepAngles::MakeOf(const Rotary& rotary, const ModelInput& input,
                                absl::Span<const int32_t> positions) {
  const std::vector<RotaryRange>& ranges = input.rotary_ranges;
  const uint64_t tokens = input.tokens.size();
  absl::Status status;
  for (uint64_t begin = 0, end = 0; begin < tokens && status.ok(); begin = end) {
    end = tokens;
    bool is_long = false;
    if (!ranges.empty()) {
      const auto first = ranges.begin() + static_cast<std::ptrdiff_t>(begin);
      is_long = *first == RotaryRange::kLong;
      const auto other = [&](RotaryRange range) { return range != *first; };
      end = static_cast<uint64_t>(std::find_if(first, ranges.end(), other) - ranges.begin());
    }
    AnglesView angles = rotary.angles;
    angles.cosines += begin * rotary.half_dim;
    angles.sines += begin * rotary.half_dim;
    const float* const frequencies =
        frequencies_.as<float>() + rotary.first_frequency + (is_long ? rotary.half_dim : 0);
    status = kernels::cuda::StatusOf(
        "angles", LaunchAngles(positions.data() + begin, end - begin, frequencies,
                               rotary.config.attention_factor, angles, device_.stream()));
  }
  return status;
}

absl::Status StepAngles::BringFrequencies(const ModelConfig& config) {
  std::vector<float> all;
  rotaries_.clear();
  for (const RotaryConfig& rotary : config.rotaries) {
    const std::vector<float> frequencies = RotaryFrequencies(rotary, config.head_dim);
    rotaries_.push_back({.config = rotary,
                         .half_dim = static_cast<uint32_t>(frequencies.size()),
                         .first_frequency = all.size(),
                         .angles = {}});
    all.insert(all.end(), frequencies.begin(), frequencies.end());
    const std::vector<float> others =
        RotaryFrequencies(rotary, config.head_dim, RotaryRange::kLong);
    all.insert(all.end(), others.begin(), others.end());
  }
  const absl::Status status =
      all.empty() ? absl::OkStatus() : weights_.FloatsInto(all, frequencies_);
  has_frequencies_ = status.ok();
  return status;
}

HeadRotation StepAngles::RotationOf(const RotationShape& shape) const {
  return {.head_dim = shape.head_dim,
          .first_element = shape.first_element,
          .neighbours = rotaries_[shape.rotary].config.pairs == RotaryConfig::Pairs::kNeighbours};
}

}  // namespace pagoda::cuda
