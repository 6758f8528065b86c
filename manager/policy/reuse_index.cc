#include "manager/policy/reuse_index.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace pagoda {
namespace {

constexpr uint32_t kBins = ReuseIndex::kBins;
constexpr std::array<float, kBins> MakeWidths() {
  std::array<float, kBins> widths = {};
  for (uint32_t bin = 0; bin + 1 < kBins; ++bin) {
    widths[bin] = static_cast<float>(ReuseIndex::StartOf(bin + 1) - ReuseIndex::StartOf(bin));
  }
  widths[kBins - 1] = static_cast<float>(ReuseIndex::StartOf(kBins - 1));
  return widths;
}
constexpr std::array<float, kBins> kWidths = MakeWidths();

// What little was seen is mixed with a hazard that falls as 1 / age: the same chance in each bin.
// The first bin is wider. This is the order of LRU.
constexpr float kPriorChance = 0.07F;
constexpr float kFirstPriorChance = 0.3F;
// The prior counts as much as so many observations in each bin, and what all classes together tell
// as much as so many of one class: a hundred give a chance to within 3 to 5 points.
constexpr float kPriorReached = 32;
constexpr float kPooledReached = 100;
// The pseudo-reuses that are added to a feature's observed and expected reuses. They keep its
// factor near 1 until it has about as many reuses of its own, whose relative error is 18 %.
constexpr float kPseudoReuses = 30;
constexpr float kLeastFactor = 0.05F;
constexpr float kMostFactor = 20;
constexpr float kMostChance = 0.9F;
constexpr int kFittingRounds = 3;
constexpr float kKeep = 0.98923F;  // 2^(-1/64).

// Numbers that fade for ever become slow.
float Faded(float count) { return count < 1e-3F ? 0 : count * kKeep; }

}  // namespace

ReuseIndex::ReuseIndex() { Rebuild(); }

ReuseIndex::CountTable ReuseIndex::counts() const {
  CountTable counts = counts_;
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    int32_t reached = 0;
    for (uint32_t k = 0; k < kBins; ++k) {
      reached += reached_changes_[c][k];
      float& count = counts[c][k].reached;
      count = std::max(0.0F, count + static_cast<float>(reached));
    }
  }
  return counts;
}

void ReuseIndex::Rebuild() {
  counts_ = counts();
  reached_changes_ = {};
  const Chances pooled = PooledChances();
  const std::array<float, ReuseClass::kCount> factors = Factors(pooled);
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    Chances chances;
    for (uint32_t k = 0; k < kBins; ++k) {
      const Counts seen = Smoothed(counts_[c], k);
      const float expected = std::min(kMostChance, pooled[k] * factors[c]);
      chances[k] = std::min(
          kMostChance, (seen.reused + expected * kPooledReached) / (seen.reached + kPooledReached));
    }
    index_[c] = IndexOf(chances);
  }
  for (auto& of_class : counts_) {
    for (Counts& counts : of_class) {
      counts.reached = Faded(counts.reached);
      counts.reused = Faded(counts.reused);
    }
  }
}

// Each neighbour counts half.
ReuseIndex::Counts ReuseIndex::Smoothed(const std::array<Counts, kBins>& counts, uint32_t bin) {
  const Counts& below = counts[bin == 0 ? 0 : bin - 1];
  const Counts& above = counts[std::min(bin + 1, kBins - 1)];
  return {.reached = below.reached / 2 + counts[bin].reached + above.reached / 2,
          .reused = below.reused / 2 + counts[bin].reused + above.reused / 2};
}

// The reuse chances of all classes together. At ages that hardly any block has reached, there is no
// evidence, and few blocks are reused so late. So the chances of those ages halve with each bin.
ReuseIndex::Chances ReuseIndex::PooledChances() const {
  std::array<Counts, kBins> sums = {};
  for (const auto& of_class : counts_) {
    for (uint32_t k = 0; k < kBins; ++k) {
      sums[k].reached += of_class[k].reached;
      sums[k].reused += of_class[k].reused;
    }
  }
  uint32_t observed = kBins;
  while (observed > 1 && sums[observed - 1].reached < kPriorReached) --observed;
  Chances chances;
  for (uint32_t k = 0; k < kBins; ++k) {
    const Counts seen = Smoothed(sums, k);
    const float prior = k == 0 ? kFirstPriorChance : kPriorChance;
    chances[k] = k < observed ? std::min(kMostChance, (seen.reused + prior * kPriorReached) /
                                                          (seen.reached + kPriorReached))
                              : std::min(prior, chances[k - 1]) / 2;
  }
  return chances;
}

// How much likelier a class is to be used again than all together: a product of one factor for
// each feature, by iterative proportional fitting. A class that was hardly seen still gets the
// factors of its features.
std::array<float, ReuseClass::kCount> ReuseIndex::Factors(const Chances& pooled) const {
  std::array<float, ReuseClass::kCount> observed = {};
  std::array<float, ReuseClass::kCount> expected = {};
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    for (uint32_t k = 0; k < kBins; ++k) {
      observed[c] += counts_[c][k].reused;
      expected[c] += counts_[c][k].reached * pooled[k];
    }
  }
  std::array<float, ReuseClass::kCount> factors;
  factors.fill(1);
  const auto fit = [&]<uint32_t kValues>(uint32_t (*value_of)(uint32_t)) {
    std::array<float, kValues> seen = {};
    std::array<float, kValues> fitted = {};
    for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
      seen[value_of(c)] += observed[c];
      fitted[value_of(c)] += expected[c] * factors[c];
    }
    for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
      const uint32_t v = value_of(c);
      factors[c] = std::clamp(factors[c] * (seen[v] + kPseudoReuses) / (fitted[v] + kPseudoReuses),
                              kLeastFactor, kMostFactor);
    }
  };
  for (int round = 0; round < kFittingRounds; ++round) {
    fit.operator()<ReuseClass::kUses>(&ReuseClass::UsesOf);
    fit.operator()<ReuseClass::kKinds>(&ReuseClass::KindOf);
  }
  return factors;
}

// G(a) = max over T > a of sum(S(k) q(k)) / sum(S(k) w(k) (1 - q(k) / 2)) for k in [a, T), where
// q is the chance of bin k, w its width, and S the chance to reach it from a.
//
// From the last bin to the first, `runs` holds the bins behind `a` in runs of falling ratios. The
// best T for `a` lies behind all runs whose ratio is above that of what lies before them.
std::array<float, kBins> ReuseIndex::IndexOf(const Chances& chances) {
  struct Run {
    float hits;
    float time;
    float survives;
  };
  std::array<float, kBins> index;
  std::array<Run, kBins> runs;
  uint32_t size = 0;
  for (uint32_t a = kBins; a-- > 0;) {
    const float chance = chances[a];
    Run run = {.hits = chance, .time = kWidths[a] * (1 - chance / 2), .survives = 1 - chance};
    while (size > 0 && runs[size - 1].hits * run.time > run.hits * runs[size - 1].time) {
      const Run& next = runs[--size];
      run.hits += run.survives * next.hits;
      run.time += run.survives * next.time;
      run.survives *= next.survives;
    }
    runs[size++] = run;
    index[a] = run.hits / run.time;
  }
  return index;
}

}  // namespace pagoda
