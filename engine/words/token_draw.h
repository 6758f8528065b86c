#ifndef PAGODA_ENGINE_WORDS_TOKEN_DRAW_H_
#define PAGODA_ENGINE_WORDS_TOKEN_DRAW_H_

#include <cstdint>

namespace pagoda {

// How a step chooses a token from a row of logits, if the model's backend can do that itself. The
// rule is that of Sampler::Choose (sampling/sampling.h).
struct TokenDraw {
  enum class Kind : uint32_t {
    kLogits,  // Not at all: the caller needs the logits.
    kToken,
  };
  Kind kind = Kind::kLogits;
  float temperature = 0.0f;
  uint32_t top_k = 0;  // At most kMostRankedDraw.
  float top_p = 1.0f;
  double uniform = 0.0;  // The random number, in [0, 1).
};

inline constexpr uint32_t kMostRankedDraw = 256;

// Results instead of a token. No vocabulary has these tokens.
inline constexpr uint32_t kNotDrawn = ~uint32_t{0};      // The logits of the row are there.
inline constexpr uint32_t kNoNumber = ~uint32_t{0} - 1;  // One of the row's logits is NaN.

}  // namespace pagoda

#endif  // PAGODA_ENGINE_WORDS_TOKEN_DRAW_H_
