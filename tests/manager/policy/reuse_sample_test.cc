#include "manager/policy/reuse_sample.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace pagoda {
namespace {

constexpr uint32_t kOnce = ReuseClass::Of(0, ContentKind::kPrompt);
constexpr uint32_t kAgain = ReuseClass::Of(1, ContentKind::kPrompt);
constexpr uint32_t kReply = ReuseClass::Of(0, ContentKind::kReply);

BlockHash Content(uint64_t number) {
  std::mt19937_64 hash(number);
  return BlockHash{hash() | 1};
}

// Two of each ten contents are used again, `distance` new contents later. The others are scanned.
// If `told`, contents that will be used again have a class of their own.
void RunScans(ReuseSample& sample, uint64_t first, uint64_t count, uint64_t distance, bool told) {
  for (uint64_t i = first; i < first + count; ++i) {
    const bool comes_back = i % 10 < 2;
    sample.Accessed(Content(i), told && comes_back ? kReply : kOnce);
    if (i < distance || (i - distance) % 10 >= 2) continue;
    sample.Accessed(Content(i - distance), kAgain);
  }
}

TEST(ReuseSampleTest, TheClassThatComesBackBecomesWorthMore) {
  ReuseSample sample(200);
  EXPECT_EQ(sample.index().at(kReply, sample.BinOf(100)),
            sample.index().at(kOnce, sample.BinOf(100)));
  RunScans(sample, 0, 5'000, 400, true);
  EXPECT_GT(sample.index().at(kReply, sample.BinOf(100)),
            5 * sample.index().at(kOnce, sample.BinOf(100)));
  EXPECT_TRUE(sample.trusts_index());
}

TEST(ReuseSampleTest, ALargeCacheLearnsTheSameFromASampleOfItsContents) {
  ReuseSample sample(200'000);
  RunScans(sample, 0, 2'000'000, 400'000, true);
  EXPECT_GT(sample.index().at(kReply, sample.BinOf(100'000)),
            5 * sample.index().at(kOnce, sample.BinOf(100'000)));
}

TEST(ReuseSampleTest, TheClockCountsAllAccesses) {
  ReuseSample sample(1'000'000);
  for (uint64_t i = 0; i < 1'000; ++i) sample.Accessed(Content(i), kOnce);
  sample.Accessed(BlockHash{}, kOnce);
  EXPECT_EQ(sample.now(), 1'001u);
}

// The index learns that replies come back, later than LRU keeps them. Then they do not come back
// any more, and prompts do instead, within the reach of LRU.
TEST(ReuseSampleTest, AnIndexEarnsTheTrustAndLosesItWhenItFallsBehind) {
  ReuseSample sample(500);
  EXPECT_FALSE(sample.trusts_index()) << "it has shown nothing yet";
  RunScans(sample, 0, 20'000, 1'000, true);
  EXPECT_TRUE(sample.trusts_index());
  std::mt19937_64 random(1);
  uint64_t next = 1'000'000;
  std::vector<uint64_t> recent;
  bool lost = false;
  for (int i = 0; i < 5'000; ++i) {
    sample.Accessed(Content(++next), kReply);
    recent.push_back(++next);
    sample.Accessed(Content(next), kOnce);
    if (recent.size() > 150) {
      sample.Accessed(Content(recent[recent.size() - 150 + random() % 50]), kOnce);
    }
    lost |= !sample.trusts_index();
  }
  EXPECT_TRUE(lost) << "LRU was better for a while";
  RunScans(sample, 2'000'000, 40'000, 1'000, true);
  EXPECT_TRUE(sample.trusts_index());
}

// Contents come back so soon that both shadows always hit: there is nothing to win.
TEST(ReuseSampleTest, AnIndexThatIsOnlyAsGoodAsLruIsNotTrusted) {
  ReuseSample sample(100);
  for (uint64_t i = 0; i < 20'000; ++i) {
    sample.Accessed(Content(i % 50), i < 50 ? kOnce : kAgain);
    ASSERT_FALSE(sample.trusts_index());
  }
}

TEST(ReuseSampleTest, TheSameAccessesTeachTheSame) {
  ReuseSample one(300), other(300);
  RunScans(one, 0, 3'000, 500, true);
  RunScans(other, 0, 3'000, 500, true);
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    for (uint32_t bin = 0; bin < ReuseIndex::kBins; ++bin) {
      ASSERT_EQ(one.index().at(c, bin), other.index().at(c, bin));
    }
  }
}

// --- The next run of the daemon ---

TEST(ReuseSampleTest, ATableThatWasTakenOverIsWorthTheSameAtOnce) {
  ReuseSample sample(200);
  RunScans(sample, 0, 5'000, 400, true);
  ReuseSample next(200);
  next.Restore(sample.Learned());
  ReuseIndex expected;
  expected.Restore(sample.Learned().counts);
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    for (uint32_t bin = 0; bin < ReuseIndex::kBins; ++bin) {
      ASSERT_EQ(next.index().at(c, bin), expected.at(c, bin));
    }
  }
  EXPECT_GT(next.index().at(kReply, next.BinOf(100)), 5 * next.index().at(kOnce, next.BinOf(100)));
  EXPECT_EQ(next.now(), 0u);
}

// An index counts hits for a step of the sample's clock, which is four times as long there.
TEST(ReuseSampleTest, ACacheOfAnotherSizeTakesATableOver) {
  ReuseSample sample(8'000);
  RunScans(sample, 0, 240'000, 16'000, true);
  for (const uint32_t capacity : {2'000u, 32'000u}) {
    ReuseSample other(capacity);
    other.Restore(sample.Learned());
    const float longer = static_cast<float>(capacity) / 8'000;
    for (const uint64_t age : {2'000u, 4'000u, 8'000u, 16'000u, 32'000u}) {
      for (const uint32_t c : {kOnce, kReply}) {
        const float index = sample.index().at(c, sample.BinOf(age));
        EXPECT_NEAR(other.index().at(c, other.BinOf(age)), longer * index, longer * index / 5)
            << "class " << c << " at " << age << " of " << capacity;
      }
    }
  }
}

TEST(ReuseSampleTest, ALostTrustIsTakenOver) {
  ReuseTable table{.lead = -100, .variance = 900, .trusts_index = false};
  ReuseSample sample(100);
  sample.Restore(table);
  EXPECT_FALSE(sample.trusts_index());
  sample.Accessed(Content(1), kOnce);
  EXPECT_FALSE(sample.trusts_index()) << "it is far behind";
  const ReuseTable next = sample.Learned();
  EXPECT_NEAR(next.lead, -100, 1);
  EXPECT_NEAR(next.variance, 900, 3);
  EXPECT_FALSE(next.trusts_index);
}

TEST(ReuseSampleTest, ATinyCacheIsNoSpecialCase) {
  for (const uint32_t capacity : {0u, 1u, 2u, 5u}) {
    ReuseSample sample(capacity);
    std::mt19937_64 random(capacity);
    for (int i = 0; i < 20'000; ++i) {
      const BlockHash content = Content(random() % 40);
      sample.Accessed(content, static_cast<uint32_t>(random() % ReuseClass::kCount));
      if (i % 3 == 0) {
        sample.Reclassify(content, static_cast<uint32_t>(random() % ReuseClass::kCount));
      }
    }
    EXPECT_EQ(sample.now(), 20'000u);
  }
}

}  // namespace
}  // namespace pagoda
