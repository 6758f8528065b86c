#include "manager/policy/reuse_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace pagoda {
namespace {

constexpr uint32_t kBins = ReuseIndex::kBins;
constexpr uint32_t kOnce = ReuseClass::Of(0, ContentKind::kPrompt);
constexpr uint32_t kOften = ReuseClass::Of(3, ContentKind::kPrompt);

TEST(ReuseClassTest, ItsPartsAreWhatItWasMadeOf) {
  uint32_t expected = 0;
  for (uint32_t uses = 0; uses < ReuseClass::kUses; ++uses) {
    for (const ContentKind kind : {ContentKind::kPrompt, ContentKind::kReply, ContentKind::kLast}) {
      const uint32_t c = ReuseClass::Of(uses, kind);
      EXPECT_EQ(c, expected++);
      EXPECT_EQ(ReuseClass::UsesOf(c), uses);
      EXPECT_EQ(ReuseClass::KindOf(c), static_cast<uint32_t>(kind));
    }
  }
  EXPECT_EQ(expected, ReuseClass::kCount);
}

TEST(ReuseIndexTest, BinsFollowEachOtherWithoutAGap) {
  for (uint32_t bin = 0; bin < kBins; ++bin) {
    const uint64_t start = ReuseIndex::StartOf(bin);
    EXPECT_EQ(ReuseIndex::BinOf(start), bin);
    if (bin > 0) {
      EXPECT_EQ(ReuseIndex::BinOf(start - 1), bin - 1);
    }
  }
  EXPECT_EQ(ReuseIndex::BinOf(0), 0u);
  EXPECT_EQ(ReuseIndex::BinOf(~uint64_t{0} >> 1), kBins - 1);
}

TEST(ReuseIndexTest, AtFirstEveryClassIsInTheOrderOfLru) {
  const ReuseIndex index;
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    for (uint32_t bin = 0; bin + 1 < kBins; ++bin) {
      EXPECT_GT(index.at(c, bin), index.at(c, bin + 1)) << "bin " << bin;
      EXPECT_EQ(index.at(c, bin), index.at(kOnce, bin));
    }
  }
}

// By its definition: the best of all times to stop.
float NaiveIndex(const ReuseIndex::Chances& chances, uint32_t bin) {
  double survives = 1, hits = 0, time = 0, best = 0;
  for (uint32_t k = bin; k < kBins; ++k) {
    const double width =
        k + 1 == kBins ? static_cast<double>(ReuseIndex::StartOf(k))
                       : static_cast<double>(ReuseIndex::StartOf(k + 1) - ReuseIndex::StartOf(k));
    hits += survives * chances[k];
    time += survives * width * (1 - chances[k] / 2);
    survives *= 1 - chances[k];
    best = std::max(best, hits / time);
  }
  return static_cast<float>(best);
}

TEST(ReuseIndexTest, TheIndexIsTheBestRatioOverAllTimesToStop) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    ReuseIndex::Chances chances;
    for (float& chance : chances) {
      chance = round % 2 == 0 ? static_cast<float>(random() % 900) / 1000
                              : (random() % 8 == 0 ? 0.5F : 0.0001F);
    }
    const auto index = ReuseIndex::IndexOf(chances);
    for (uint32_t bin = 0; bin < kBins; ++bin) {
      const float expected = NaiveIndex(chances, bin);
      EXPECT_NEAR(index[bin], expected, expected * 1e-4) << "round " << round << " bin " << bin;
    }
  }
}

// Blocks that are used again at some age are worth keeping until then.
TEST(ReuseIndexTest, AWaitBeforeTheReuseDoesNotLowerTheIndex) {
  ReuseIndex::Chances chances = {};
  chances[30] = 0.9F;
  const auto index = ReuseIndex::IndexOf(chances);
  for (uint32_t bin = 0; bin < 30; ++bin) EXPECT_LT(index[bin], index[bin + 1]);
  EXPECT_EQ(index[31], 0);
}

// `count` blocks of a class reach the bins up to `bin`; `reused` of them are used again there.
void Observe(ReuseIndex& index, uint32_t c, uint32_t bin, int count, int reused) {
  for (int i = 0; i < count; ++i) index.Reached(c, 0, bin);
  for (int i = 0; i < reused; ++i) index.Reused(c, bin);
}

TEST(ReuseIndexTest, AClassThatIsUsedAgainIsWorthMoreAtEveryAge) {
  ReuseIndex index;
  Observe(index, kOnce, 20, 2'000, 20);
  Observe(index, kOften, 20, 2'000, 1'500);
  index.Rebuild();
  for (uint32_t bin = 0; bin <= 20; ++bin) EXPECT_GT(index.at(kOften, bin), index.at(kOnce, bin));
  // A class that was never seen shares its kind with one and its uses with the other.
  const uint32_t reply = ReuseClass::Of(3, ContentKind::kReply);
  EXPECT_GT(index.at(reply, 10), index.at(ReuseClass::Of(0, ContentKind::kReply), 10));
}

// No block has been seen as old as that, so none is known to come back.
TEST(ReuseIndexTest, AnAgeBeyondAllThatWereSeenIsWorthLittle) {
  ReuseIndex index;
  constexpr uint32_t kSeen = 20;
  for (uint32_t bin = 0; bin < kSeen; ++bin) {
    for (int i = 0; i < 1'000; ++i) {
      index.Reached(kOften, bin, bin);
      if (i % 2 == 0) index.Reused(kOften, bin);
      index.Reached(kOnce, bin, bin);
    }
  }
  index.Rebuild();
  for (uint32_t bin = 1; bin + kSeen < kBins; ++bin) {
    EXPECT_LT(index.at(kOften, kSeen + bin), index.at(kOften, kSeen + bin - 1));
  }
  EXPECT_LT(index.at(kOften, kSeen + 12), index.at(kOnce, kSeen - 1))
      << "the class that is used again most, at sixteen times the age";
}

TEST(ReuseIndexTest, WhatWasLearnedIsForgottenInTime) {
  ReuseIndex index;
  Observe(index, kOnce, 20, 2'000, 20);
  Observe(index, kOften, 20, 2'000, 1'500);
  index.Rebuild();
  // From now on it is the other way round.
  int rebuilds = 0;
  while (index.at(kOften, 10) >= index.at(kOnce, 10)) {
    Observe(index, kOnce, 20, 50, 37);
    Observe(index, kOften, 20, 50, 1);
    index.Rebuild();
    ASSERT_LT(++rebuilds, 200);
  }
  EXPECT_GT(rebuilds, 2);
}

TEST(ReuseIndexTest, ABlockThatChangesItsClassCountsInOne) {
  ReuseIndex moved, direct;
  for (int i = 0; i < 500; ++i) {
    moved.Reached(kOnce, 0, 0);
    moved.Reclassified(kOnce, kOften, 0);
    direct.Reached(kOften, 0, 0);
    moved.Reused(kOften, 0);
    direct.Reused(kOften, 0);
  }
  moved.Rebuild();
  direct.Rebuild();
  for (uint32_t bin = 0; bin < kBins; ++bin) {
    EXPECT_EQ(moved.at(kOnce, bin), direct.at(kOnce, bin));
    EXPECT_EQ(moved.at(kOften, bin), direct.at(kOften, bin));
  }
}

}  // namespace
}  // namespace pagoda
