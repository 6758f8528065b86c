#include "engine/model/layers/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace pagoda {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void Softmax(absl::Span<float> values) {
  const float most = *std::max_element(values.begin(), values.end());
  float sum = 0;
  for (float& value : values) sum += value = std::exp(value - most);
  for (float& value : values) value /= sum;
}

// The indices of the `count` largest values, largest first.
std::vector<uint32_t> Largest(absl::Span<const float> values, uint32_t count) {
  std::vector<uint32_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0u);
  // NaN, which compares with nothing, counts as the lowest value.
  const auto rank = [&](uint32_t i) { return std::isnan(values[i]) ? kLowest : values[i]; };
  std::partial_sort(
      indices.begin(), indices.begin() + count, indices.end(),
      [&](uint32_t a, uint32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
  indices.resize(count);
  return indices;
}

// Makes the ratings outside the best groups the lowest.
void KeepBestGroups(const ExpertsConfig& config, absl::Span<float> ratings) {
  if (config.groups <= 1) return;
  const uint32_t size = config.count / config.groups;
  std::vector<float> groups;
  for (uint32_t g = 0; g < config.groups; ++g) {
    const absl::Span<const float> group = ratings.subspan(uint64_t{g} * size, size);
    const bool two = config.group_rating == ExpertsConfig::GroupRating::kSumOfBestTwo;
    float rating = 0;
    for (const uint32_t i : Largest(group, two ? 2 : 1)) rating += group[i];
    groups.push_back(rating);
  }
  std::vector<bool> kept(config.groups, false);
  for (const uint32_t g : Largest(groups, config.chosen_groups)) kept[g] = true;
  for (uint32_t i = 0; i < config.count; ++i) {
    if (!kept[i / size]) ratings[i] = kLowest;
  }
}

struct Choice {
  std::vector<uint32_t> experts;
  std::vector<float> factors;
};

// `scores`: one token's outputs; changed.
Choice Choose(const ExpertsConfig& config, absl::Span<const float> correction,
              absl::Span<float> scores) {
  using Scores = ExpertsConfig::Scores;
  if (config.scores == Scores::kSoftmax) Softmax(scores);
  if (config.scores == Scores::kSigmoid) {
    for (float& score : scores) score = 1.0f / (1.0f + std::exp(-score));
  }
  std::vector<float> ratings(scores.begin(), scores.end());
  for (size_t i = 0; i < correction.size(); ++i) ratings[i] += correction[i];
  KeepBestGroups(config, absl::MakeSpan(ratings));
  Choice choice = {.experts = Largest(ratings, config.chosen), .factors = {}};
  for (const uint32_t expert : choice.experts) choice.factors.push_back(scores[expert]);
  if (config.scores == Scores::kSoftmaxOfChosen) Softmax(absl::MakeSpan(choice.factors));
  if (config.normalize) {
    const float sum = std::accumulate(choice.factors.begin(), choice.factors.end(), 0.0f);
    // DeepSeek's guard against a sum of zeros.
    for (float& factor : choice.factors) factor /= sum + 1e-20f;
  }
  for (float& factor : choice.factors) factor *= config.scale;
  return choice;
}

}  // namespace

std::vector<ExpertTokens> RouteTokens(const ExpertsConfig& config,
                                      absl::Span<const float> correction,
                                      absl::Span<const float> outputs) {
  PAGODA_CHECK(outputs.size() % config.count == 0, "each token has an output for each expert");
  std::vector<ExpertTokens> all(config.count);
  std::vector<float> scores(config.count);
  for (uint64_t row = 0; row < outputs.size() / config.count; ++row) {
    const absl::Span<const float> own = outputs.subspan(row * config.count, config.count);
    std::copy(own.begin(), own.end(), scores.begin());
    const Choice choice = Choose(config, correction, absl::MakeSpan(scores));
    for (size_t i = 0; i < choice.experts.size(); ++i) {
      ExpertTokens& tokens = all[choice.experts[i]];
      tokens.rows.push_back(static_cast<uint32_t>(row));
      tokens.factors.push_back(choice.factors[i]);
    }
  }
  std::vector<ExpertTokens> used;
  for (uint32_t e = 0; e < config.count; ++e) {
    if (all[e].rows.empty()) continue;
    all[e].expert = e;
    used.push_back(std::move(all[e]));
  }
  return used;
}

}  // namespace pagoda
