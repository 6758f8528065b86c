#ifndef PAGODA_ENGINE_MODEL_CPU_ROTARY_H_
#define PAGODA_ENGINE_MODEL_CPU_ROTARY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"

namespace pagoda {

// The angles of a step's tokens in a rotary position embedding (Su et al., 2021).
class RotaryTable {
 public:
  RotaryTable(const RotaryConfig& config, uint32_t head_dim);

  // `ranges`: of each position; empty: all kShort.
  void SetPositions(absl::Span<const int32_t> positions, absl::Span<const RotaryRange> ranges = {});

  RotaryConfig::Pairs pairs() const { return pairs_; }
  uint32_t half_dim() const { return static_cast<uint32_t>(frequencies_.size()); }
  // The angles of the row-th position, times the embedding's attention_factor: [half_dim].
  const float* cosines(uint64_t row) const { return cosines_.data() + row * half_dim(); }
  const float* sines(uint64_t row) const { return sines_.data() + row * half_dim(); }

 private:
  const RotaryConfig::Pairs pairs_;
  const float factor_;
  std::vector<float> frequencies_;       // The frequencies for kShort.
  std::vector<float> long_frequencies_;  // The frequencies for kLong.
  std::vector<float> cosines_;           // [positions][half_dim]
  std::vector<float> sines_;             // [positions][half_dim]
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_ROTARY_H_
