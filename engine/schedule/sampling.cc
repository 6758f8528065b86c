#include "engine/schedule/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "pools/error.h"

namespace pagoda {
namespace {

// Of a vocabulary, where top_k does not say how many.
constexpr size_t kFirstRanked = 256;

bool IsBetter(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

TokenId MostLikely(absl::Span<const float> scores) {
  return static_cast<TokenId>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

void Penalise(float penalty, absl::Span<const TokenId> tokens, absl::Span<const float> logits,
              absl::Span<float> scores) {
  for (const TokenId token : tokens) {
    // From the logits, so that a token that appears twice is penalised once.
    const float logit = logits[token];
    scores[token] = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// The best `count` of the scores, best first.
void Rank(absl::Span<const float> scores, size_t count, std::vector<TokenLogprob>& ranked) {
  ranked.resize(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) ranked[i] = {static_cast<TokenId>(i), scores[i]};
  count = std::min(count, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(count), ranked.end(),
                    IsBetter);
  ranked.resize(count);
}

// exp((score - most) / temperature), whose sum over candidates is what draws are made in.
class Weights {
 public:
  Weights(float temperature, float most) : temperature_(temperature), most_(most) {}
  double operator()(float score) const { return std::exp((double{score} - most_) / temperature_); }

 private:
  const double temperature_;
  const double most_;
};

// The candidate at `point` of the sum of weights, in their order.
template <class Candidates, class WeightOf>
size_t Pick(const Candidates& candidates, const WeightOf& weight_of, double point) {
  double sum = 0;
  for (size_t i = 0; i + 1 < candidates.size(); ++i) {
    sum += weight_of(candidates[i]);
    if (point < sum) return i;
  }
  return candidates.size() - 1;
}

}  // namespace

absl::Status CheckSampling(const SamplingParams& params) {
  const auto invalid = [](const char* name, float value, const char* wanted) {
    return MakeError(Reason::kInvalidSampling,
                     absl::StrCat(name, " is ", value, "; it must be ", wanted));
  };
  if (!(params.temperature >= 0 && std::isfinite(params.temperature))) {
    return invalid("temperature", params.temperature, "0 or a positive number");
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return invalid("top_p", params.top_p, "above 0 and at most 1");
  }
  if (!(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty))) {
    return invalid("repetition_penalty", params.repetition_penalty, "a positive number");
  }
  if (params.top_logprobs.value_or(0) > kMaxTopLogprobs) {
    return MakeError(Reason::kInvalidSampling,
                     absl::StrCat("top_logprobs is ", *params.top_logprobs, "; it must be at most ",
                                  kMaxTopLogprobs));
  }
  return absl::OkStatus();
}

TokenId Sampler::Choose(const SamplingParams& params, absl::Span<const float> logits,
                        absl::Span<const TokenId> tokens) {
  absl::Span<const float> scores = logits;
  if (params.repetition_penalty != 1.0f) {
    scores_.assign(logits.begin(), logits.end());
    Penalise(params.repetition_penalty, tokens, logits, absl::MakeSpan(scores_));
    scores = scores_;
  }
  const TokenId most_likely = MostLikely(scores);
  if (params.temperature == 0 || params.top_k == 1) return most_likely;
  const double uniform = UniformDraw(params.seed, tokens.size());
  const Weights weight(params.temperature, scores[most_likely]);
  if (params.top_k == 0 && params.top_p == 1.0f) {
    double sum = 0;
    for (const float score : scores) sum += weight(score);
    return static_cast<TokenId>(Pick(scores, weight, uniform * sum));
  }
  const double kept = RankCandidates(params, scores, weight);
  const auto weight_of = [&](const TokenLogprob& row) { return weight(row.logprob); };
  return ranked_[Pick(ranked_, weight_of, uniform * kept)].token;
}

// Leaves in ranked_ what top_k and top_p let through, and returns the sum of its weights. Few
// tokens have most of the probability, so that the rest is ranked only where it must be.
template <class WeightOf>
double Sampler::RankCandidates(const SamplingParams& params, absl::Span<const float> scores,
                               const WeightOf& weight) {
  size_t count = params.top_k == 0 ? kFirstRanked : params.top_k;
  double all = 0;
  if (params.top_k == 0) {
    for (const float score : scores) all += weight(score);
  }
  for (;; count *= 8) {
    Rank(scores, count, ranked_);
    if (params.top_k != 0) {
      all = 0;
      for (const TokenLogprob& row : ranked_) all += weight(row.logprob);
    }
    double sum = 0;
    for (size_t i = 0; i < ranked_.size(); ++i) {
      sum += weight(ranked_[i].logprob);
      if (sum < params.top_p * all && i + 1 < scores.size()) continue;
      ranked_.resize(i + 1);
      return sum;
    }
    if (params.top_k != 0) return sum;
  }
}

std::pair<float, absl::Span<const TokenLogprob>> Sampler::Logprobs(absl::Span<const float> logits,
                                                                   TokenId token, uint32_t count) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  const double normalizer = most + std::log(sum);
  logprobs_.clear();
  if (count > 0) {
    Rank(logits, count, logprobs_);
    for (TokenLogprob& row : logprobs_) {
      row.logprob = static_cast<float>(row.logprob - normalizer);
    }
  }
  return {static_cast<float>(logits[token] - normalizer), logprobs_};
}

double UniformDraw(uint64_t seed, uint64_t n) {
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  };
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;
  // Seeds are mixed first: those of a request's samples are neighbours.
  const uint64_t bits = mix(mix(seed + kGamma) + (n + 1) * kGamma);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace pagoda
