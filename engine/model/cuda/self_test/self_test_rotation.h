// The rotations of a model's heads, for the self-test.
#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ROTATION_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ROTATION_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/cuda/kernels/row_kernels.h"

namespace pagoda::cuda {

// How the model rotates the heads of its queries or keys.
struct Rotation {
  RotaryConfig rotary;
  HeadRotation heads;
  bool normed = false;  // Each head is normed first.
};

inline std::vector<Rotation> RotationsOf(const ModelConfig& config) {
  std::vector<Rotation> rotations;
  if (config.alibi) return rotations;
  std::vector<RotaryConfig> rotaries = config.rotaries;
  if (rotaries.empty()) rotaries.push_back({});
  for (const RotaryConfig& rotary : rotaries) {
    const bool neighbours = rotary.pairs == RotaryConfig::Pairs::kNeighbours;
    if (config.latent.has_value()) {
      const LatentAttentionConfig& latent = *config.latent;
      for (const uint32_t before : {latent.plain_dim, latent.latent_dim}) {
        rotations.push_back({.rotary = rotary,
                             .heads = {.head_dim = before + latent.rotary_dim,
                                       .first_element = before,
                                       .neighbours = neighbours}});
      }
      continue;
    }
    for (const bool normed : {false, true}) {
      rotations.push_back({.rotary = rotary,
                           .heads = {.head_dim = config.head_dim, .neighbours = neighbours},
                           .normed = normed});
    }
  }
  return rotations;
}

// Rotates the head's pairs of elements by the angles of the position.
inline void Rotate(const Rotation& rotation, const std::vector<float>& frequencies,
                   int32_t position, absl::Span<double> head) {
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    // The angle itself is rounded to fp32, as in transformers.
    const double angle = static_cast<float>(position) * frequencies[i];
    const double cosine = rotation.rotary.attention_factor * std::cos(angle);
    const double sine = rotation.rotary.attention_factor * std::sin(angle);
    const size_t at = rotation.heads.first_element + (rotation.heads.neighbours ? 2 * i : i);
    double& low = head[at];
    double& high = head[at + (rotation.heads.neighbours ? 1 : half)];
    const double before = low;
    low = before * cosine - high * sine;
    high = high * cosine + before * sine;
  }
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ROTATION_H_
