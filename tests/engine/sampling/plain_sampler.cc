#include "tests/engine/sampling/plain_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace pagoda {

TokenId ChoosePlainly(const SamplingParams& params, absl::Span<const float> logits,
                      absl::Span<const TokenId> tokens) {
  return ChoosePlainly(params, logits, tokens, UniformDraw(params.seed, tokens.size()));
}

TokenId ChoosePlainly(const SamplingParams& params, absl::Span<const float> logits,
                      absl::Span<const TokenId> tokens, double uniform) {
  std::vector<float> scores(logits.begin(), logits.end());
  for (const TokenId token : tokens) {
    const float penalty = params.repetition_penalty;
    scores[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
  }
  std::vector<TokenId> kept(scores.size());
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<TokenId>(i);
  const bool all = params.temperature > 0 && params.top_k == 0 && params.top_p == 1.0f;
  if (!all) {
    std::stable_sort(kept.begin(), kept.end(),
                     [&](TokenId a, TokenId b) { return scores[a] > scores[b]; });
  }
  if (params.temperature == 0) return kept.front();
  const double most = *std::max_element(scores.begin(), scores.end());
  const auto weight = [&](TokenId token) {
    return std::exp((double{scores[token]} - most) / params.temperature);
  };
  if (params.top_k > 0 && params.top_k < kept.size()) kept.resize(params.top_k);
  double sum = 0;
  for (const TokenId token : kept) sum += weight(token);
  const double least = params.top_p * sum;
  sum = 0;
  size_t size = 0;
  while (size < kept.size() && (size == 0 || params.top_p == 1.0f || sum < least)) {
    sum += weight(kept[size++]);
  }
  const double point = uniform * sum;
  double reached = 0;
  for (size_t i = 0; i < size; ++i) {
    reached += weight(kept[i]);
    if (point < reached) return kept[i];
  }
  return kept[size - 1];
}

}  // namespace pagoda
