// How a token is chosen from logits.
#ifndef PAGODA_ENGINE_SCHEDULE_SAMPLING_H_
#define PAGODA_ENGINE_SCHEDULE_SAMPLING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/schedule/ranked_scores.h"
#include "engine/schedule/sampling_loops.h"
#include "kernels/cpu/isa.h"
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
  Sampler();
  // For tests: the machine has the instructions. All choose the same tokens.
  explicit Sampler(kernels::cpu::Isa isa);

  // The token behind `tokens` and then `more`; nothing where one of the logits is NaN. `logits` is
  // [vocab_size], not +infinity. The draw depends on the seed and on how many tokens those are,
  // alone: not on the batch, nor on what was computed when. Cost: some passes over the logits that
  // the compiler vectorises; what is sorted is 256 candidates or top_k, or where more are let
  // through, a 4,096th of the likely ones.
  std::optional<TokenId> Choose(const SamplingParams& params, absl::Span<const float> logits,
                                absl::Span<const TokenId> tokens,
                                absl::Span<const TokenId> more = {});

  // The natural logarithm of a token's probability, and the `count` most likely tokens, in the
  // distribution that the logits themselves are. The span is valid until the next call. REQUIRES:
  // no logit is NaN.
  std::pair<float, absl::Span<const TokenLogprob>> Logprobs(absl::Span<const float> logits,
                                                            TokenId token, uint32_t count);

 private:
  std::optional<TokenId> Scan(absl::Span<const float> scores);
  double WeighBlocks(absl::Span<const float> scores);
  void RankBest(absl::Span<const float> scores, size_t count);
  TokenId DrawFromAll(absl::Span<const float> scores, double uniform);
  std::optional<TokenId> DrawFromFew(const SamplingParams& params, absl::Span<const float> scores,
                                     size_t count, double uniform);
  TokenId DrawFromRanked(const SamplingParams& params, absl::Span<const float> scores,
                         double uniform);

  const SamplingLoops& loops_;
  // Of the scores at hand.
  float most_ = 0;
  double inverse_temperature_ = 1;
  std::vector<float> maxima_;  // By block.
  std::vector<double> sums_;   // Likewise: of weights.
  // What is kept of them.
  std::vector<float> penalised_;      // [vocab_size]
  std::vector<float> descending_;     // Maxima, or the scores of ranked_.
  std::vector<TokenLogprob> ranked_;  // Candidates, best first; `logprob` is their score.
  std::vector<double> weights_;       // Of candidates, or of a block.
  RankedScores all_ranked_;
};

// A number in [0, 1) for the n-th draw of a seed, by SplitMix64 (Steele et al., 2014).
double UniformDraw(uint64_t seed, uint64_t n);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_SAMPLING_H_
