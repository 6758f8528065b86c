// ReuseSample beside its definition, step by step.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "manager/policy/reuse_sample.h"
#include "tests/manager/policy/naive_reuse_sample.h"

namespace pagoda {
namespace {

BlockHash Content(uint64_t number) {
  std::mt19937_64 hash(number);
  return BlockHash{hash() | 1};
}

void ExpectSameCounts(const ReuseSample& sample, const NaiveReuseSample& naive) {
  const ReuseTable learned = sample.Learned();
  const ReuseIndex::CountTable counts = naive.index.counts();
  EXPECT_EQ(learned.shift, naive.shift);
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    for (uint32_t bin = 0; bin < ReuseIndex::kBins; ++bin) {
      const ReuseIndex::Counts& expected = counts[c][bin];
      ASSERT_EQ(learned.counts[c][bin].reached, expected.reached) << "class " << c << " " << bin;
      ASSERT_EQ(learned.counts[c][bin].reused, expected.reused) << "class " << c << " " << bin;
      ASSERT_EQ(sample.index().at(c, bin), naive.index.at(c, bin)) << "class " << c << " " << bin;
    }
  }
}

// What the requests do.
struct Stream {
  uint32_t capacity;
  uint32_t hot;          // Contents that come again and again.
  uint32_t hot_percent;  // Accesses to hot contents. Other contents are new, or come back later.
  uint32_t reclass_percent;
  uint32_t accesses;
};

// Returns how often the trust changed.
int Compare(const Stream& stream, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t end) { return random() % end; };
  ReuseSample sample(stream.capacity);
  NaiveReuseSample naive(stream.capacity);
  std::vector<uint64_t> recent;
  uint64_t next = 1'000'000;
  int changes = 0;
  bool trusted = true;
  for (uint32_t i = 0; i < stream.accesses; ++i) {
    // In every other phase the classes say the opposite, so that the trust is lost.
    const uint32_t phase = i / (stream.accesses / 4);
    uint64_t number = 0;
    bool comes_back = true;
    if (below(100) < stream.hot_percent) {
      number = below(stream.hot);
    } else if (recent.size() > 20 && below(3) == 0) {
      number = recent[recent.size() - 1 - below(std::min<size_t>(recent.size(), 600))];
    } else {
      number = next++;
      comes_back = false;
      recent.push_back(number);
    }
    const uint32_t reuse_class =
        below(4) == 0 ? static_cast<uint32_t>(below(ReuseClass::kCount))
                      : (comes_back == (phase % 2 == 0) ? 0 : ReuseClass::kCount - 1);
    const BlockHash content = below(50) == 0 ? BlockHash{} : Content(number);
    sample.Accessed(content, reuse_class);
    naive.Accessed(content, reuse_class);
    if (below(100) < stream.reclass_percent) {
      const BlockHash other =
          below(2) == 0 || recent.empty() ? content : Content(recent[below(recent.size())]);
      const auto to = static_cast<uint32_t>(below(ReuseClass::kCount));
      sample.Reclassify(other, to);
      naive.Reclassify(other, to);
    }
    if (below(10) == 0) {
      const uint64_t held = below(stream.capacity + 10);
      sample.Ended(held);
      naive.Ended(held);
    }
    // Where the sums are at the limit, the last digit decides.
    if (std::abs(naive.last_margin) < 1e-3) naive.trusts = sample.trusts_index();
    EXPECT_EQ(sample.trusts_index(), naive.trusts) << "access " << i;
    if (naive.has_learned || i % 97 == 0) {
      ExpectSameCounts(sample, naive);
      EXPECT_NEAR(sample.Learned().lead, naive.lead, 0.01) << "access " << i;
      EXPECT_NEAR(sample.Learned().variance, naive.variance, 0.05) << "access " << i;
    }
    if (testing::Test::HasFailure()) break;
    changes += naive.trusts != trusted;
    trusted = naive.trusts;
  }
  return changes;
}

TEST(ReuseSampleModelTest, ASmallCacheEqualsItsDefinition) {
  int changes = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    for (const uint32_t capacity : {0u, 1u, 2u, 7u, 24u}) {
      changes += Compare({.capacity = capacity,
                          .hot = 1 + capacity * static_cast<uint32_t>(seed),
                          .hot_percent = 40,
                          .reclass_percent = 20,
                          .accesses = 4'000},
                         seed);
      ASSERT_FALSE(HasFailure()) << "seed " << seed << " capacity " << capacity;
    }
  }
  EXPECT_GT(changes, 4) << "the trust is lost and comes back";
}

// Its share of the sample is more than half of the most.
TEST(ReuseSampleModelTest, ASampleOfALargeCacheEqualsItsDefinition) {
  for (uint64_t seed = 0; seed < 2; ++seed) {
    Compare({.capacity = 4'800,
             .hot = 9'000,
             .hot_percent = 60,
             .reclass_percent = 10,
             .accesses = 120'000},
            seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pagoda
