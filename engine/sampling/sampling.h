// Chooses a token from logits.
#ifndef PAGODA_ENGINE_SAMPLING_SAMPLING_H_
#define PAGODA_ENGINE_SAMPLING_SAMPLING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/sampling/ranked_scores.h"
#include "engine/sampling/sampling_loops.h"
#include "engine/structured/grammar.h"
#include "kernels/execution/isa.h"
#include "pools/types.h"

namespace pagoda {

// The steps apply in this order: repetition penalty, allowed tokens, temperature, top_k, top_p,
// draw.
struct SamplingParams {
  float temperature = 0.0f;  // 0: the most likely token; of equal ones, the lowest id.
  uint32_t top_k = 0;        // Only the k most likely tokens; 0: all.
  float top_p = 1.0f;        // Only the fewest tokens whose probabilities sum to at least top_p.
  // The logit of a token that the sequence already has is divided by this if positive, and
  // multiplied by it if negative (Keskar et al., 2019).
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;
  // If set, each token is reported with the logarithm of its probability, and with those of this
  // number of most likely tokens, at most kMaxTopLogprobs.
  std::optional<uint32_t> top_logprobs;
};

inline constexpr uint32_t kMaxTopLogprobs = 20;

// INVALID_SAMPLING with the parameter's name, for a negative or infinite temperature, top_p outside
// (0, 1], a penalty that is not positive, or top_logprobs above kMaxTopLogprobs.
absl::Status CheckSampling(const SamplingParams& params);

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

// Keeps its buffers from one token to the next. Thread-compatible.
class Sampler {
 public:
  Sampler();
  // For tests. REQUIRES: the machine has the instructions. All instruction sets choose the same
  // tokens.
  explicit Sampler(kernels::cpu::Isa isa);

  // The token behind `tokens` and then `more`; nothing if one of the logits is NaN. If `allowed` is
  // not null, one of these tokens; REQUIRES: one of them is in the vocabulary. `logits` is
  // [vocab_size], without +infinity. The draw depends only on the seed and on the number of these
  // tokens, not on the batch or the order of computation. Cost: some passes over the logits, which
  // the compiler vectorises. It sorts 256 candidates or top_k; if more tokens are likely enough, it
  // sorts one of RankedScores's 4,096 buckets.
  std::optional<TokenId> Choose(const SamplingParams& params, absl::Span<const float> logits,
                                absl::Span<const TokenId> tokens,
                                absl::Span<const TokenId> more = {},
                                const TokenMask* allowed = nullptr);

  // The `count` most likely tokens with the natural logarithms of their probabilities, best first;
  // tokens of equal logits by their ids. Nothing if a logit is NaN, or all are -infinity. The span
  // is valid until the next call. Cost: as Choose.
  std::optional<absl::Span<const TokenLogprob>> MostLikely(absl::Span<const float> logits,
                                                           size_t count);

  // The natural logarithm of a token's probability, and the `count` most likely tokens, in the
  // unmodified distribution of the logits. The span is valid until the next call. REQUIRES: no
  // logit is NaN.
  std::pair<float, absl::Span<const TokenLogprob>> Logprobs(absl::Span<const float> logits,
                                                            TokenId token, uint32_t count);

 private:
  std::optional<TokenId> ChooseByScores(const SamplingParams& params,
                                        absl::Span<const float> scores, uint64_t position);
  std::optional<TokenId> ChooseAllowed(const SamplingParams& params, absl::Span<const float> scores,
                                       uint64_t position, const TokenMask& allowed);
  std::optional<TokenId> Scan(absl::Span<const float> scores);
  double WeighBlocks(absl::Span<const float> scores);
  // The logarithm of the sum of all exp(logit). REQUIRES: the last Scan was of `logits`, and found
  // `most_likely`.
  double Normalizer(absl::Span<const float> logits, TokenId most_likely);
  void RankBest(absl::Span<const float> scores, size_t count);
  TokenId DrawFromAll(absl::Span<const float> scores, double uniform);
  std::optional<TokenId> DrawFromFew(const SamplingParams& params, absl::Span<const float> scores,
                                     size_t count, double uniform);
  TokenId DrawFromRanked(const SamplingParams& params, absl::Span<const float> scores,
                         double uniform);

  const SamplingLoops& loops_;
  // The following members describe the current scores.
  float most_ = 0;
  double inverse_temperature_ = 1;
  std::vector<float> maxima_;  // By block.
  std::vector<double> sums_;   // Sums of weights, by block.
  // Buffers.
  std::vector<float> penalised_;      // [vocab_size]
  std::vector<float> masked_;         // [vocab_size]
  std::vector<float> descending_;     // Maxima, or the scores of ranked_.
  std::vector<TokenLogprob> ranked_;  // Candidates, best first; `logprob` is their score.
  std::vector<double> weights_;       // The weights of candidates, or of a block.
  RankedScores all_ranked_;
};

// A number in [0, 1) for the n-th draw of a seed, by SplitMix64 (Steele et al., 2014).
double UniformDraw(uint64_t seed, uint64_t n);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SAMPLING_SAMPLING_H_
