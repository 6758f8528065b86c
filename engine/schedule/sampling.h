// How a token is chosen from logits.
#ifndef PAGODA_ENGINE_SCHEDULE_SAMPLING_H_
#define PAGODA_ENGINE_SCHEDULE_SAMPLING_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "pools/types.h"

namespace pagoda {

// In this order: the repetition penalty, the temperature, top_k, top_p; then a draw.
struct SamplingParams {
  float temperature = 0.0f;  // 0: the most likely token, the lowest of equals.
  uint32_t top_k = 0;        // Only the k most likely ones; 0: all.
  float top_p = 1.0f;        // Only the fewest that together are at least as likely.
  // Logits of tokens that the sequence has already are divided by it where they are positive, and
  // multiplied where they are negative (Keskar et al., 2019).
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;
  // If set, the logarithm of each token's probability is reported, and those of as many of the most
  // likely ones, at most kMaxTopLogprobs.
  std::optional<uint32_t> top_logprobs;
};

inline constexpr uint32_t kMaxTopLogprobs = 20;

// INVALID_SAMPLING with the parameter's name: a negative or infinite temperature, top_p outside
// (0, 1], a penalty that is not positive, more than kMaxTopLogprobs.
absl::Status CheckSampling(const SamplingParams& params);

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

// Keeps its buffers from one token to the next. Thread-compatible.
class Sampler {
 public:
  // The token behind `tokens`. `logits` is [vocab_size], finite or -infinity. The draw depends on
  // the seed and on tokens.size() alone: not on the batch, nor on what was computed when. Cost:
  // O(vocab_size), and O(vocab_size log vocab_size) where top_p lets most tokens through.
  TokenId Choose(const SamplingParams& params, absl::Span<const float> logits,
                 absl::Span<const TokenId> tokens);

  // The natural logarithm of a token's probability, and the `count` most likely tokens, in the
  // distribution that the logits themselves are. The span is valid until the next call.
  std::pair<float, absl::Span<const TokenLogprob>> Logprobs(absl::Span<const float> logits,
                                                            TokenId token, uint32_t count);

 private:
  template <class WeightOf>
  double RankCandidates(const SamplingParams& params, absl::Span<const float> scores,
                        const WeightOf& weight);

  std::vector<float> scores_;           // [vocab_size]
  std::vector<TokenLogprob> ranked_;    // Candidates, best first; `logprob` is their score.
  std::vector<TokenLogprob> logprobs_;  // What Logprobs returns.
};

// A number in [0, 1) for the n-th draw of a seed, by SplitMix64 (Steele et al., 2014).
double UniformDraw(uint64_t seed, uint64_t n);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_SAMPLING_H_
