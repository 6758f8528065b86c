#include "manager/advice/hit_rate_curve.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

// Student's t for 95 % and one degree less than there are groups.
constexpr double kStudent = 2.365;
// What did not occur in the sample at all has, with 95 %, a share below 3 / (its size).
constexpr double kFewLookups = 3;
constexpr double kMostLeverage = 4;
constexpr double kStraight = 1e-3;
// How far simulated caches are off, beyond the error of the sample: 19 of 20 of 468 comparisons
// with replays were within both of these (manager/BENCHMARKS.md).
constexpr double kSimulationDoubt = 0.0035;
constexpr double kDoubtOfChange = 0.05;
// In a cyclic workload, 80 % of what a sample promised beyond the change of LRU did not come.
constexpr double kSureBeyondLru = 0.01;
static_assert(ReuseCounts::kGroups == 8);

using Distances = std::array<double, ReuseCounts::kBuckets>;

// The lookups with a distance below `blocks`, in sampled blocks. The distances of a bucket count as
// evenly spread over it.
double Below(const Distances& lookups, double blocks) {
  double sum = 0;
  for (size_t i = 0; i < lookups.size(); ++i) {
    const double begin = ReuseCounts::BeginOf(i), end = ReuseCounts::BeginOf(i + 1);
    if (blocks <= begin) break;
    sum += lookups[i] * std::min(1.0, (blocks - begin) / (end - begin));
  }
  return sum;
}

// The smallest number of sampled blocks below which as many lookups lie.
double CapacityFor(const Distances& lookups, double wanted) {
  double sum = 0;
  for (size_t i = 0; i < lookups.size(); ++i) {
    if (lookups[i] > 0 && sum + lookups[i] >= wanted) {
      const double begin = ReuseCounts::BeginOf(i), end = ReuseCounts::BeginOf(i + 1);
      return begin + (end - begin) * std::max(0.0, wanted - sum) / lookups[i];
    }
    sum += lookups[i];
  }
  return ReuseCounts::kMaxDistance;
}

}  // namespace

HitRateCurve::HitRateCurve(const ReuseCounts* counts)
    : counts_(*counts), expected_(counts->lookups * counts->rate) {
  whole_ = Without(ReuseCounts::kGroups);
  for (size_t group = 0; group < parts_.size(); ++group) parts_[group] = Without(group);
}

// Without any group: the whole sample.
HitRateCurve::Part HitRateCurve::Without(size_t group) const {
  Part part;
  for (size_t g = 0; g < counts_.groups.size(); ++g) {
    if (g == group) continue;
    const ReuseCounts::Group& counts = counts_.groups[g];
    for (size_t i = 0; i < part.by_distance.size(); ++i) {
      part.by_distance[i] += counts.by_distance[i];
      part.all += counts.by_distance[i];
    }
    for (size_t i = 0; i < part.simulated_hits.size(); ++i) {
      part.simulated_hits[i] += counts.simulated_hits[i];
    }
    part.hits += counts.hits;
    part.expected += expected_ / ReuseCounts::kGroups;
  }
  return part;
}

// The size of an LRU cache with the part's hits. Where the curve is flat, a few hits would be many
// blocks. So the size differs at most kMostLeverage times as much as the hits.
double HitRateCurve::ActsAs(const Part& part, double now, double lru_now) const {
  if (lru_now <= 0) return now;
  const double most = kMostLeverage * now * std::abs(part.hits - lru_now) / lru_now;
  const double size = CapacityFor(part.by_distance, part.hits);
  return part.hits > lru_now ? std::clamp(size, now, now + most)
                             : std::clamp(size, std::max(0.0, now - most), now);
}

// In the sample.
double HitRateCurve::Blocks(double factor) const {
  return factor * static_cast<double>(counts_.capacity_blocks) * counts_.rate;
}

HitRateCurve::Guess HitRateCurve::GuessFrom(const Part& part, double factor) const {
  return counts_.is_simulated ? GuessBySimulation(part, factor) : GuessByRules(part, factor);
}

HitRateCurve::Guess HitRateCurve::GuessBySimulation(const Part& part, double factor) const {
  constexpr const auto& kFactors = ReuseCounts::kSimulatedFactors;
  constexpr size_t kToday = ReuseCounts::kToday;
  // How much more the small cache of today's size hits than the cache.
  const double excess = (part.simulated_hits[kToday] - part.hits) / part.expected;
  std::array<double, ReuseCounts::kSimulated> simulated;
  for (size_t i = 0; i < simulated.size(); ++i) {
    const double gain = part.simulated_hits[i] - part.simulated_hits[kToday];
    const double stays = hit_rate() + gain / part.expected, goes = stays + excess;
    simulated[i] = i == kToday ? hit_rate() : std::clamp((stays + goes) / 2, 0.0, 1.0);
  }
  for (size_t i = kToday; i-- > 0;) simulated[i] = std::min(simulated[i], simulated[i + 1]);
  for (size_t i = kToday + 1; i < simulated.size(); ++i) {
    simulated[i] = std::max(simulated[i], simulated[i - 1]);
  }
  const auto lru = [&](double at) { return Below(part.by_distance, Blocks(at)) / part.expected; };
  const auto doubtful = [&](double rate) {
    const double change = rate - hit_rate();
    const double beyond_lru = change - (lru(factor) - lru(1));
    const double of_sample =
        counts_.rate < 1 ? std::max(0.0, std::abs(beyond_lru) - kSureBeyondLru) : 0;
    const double doubt = std::hypot(kSimulationDoubt, kDoubtOfChange * change, excess / 2);
    return Guess{.hit_rate = std::clamp(rate, 0.0, 1.0), .doubt = std::hypot(doubt, of_sample)};
  };
  const size_t next = static_cast<size_t>(
      std::lower_bound(kFactors.begin(), kFactors.end(), factor) - kFactors.begin());
  if (next == kFactors.size()) {
    const double last = kFactors.back(), lru_last = lru(last);
    const double left = part.all / part.expected - lru_last;
    const double simulated_lru = part.simulated_hits.back() / part.expected;
    const double closed = left > 0 ? std::min(1.0, (simulated_lru - lru_last) / left) : 0;
    return doubtful(simulated.back() + (lru(factor) - lru_last) * (1 - closed));
  }
  const double end = simulated[next], begin = next == 0 ? 0 : simulated[next - 1];
  const double begin_factor = next == 0 ? 0 : kFactors[next - 1];
  // Where the curve of LRU is flat, a straight line takes its place.
  const auto shape = [&](double at) { return lru(at) + kStraight * at; };
  const double share =
      (shape(factor) - shape(begin_factor)) / (shape(kFactors[next]) - shape(begin_factor));
  return doubtful(begin + share * (end - begin));
}

HitRateCurve::Guess HitRateCurve::GuessByRules(const Part& part, double factor) const {
  const double now = Blocks(1);
  const double lru_now = Below(part.by_distance, now);
  const auto rate_with = [&](double gain) {  // In lookups of the part.
    return std::clamp(hit_rate() + gain / part.expected, 0.0, 1.0);
  };
  const double lru_then = Below(part.by_distance, now * factor);
  const double left_now = part.all - lru_now;
  const double closed = left_now > 0 ? (part.hits - lru_now) / left_now : 0;
  const double by_share = rate_with((lru_then - lru_now) * (1 - closed));
  const bool hits_more = part.hits > lru_now;
  const double acts_as = ActsAs(part, now, lru_now);
  const double acts_then = hits_more ? factor * acts_as : factor * now - (now - acts_as);
  const double by_size = rate_with(Below(part.by_distance, acts_then) - part.hits);
  return {.hit_rate = hits_more && factor > 1 ? by_share : (by_share + by_size) / 2,
          .doubt = std::abs(by_share - by_size) / 2};
}

HitRateCurve::Estimate HitRateCurve::At(double factor) const {
  const Guess guess = GuessFrom(whole_, std::min(factor, kMaxFactor));
  if (factor == 1) return {.hit_rate = hit_rate()};
  std::array<double, ReuseCounts::kGroups> without;
  double mean = 0;
  for (size_t g = 0; g < without.size(); ++g) {
    without[g] = GuessFrom(parts_[g], std::min(factor, kMaxFactor)).hit_rate;
    mean += without[g] / ReuseCounts::kGroups;
  }
  double squares = 0;
  for (const double value : without) squares += (value - mean) * (value - mean);
  constexpr double kGroups = ReuseCounts::kGroups;
  const double spread = kStudent * std::sqrt(squares * (kGroups - 1) / kGroups);
  return {.hit_rate = guess.hit_rate,
          .error = std::min(1.0, std::hypot(spread, guess.doubt, kFewLookups / expected_))};
}

std::string HitRateCurve::WhyUnavailable() const {
  if (available()) return "";
  if (counts_.rate == 0) {
    return "a sliding window has no curve, because its hits depend on more than single blocks";
  }
  constexpr int kNeeded = static_cast<int>(kMinSampledLookups);
  return absl::StrCat("too little traffic: ", static_cast<int>(expected_), " of the ", kNeeded,
                      " blocks that the sample needs were looked up");
}

double HitRateCurve::known_factor() const {
  return std::min(kMaxFactor, counts_.known_blocks / static_cast<double>(counts_.capacity_blocks));
}

double HitRateCurve::GainEnd() const {
  constexpr int kStepsPerDoubling = 16;
  const double end = GuessFrom(whole_, kMaxFactor).hit_rate;
  for (int step = 0; step <= 4 * kStepsPerDoubling; ++step) {
    const double factor = std::exp2(static_cast<double>(step) / kStepsPerDoubling);
    if (end - GuessFrom(whole_, factor).hit_rate >= kSmallGain) continue;
    // The curve is flat beyond the blocks that were seen, whatever comes.
    return known_factor() == kMaxFactor || known_factor() >= 2 * factor ? factor : 0;
  }
  return 0;
}

}  // namespace pagoda
