#include "engine/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda {
namespace {

// This many candidates are ranked directly, which costs less than buckets of the whole vocabulary.
constexpr size_t kFewRanked = 256;

bool IsBetter(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

// Computes from the logits, so that a token that appears twice is penalised once.
void Penalise(float penalty, absl::Span<const TokenId> tokens, absl::Span<const float> logits,
              absl::Span<float> scores) {
  for (const TokenId token : tokens) {
    const float logit = logits[token];
    scores[token] = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// Copies the scores of the allowed tokens; the others are -infinity.
void Mask(absl::Span<const float> scores, const TokenMask& allowed, absl::Span<float> masked) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (size_t begin = 0; begin < scores.size(); begin += 32) {
    const size_t end = std::min(begin + 32, scores.size());
    const uint32_t word = begin / 32 < allowed.size() ? allowed[begin / 32] : 0;
    if (word == 0) {
      std::fill(masked.begin() + static_cast<ptrdiff_t>(begin),
                masked.begin() + static_cast<ptrdiff_t>(end), kNone);
      continue;
    }
    for (size_t i = begin; i < end; ++i) {
      masked[i] = (word >> (i - begin) & 1) != 0 ? scores[i] : kNone;
    }
  }
}

// The element at which the running sum of weights, which begins with `sum`, passes `point`. Never
// picks an element without weight if another has one.
size_t Pick(absl::Span<const double> weights, double sum, double point) {
  size_t picked = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) picked = i;
    sum += weights[i];
    if (point < sum) break;
  }
  return picked;
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

Sampler::Sampler() : Sampler(kernels::cpu::BestIsa()) {}

Sampler::Sampler(kernels::cpu::Isa isa) : loops_(SamplingLoopsFor(isa)) {}

std::optional<TokenId> Sampler::Choose(const SamplingParams& params, absl::Span<const float> logits,
                                       absl::Span<const TokenId> tokens,
                                       absl::Span<const TokenId> more, const TokenMask* allowed) {
  absl::Span<const float> scores = logits;
  if (params.repetition_penalty != 1.0f) {
    penalised_.assign(logits.begin(), logits.end());
    Penalise(params.repetition_penalty, tokens, logits, absl::MakeSpan(penalised_));
    Penalise(params.repetition_penalty, more, logits, absl::MakeSpan(penalised_));
    scores = penalised_;
  }
  const uint64_t position = tokens.size() + more.size();
  return allowed == nullptr ? ChooseByScores(params, scores, position)
                            : ChooseAllowed(params, scores, position, *allowed);
}

// The other tokens get no probability.
std::optional<TokenId> Sampler::ChooseAllowed(const SamplingParams& params,
                                              absl::Span<const float> scores, uint64_t position,
                                              const TokenMask& allowed) {
  if (!Scan(scores).has_value()) return std::nullopt;  // Also for a NaN that the mask would hide.
  masked_.resize(scores.size());
  Mask(scores, allowed, absl::MakeSpan(masked_));
  const TokenId chosen = *ChooseByScores(params, masked_, position);
  if (Allows(allowed, chosen)) return chosen;
  // Rounding can lead a draw beyond the last token with a probability; or no token has one.
  const TokenId best = *Scan(masked_);
  if (Allows(allowed, best)) return best;
  for (TokenId token = 0; token < scores.size(); ++token) {
    if (Allows(allowed, token)) return token;
  }
  PAGODA_CHECK(false, "a token of the vocabulary is allowed");
  return std::nullopt;
}

std::optional<TokenId> Sampler::ChooseByScores(const SamplingParams& params,
                                               absl::Span<const float> scores, uint64_t position) {
  const std::optional<TokenId> most_likely = Scan(scores);
  if (!most_likely.has_value()) return std::nullopt;
  most_ = scores[*most_likely];
  if (params.temperature == 0 || params.top_k == 1 || std::isinf(most_)) return most_likely;
  inverse_temperature_ = 1.0 / params.temperature;
  const double uniform = UniformDraw(params.seed, position);
  if (params.top_k == 0 && params.top_p == 1.0f) return DrawFromAll(scores, uniform);
  const size_t few = params.top_k == 0 ? kFewRanked : params.top_k;
  if (few <= kFewRanked) {
    const std::optional<TokenId> drawn = DrawFromFew(params, scores, few, uniform);
    if (drawn.has_value()) return *drawn;
  }
  return DrawFromRanked(params, scores, uniform);
}

// Leaves the blocks' maxima in maxima_. Returns the most likely token, the lowest id of equal ones,
// or nothing if a score is NaN.
std::optional<TokenId> Sampler::Scan(absl::Span<const float> scores) {
  maxima_.resize((scores.size() + kScoreBlock - 1) / kScoreBlock);
  loops_.block_maxima(scores.data(), scores.size(), maxima_.data());
  auto best = maxima_.begin();
  for (auto it = best; it != maxima_.end(); ++it) {
    if (std::isnan(*it)) return std::nullopt;
    if (*it > *best) best = it;
  }
  const auto begin = scores.begin() + (best - maxima_.begin()) * ptrdiff_t{kScoreBlock};
  return static_cast<TokenId>(std::find(begin, scores.end(), *best) - scores.begin());
}

// Leaves the blocks' weights in sums_; returns their sum.
double Sampler::WeighBlocks(absl::Span<const float> scores) {
  sums_.resize(maxima_.size());
  loops_.block_weights(scores.data(), scores.size(), most_, inverse_temperature_, sums_.data());
  return std::accumulate(sums_.begin(), sums_.end(), 0.0);
}

// Draws from all tokens, in the order of their ids.
TokenId Sampler::DrawFromAll(absl::Span<const float> scores, double uniform) {
  const double point = uniform * WeighBlocks(scores);
  const size_t block = Pick(sums_, 0.0, point);
  const double before = std::accumulate(sums_.begin(), sums_.begin() + ptrdiff_t(block), 0.0);
  const absl::Span<const float> in_block = scores.subspan(block * kScoreBlock, kScoreBlock);
  weights_.resize(in_block.size());
  loops_.weights(in_block.data(), in_block.size(), most_, inverse_temperature_, weights_.data());
  return static_cast<TokenId>(block * kScoreBlock + Pick(weights_, before, point));
}

// Leaves the best `count` tokens in ranked_, best first. The `count`-th greatest block maximum is a
// lower bound: `count` blocks each have a score of at least that, so a lower score is not among the
// best.
void Sampler::RankBest(absl::Span<const float> scores, size_t count) {
  count = std::min(count, scores.size());
  float least = -std::numeric_limits<float>::infinity();
  if (count <= maxima_.size()) {
    descending_ = maxima_;
    const auto last = descending_.begin() + static_cast<ptrdiff_t>(count) - 1;
    std::nth_element(descending_.begin(), last, descending_.end(), std::greater<>());
    least = *last;
  }
  ranked_.clear();
  for (size_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < least) continue;
    const size_t end = std::min((block + 1) * kScoreBlock, scores.size());
    for (size_t i = block * kScoreBlock; i < end; ++i) {
      if (scores[i] >= least) ranked_.push_back({static_cast<TokenId>(i), scores[i]});
    }
  }
  std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<ptrdiff_t>(count), ranked_.end(),
                    IsBetter);
  ranked_.resize(count);
}

// Draws from the best `count` tokens. Returns nothing if top_p allows more tokens and top_k does
// not limit them.
std::optional<TokenId> Sampler::DrawFromFew(const SamplingParams& params,
                                            absl::Span<const float> scores, size_t count,
                                            double uniform) {
  RankBest(scores, count);
  std::vector<float>& best = descending_;
  best.clear();
  for (const TokenLogprob& row : ranked_) best.push_back(row.logprob);
  weights_.resize(best.size());
  loops_.weights(best.data(), best.size(), most_, inverse_temperature_, weights_.data());
  const double all = params.top_k == 0 ? WeighBlocks(scores)
                                       : std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double kept = 0;
  size_t size = 0;
  while (size < weights_.size() && (size == 0 || kept < params.top_p * all)) {
    kept += weights_[size++];
  }
  const bool stopped = kept >= params.top_p * all || weights_.size() == scores.size();
  if (params.top_k == 0 && !stopped) return std::nullopt;
  weights_.resize(size);
  return ranked_[Pick(weights_, 0.0, uniform * kept)].token;
}

TokenId Sampler::DrawFromRanked(const SamplingParams& params, absl::Span<const float> scores,
                                double uniform) {
  all_ranked_.Build(loops_, scores, maxima_, most_, inverse_temperature_);
  RankedScores::Place kept{.count = scores.size(), .sum = all_ranked_.total()};
  if (params.top_k != 0 && params.top_k < scores.size()) {
    kept = all_ranked_.Find([&](uint64_t count, double) { return count >= params.top_k; });
  }
  if (params.top_p < 1.0f) {
    kept =
        all_ranked_.Find([least = params.top_p * kept.sum, most = kept.count](
                             uint64_t count, double sum) { return sum >= least || count >= most; });
  }
  const double point = uniform * kept.sum;
  const auto here = [&](uint64_t count, double sum) { return sum > point || count >= kept.count; };
  return all_ranked_.Find(here).token;
}

double Sampler::Normalizer(absl::Span<const float> logits, TokenId most_likely) {
  most_ = logits[most_likely];
  inverse_temperature_ = 1.0;
  return double{most_} + std::log(WeighBlocks(logits));
}

std::optional<absl::Span<const TokenLogprob>> Sampler::MostLikely(absl::Span<const float> logits,
                                                                  size_t count) {
  const std::optional<TokenId> most_likely = Scan(logits);
  if (!most_likely.has_value() || std::isinf(logits[*most_likely])) return std::nullopt;
  const double normalizer = Normalizer(logits, *most_likely);
  RankBest(logits, count);
  for (TokenLogprob& row : ranked_) row.logprob = static_cast<float>(row.logprob - normalizer);
  return ranked_;
}

std::pair<float, absl::Span<const TokenLogprob>> Sampler::Logprobs(absl::Span<const float> logits,
                                                                   TokenId token, uint32_t count) {
  const std::optional<TokenId> most_likely = Scan(logits);
  PAGODA_CHECK(most_likely.has_value(), "logits are numbers");
  const double normalizer = Normalizer(logits, *most_likely);
  ranked_.clear();
  if (count > 0) RankBest(logits, count);
  for (TokenLogprob& row : ranked_) row.logprob = static_cast<float>(row.logprob - normalizer);
  return {static_cast<float>(logits[token] - normalizer), ranked_};
}

double UniformDraw(uint64_t seed, uint64_t n) {
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  };
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;
  // Seeds are mixed first, because the seeds of a request's samples are consecutive.
  const uint64_t bits = mix(mix(seed + kGamma) + (n + 1) * kGamma);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace pagoda
