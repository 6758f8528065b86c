// The small layers of a transformer, in fp32, in place or row by row.
#ifndef PAGODA_ENGINE_MODEL_LAYERS_H_
#define PAGODA_ENGINE_MODEL_LAYERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace pagoda {

// output[r] = input[r] / sqrt(mean(input[r]^2) + eps) * weight, for each row of weight.size()
// elements. `input` may be `output`. (Zhang and Sennrich, 2019.)
void RmsNorm(const float* input, uint64_t num_rows, absl::Span<const float> weight, float eps,
             float* output);

// gate = silu(gate) * up, element by element.
void SiluMultiply(absl::Span<float> gate, absl::Span<const float> up);

// sum += addend, element by element.
void AddTo(absl::Span<float> sum, absl::Span<const float> addend);

// Rotary position embedding (Su et al., 2021) as Hugging Face's models have it: the element i of a
// head's first half turns together with the element i of its second half.
class RotaryEmbedding {
 public:
  RotaryEmbedding(uint32_t head_dim, float theta);

  // Computes the angles of the tokens that Rotate will see.
  void SetPositions(absl::Span<const int32_t> positions);
  // heads: [positions][num_heads][head_dim], turned in place.
  void Rotate(float* heads, uint32_t num_heads) const;

 private:
  const uint32_t half_dim_;
  std::vector<float> frequencies_;  // [half_dim]
  std::vector<float> cosines_;      // [positions][half_dim]
  std::vector<float> sines_;        // [positions][half_dim]
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_LAYERS_H_
