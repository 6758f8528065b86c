#include "engine/sampling/ranked_scores.h"

#include <algorithm>
#include <numeric>

namespace pagoda {
namespace {

// The range of scores below the greatest one that the buckets cover, in units of the temperature.
// The last bucket has the rest. The most likely token alone outweighs a million tokens there.
constexpr double kRange = 24.0;

}  // namespace

void RankedScores::Build(const SamplingLoops& loops, absl::Span<const float> scores,
                         absl::Span<const float> maxima, float most, double inverse_temperature) {
  loops_ = &loops;
  scores_ = scores;
  maxima_ = maxima;
  most_ = most;
  scale_ = static_cast<float>(kBuckets / kRange * inverse_temperature);
  inverse_temperature_ = inverse_temperature;
  std::fill(counts_.begin(), counts_.end(), 0u);
  std::fill(sums_.begin(), sums_.end(), 0.0);
  sorted_ = kBuckets;
  double weights[kScoreBlock];
  for (size_t begin = 0; begin < scores.size(); begin += kScoreBlock) {
    const absl::Span<const float> block = scores.subspan(begin, kScoreBlock);
    loops.weights(block.data(), block.size(), most, inverse_temperature, weights);
    for (size_t i = 0; i < block.size(); ++i) {
      const size_t bucket = BucketOf(block[i]);
      ++counts_[bucket];
      sums_[bucket] += weights[i];
    }
  }
}

double RankedScores::total() const { return std::accumulate(sums_.begin(), sums_.end(), 0.0); }

RankedScores::Place RankedScores::Find(absl::FunctionRef<bool(uint64_t, double)> stop) {
  Place place;
  size_t last = 0;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    if (counts_[bucket] == 0) continue;
    last = bucket;
    if (stop(place.count + counts_[bucket], place.sum + sums_[bucket])) break;
    if (place.count + counts_[bucket] == scores_.size()) break;
    place.count += counts_[bucket];
    place.sum += sums_[bucket];
  }
  Sort(last);
  for (const Row& row : rows_) {
    place = {.token = row.token, .count = place.count + 1, .sum = place.sum + row.weight};
    if (stop(place.count, place.sum)) break;
  }
  return place;
}

void RankedScores::Sort(size_t bucket) {
  if (std::exchange(sorted_, bucket) == bucket) return;
  rows_.clear();
  for (size_t block = 0; block < maxima_.size(); ++block) {
    if (BucketOf(maxima_[block]) > bucket) continue;
    const size_t end = std::min((block + 1) * kScoreBlock, scores_.size());
    for (size_t i = block * kScoreBlock; i < end; ++i) {
      if (BucketOf(scores_[i]) != bucket) continue;
      rows_.push_back({.score = scores_[i], .token = static_cast<TokenId>(i), .weight = 0});
    }
  }
  const auto better = [](const Row& a, const Row& b) {
    return a.score > b.score || (a.score == b.score && a.token < b.token);
  };
  // There can be very many equal scores, which are already in order.
  if (!std::is_sorted(rows_.begin(), rows_.end(), better)) {
    std::sort(rows_.begin(), rows_.end(), better);
  }
  for (Row& row : rows_) {
    loops_->weights(&row.score, 1, most_, inverse_temperature_, &row.weight);
  }
}

}  // namespace pagoda
