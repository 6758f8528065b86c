// Chooses a token from logits as simply as possible. The sampler is compared with it.
#ifndef PAGODA_TESTS_ENGINE_SAMPLING_PLAIN_SAMPLER_H_
#define PAGODA_TESTS_ENGINE_SAMPLING_PLAIN_SAMPLER_H_

#include "absl/types/span.h"
#include "engine/sampling/sampling.h"
#include "pools/types.h"

namespace pagoda {

// Does what Sampler::Choose does. Sorts the whole vocabulary.
TokenId ChoosePlainly(const SamplingParams& params, absl::Span<const float> logits,
                      absl::Span<const TokenId> tokens);
// The same with this random number.
TokenId ChoosePlainly(const SamplingParams& params, absl::Span<const float> logits,
                      absl::Span<const TokenId> tokens, double uniform);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_SAMPLING_PLAIN_SAMPLER_H_
