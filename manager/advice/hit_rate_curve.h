// The hit rate that a cache would have with more or less memory.
#ifndef PAGODA_MANAGER_ADVICE_HIT_RATE_CURVE_H_
#define PAGODA_MANAGER_ADVICE_HIT_RATE_CURVE_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace pagoda {

// The counts of ReuseDistances, which samples the blocks of a window by a hash of their content.
// All but the last four fields forget old lookups: see ReuseDistances.
//
// A sampled block at which a request looks counts by its distance: how many other sampled blocks
// were used more recently. The distances are in buckets: up to 32 one for each distance, then 16
// for each doubling.
struct ReuseCounts {
  static constexpr size_t kGroups = 8;
  static constexpr size_t kBuckets = 192;
  // The first distance beyond the last bucket.
  static constexpr uint32_t kMaxDistance = 1 << 15;

  static constexpr size_t BucketOf(uint32_t distance) {
    if (distance < 32) return distance;
    const auto octave = static_cast<uint32_t>(std::bit_width(distance)) - 6;
    return 32 + octave * 16 + (distance >> (octave + 1) & 15);
  }
  // The first distance of a bucket; kMaxDistance for kBuckets.
  static constexpr uint32_t BeginOf(size_t bucket) {
    if (bucket < 32) return static_cast<uint32_t>(bucket);
    const size_t octave = (bucket - 32) / 16;
    return static_cast<uint32_t>((16 + (bucket - 32) % 16) << (octave + 1));
  }

  // The multiples of today's capacity at which small caches run the sample under the policy; the
  // second one is today's.
  static constexpr size_t kSimulated = 4;
  static constexpr std::array<double, kSimulated> kSimulatedFactors = {0.5, 1, 2, 4};
  static constexpr size_t kToday = 1;
  static_assert(kSimulatedFactors[kToday] == 1);

  // A part of the sample, chosen by the hash. The spread of the groups shows the sampling error.
  struct Group {
    std::array<double, kBuckets> by_distance = {};
    std::array<double, kSimulated> simulated_hits = {};
    double hits = 0;  // Those of the lookups, in any bucket or in none, that the cache answered.
  };
  std::array<Group, kGroups> groups;
  // Over all blocks, in the sample or not.
  double lookups = 0;
  double hits = 0;
  double seconds = 0;  // The time in which they came.

  bool is_simulated = false;     // There are simulated_hits.
  double rate = 0;               // The part of the blocks that is in the sample. 0: there is none.
  uint64_t capacity_blocks = 0;  // The cache's capacity over all tiers.
  // The cache would have had to be this large before the sample could tell about evictions.
  double known_blocks = 0;
  uint64_t requests = 0;
  absl::Duration observed;  // From the first request to the last one.
};

// Estimates hit rates, in whole blocks of prompts, at multiples of today's capacity. Over all tiers
// together, because with LRU the tiers of a ladder have as many hits as one tier of their total
// size.
//
// The curve of an LRU cache follows from the distances alone (Mattson et al., "Evaluation
// techniques for storage hierarchies", 1970), and a sample of the blocks with scaled distances is
// enough (Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015). As in
// SHARDS-adj counts are divided by the expected size of the sample, not by the actual one: a
// popular block that is or is not in the sample then moves no difference between two capacities.
//
// The estimate begins with the measured hit rate and adds the difference between the two
// capacities. So it is exact at factor 1.
//
// With another policy the difference is that of the simulated caches, at their factors (see
// PolicySimulation). If today's one hits more than the cache did, or less, that can be so at other
// capacities too, or not. The estimate is the mean of both, and half the excess is part of the
// error. Between two factors the estimate rises as the curve of LRU does there. Beyond the largest
// one, rule 1 below applies to that one.
//
// Without simulated caches the difference is that of the curve of LRU. The cache is not an LRU
// cache of its nominal size: blocks that are not published yet take memory too. The sample tells
// its hits and those of the curve. Two rules carry the difference to another capacity:
// 1. The same share of the distance between the LRU curve and the curve's end is closed or lost.
// 2. The cache acts as a larger LRU cache, by the same factor; or as a smaller one, by the same
// number of blocks.
// The estimate is the mean of both. Only a cache that hits more follows rule 1 alone at larger
// capacities: rule 2 promises too much there, because all policies meet in a cache that is large
// enough. Half the difference of the rules is part of the error. manager/BENCHMARKS.md compares the
// estimates with full replays.
//
// Thread-compatible. Cost: At() adds up the buckets of each group; some 20 microseconds.
class HitRateCurve {
 public:
  // The capacities that the sample covers.
  static constexpr double kMaxFactor = 16;
  // With fewer lookups in the sample there is no curve.
  static constexpr double kMinSampledLookups = 100;
  // The factors for a quick look.
  static constexpr double kShownFactors[] = {0.5, 1, 2, 4, 8};
  // A gain below this is not worth memory.
  static constexpr double kSmallGain = 0.005;

  struct Estimate {
    double hit_rate = 0;
    // Half the width of the 95 % confidence interval: 19 of 20 samples give a hit rate so close to
    // that of all blocks. It is estimated by the jackknife over the groups of the sample. It
    // includes the error of the rules or of the simulated caches.
    double error = 0;
  };

  // `counts` outlives the curve.
  explicit HitRateCurve(const ReuseCounts* counts);

  // Whether the sample is large enough. The rest requires it.
  bool available() const { return expected_ >= kMinSampledLookups; }
  // A sentence for people. Empty: it is available.
  std::string WhyUnavailable() const;
  double hit_rate() const { return counts_.hits / counts_.lookups; }
  double lookups_per_hour() const {
    return counts_.seconds > 0 ? counts_.lookups / counts_.seconds * 3600 : 0;
  }
  // The estimate for a cache with `factor` times today's blocks. A larger factor than kMaxFactor
  // counts as kMaxFactor.
  Estimate At(double factor) const;
  // Up to this factor enough distinct blocks were seen.
  double known_factor() const;
  // The smallest factor from 1 on after which the curve rises by less than kSmallGain. 0: there is
  // none that is known.
  double GainEnd() const;

 private:
  // The sample, or all of it but one group.
  struct Part {
    std::array<double, ReuseCounts::kBuckets> by_distance = {};
    std::array<double, ReuseCounts::kSimulated> simulated_hits = {};
    double all = 0;  // By any distance.
    double hits = 0;
    double expected = 0;  // Lookups in it.
  };
  Part Without(size_t group) const;
  struct Guess {
    double hit_rate = 0;
    double doubt = 0;
  };
  double ActsAs(const Part& part, double now, double lru_now) const;
  double Blocks(double factor) const;
  Guess GuessFrom(const Part& part, double factor) const;
  Guess GuessByRules(const Part& part, double factor) const;
  Guess GuessBySimulation(const Part& part, double factor) const;

  const ReuseCounts& counts_;
  Part whole_;
  std::array<Part, ReuseCounts::kGroups> parts_;
  double expected_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_ADVICE_HIT_RATE_CURVE_H_
