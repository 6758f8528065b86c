// Estimates of hit rates beside full replays with more and less memory.
#include "manager/advice/hit_rate_curve.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/advice/block_trace.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

// In percentage points.
double Points(double share) { return 100 * share; }

// A cache of 1,000 blocks follows every block, so the curve is that of all blocks.
TEST(HitRateCurveTest, WithoutSamplingItIsTheCurveOfLru) {
  const std::vector<BlockPrompt> trace = Conversations(1, 1200);
  const TraceResult now = RunTrace(trace, {.tier_blocks = {1000}});
  ASSERT_EQ(now.counts.rate, 1);
  const HitRateCurve curve(&now.counts);
  ASSERT_TRUE(curve.available());
  EXPECT_EQ(curve.At(1).hit_rate, curve.hit_rate());
  EXPECT_EQ(curve.At(1).error, 0);
  for (const double factor : {0.5, 2.0, 4.0}) {
    const auto blocks = static_cast<uint32_t>(1000 * factor);
    const TraceResult then = RunTrace(trace, {.tier_blocks = {blocks}});
    EXPECT_NEAR(Points(curve.At(factor).hit_rate), Points(then.hit_rate), 1.5) << factor;
    EXPECT_GT(std::abs(then.hit_rate - now.hit_rate), 0.04) << "the trace tells capacities apart";
  }
}

TEST(HitRateCurveTest, ASampleIsWithinOneAndAHalfPoints) {
  const std::vector<BlockPrompt> trace = Conversations(2, 12'000);
  for (const char* policy : {"lru", "learned"}) {
    const TraceResult now = RunTrace(trace, {.tier_blocks = {10'000}, .policy = policy});
    ASSERT_LT(now.counts.rate, 0.11);
    const HitRateCurve curve(&now.counts);
    for (const double factor : {0.5, 2.0, 4.0}) {
      const TraceResult then =
          RunTrace(trace, {.tier_blocks = {static_cast<uint32_t>(10'000 * factor)},
                           .policy = policy,
                           .samples = 0});
      const HitRateCurve::Estimate estimate = curve.At(factor);
      EXPECT_NEAR(Points(estimate.hit_rate), Points(then.hit_rate), 1.5) << policy << factor;
      EXPECT_GT(estimate.error, 0);
      EXPECT_LT(Points(estimate.error), 4) << policy << factor;
    }
  }
}

// Half the capacity is where "learned" differs most from LRU.
TEST(HitRateCurveTest, MostEstimatesAreWithinTheirError) {
  int within = 0, all = 0;
  for (const uint64_t seed : {5, 6}) {
    const std::vector<BlockPrompt> trace = Conversations(seed, 4000);
    const TraceResult now = RunTrace(trace, {.tier_blocks = {2000}, .policy = "learned"});
    ASSERT_TRUE(now.counts.is_simulated);
    for (const double factor : {0.5, 2.0, 4.0}) {
      const TraceResult then =
          RunTrace(trace, {.tier_blocks = {static_cast<uint32_t>(2000 * factor)},
                           .policy = "learned",
                           .samples = 0});
      const HitRateCurve::Estimate estimate = HitRateCurve(&now.counts).At(factor);
      const double off = std::abs(estimate.hit_rate - then.hit_rate);
      EXPECT_LT(Points(off), 1.5) << factor;
      EXPECT_LT(Points(estimate.error), 1.5) << factor;
      within += off <= estimate.error ? 1 : 0;
      ++all;
    }
  }
  EXPECT_GE(within, all * 9 / 10);
}

// Its tiers are simulated as one.
TEST(HitRateCurveTest, ALadderOfLearnedIsWithinOneAndAHalfPoints) {
  const std::vector<BlockPrompt> trace = Conversations(8, 6000);
  const TraceResult now = RunTrace(trace, {.tier_blocks = {1000, 3000}, .policy = "learned"});
  for (const uint32_t host : {1000, 7000, 15'000}) {
    const TraceResult then =
        RunTrace(trace, {.tier_blocks = {1000, host}, .policy = "learned", .samples = 0});
    const HitRateCurve::Estimate estimate = HitRateCurve(&now.counts).At((1000 + host) / 4000.0);
    EXPECT_NEAR(Points(estimate.hit_rate), Points(then.hit_rate), 1.5) << host;
  }
}

TEST(HitRateCurveTest, ALadderCountsAsOneTierOfItsTotalSize) {
  const std::vector<BlockPrompt> trace = Conversations(3, 3000);
  const TraceResult ladder = RunTrace(trace, {.tier_blocks = {300, 700}});
  const TraceResult one = RunTrace(trace, {.tier_blocks = {1000}});
  EXPECT_EQ(ladder.counts.capacity_blocks, 1000u);
  const HitRateCurve of_ladder(&ladder.counts), of_one(&one.counts);
  for (const double factor : {0.5, 1.0, 2.0, 4.0}) {
    EXPECT_NEAR(Points(of_ladder.At(factor).hit_rate), Points(of_one.At(factor).hit_rate), 0.5);
  }
}

TEST(HitRateCurveTest, ASmallerSampleHasALargerError) {
  const std::vector<BlockPrompt> trace = Conversations(4, 6000);
  const auto error = [&](uint32_t samples) {
    const TraceResult run = RunTrace(trace, {.tier_blocks = {10'000}, .samples = samples});
    return HitRateCurve(&run.counts).At(2).error;
  };
  EXPECT_GT(error(1000), 1.5 * error(16'000));
}

// Four conversations of 100 blocks take turns. Each hits as soon as all of them fit.
TEST(HitRateCurveTest, TheGainEndsWhereEverythingFits) {
  std::vector<BlockPrompt> trace;
  for (uint64_t i = 0; i < 400; ++i) {
    BlockPrompt prompt{.time_ms = static_cast<int64_t>(i) * 1000};
    for (uint64_t block = 0; block < 100; ++block) prompt.blocks.push_back(i % 4 * 100 + block + 1);
    trace.push_back(prompt);
  }
  const TraceResult run = RunTrace(trace, {.tier_blocks = {110}});
  const HitRateCurve curve(&run.counts);
  EXPECT_LT(curve.hit_rate(), 0.01);
  // The first blocks of a prompt are the last to leave, so a part of each prompt hits earlier.
  EXPECT_LT(curve.At(2.7).hit_rate, 0.05);
  EXPECT_NEAR(curve.At(350.0 / 110).hit_rate, 0.5, 0.05);
  EXPECT_GT(curve.At(4).hit_rate, 0.95);
  EXPECT_EQ(curve.At(100).hit_rate, curve.At(16).hit_rate);
  // 400 blocks are known of 110. So nobody knows what comes beyond.
  EXPECT_NEAR(curve.known_factor(), 400.0 / 110, 0.01);
  EXPECT_EQ(curve.GainEnd(), 0);
  // A request each second, of 100 blocks.
  EXPECT_NEAR(curve.lookups_per_hour(), 360'000, 2000);

  // Other content that comes once makes it known.
  for (uint64_t i = 0; i < 40; ++i) {
    BlockPrompt& prompt = trace.emplace_back();
    for (uint64_t block = 0; block < 100; ++block) prompt.blocks.push_back((i + 9) * 100 + block);
  }
  const TraceResult longer = RunTrace(trace, {.tier_blocks = {110}});
  EXPECT_EQ(HitRateCurve(&longer.counts).known_factor(), 16);
  EXPECT_NEAR(HitRateCurve(&longer.counts).GainEnd(), 3.64, 0.2);
}

TEST(HitRateCurveTest, LittleTrafficHasNoCurve) {
  const TraceResult run = RunTrace(Conversations(5, 3), {.tier_blocks = {1000}});
  EXPECT_FALSE(HitRateCurve(&run.counts).available());
  const ReuseCounts none;
  EXPECT_FALSE(HitRateCurve(&none).available());
}

// 400 lookups in a cache of 100 blocks: 100 each at the distances 50, 150 and 250, and first uses.
HitRateCurve::Estimate EstimateWith(double hits, double factor) {
  ReuseCounts counts{.lookups = 400, .hits = hits, .rate = 1, .capacity_blocks = 100};
  for (ReuseCounts::Group& group : counts.groups) {
    for (const uint32_t distance : {50, 150, 250}) {
      group.by_distance[ReuseCounts::BucketOf(distance)] = 100.0 / ReuseCounts::kGroups;
    }
    group.hits = hits / ReuseCounts::kGroups;
  }
  return HitRateCurve(&counts).At(factor);
}

TEST(HitRateCurveTest, CarriesADifferenceFromLruToOtherCapacities) {
  EXPECT_DOUBLE_EQ(EstimateWith(100, 2).hit_rate, 0.5);
  EXPECT_DOUBLE_EQ(EstimateWith(100, 3).hit_rate, 0.75);
  // The curve is flat here, so a hit more or less is no other cache.
  EXPECT_NEAR(EstimateWith(99, 3).hit_rate, 0.75, 0.01);
  EXPECT_NEAR(EstimateWith(101, 0.6).hit_rate, EstimateWith(100, 0.6).hit_rate, 0.01);
  // 50 hits more: a quarter of what is left to gain. A quarter of the gain is there already.
  EXPECT_DOUBLE_EQ(EstimateWith(150, 2).hit_rate, (150 + 75) / 400.0);
  // At half the size, 75 of the first 100 hits are lost; or the cache acts as LRU with 148 blocks,
  // and loses 50.
  EXPECT_DOUBLE_EQ(EstimateWith(150, 0.5).hit_rate, (75 + 100) / 2.0 / 400);
  // 50 hits fewer: a quarter more is lost; or as LRU with 49 blocks fewer.
  EXPECT_DOUBLE_EQ(EstimateWith(50, 2).hit_rate, (175 + 187.5) / 2 / 400);
  // The groups agree. So the error is what three lookups can change, and half the difference of the
  // rules.
  EXPECT_DOUBLE_EQ(EstimateWith(100, 2).error, 3.0 / 400);
  EXPECT_DOUBLE_EQ(EstimateWith(50, 2).error, std::hypot(3, 12.5 / 2) / 400);
}

// The estimate from 400 lookups with 120 hits, and from simulated caches that had 60, 130, 220 and
// 300 hits. The sample had `sampled_hits` hits.
HitRateCurve::Estimate SimulatedEstimate(double factor, double sampled_hits = 130) {
  ReuseCounts counts{
      .lookups = 400, .hits = 120, .is_simulated = true, .rate = 1, .capacity_blocks = 100};
  for (ReuseCounts::Group& group : counts.groups) {
    for (const uint32_t distance : {50, 150, 250, 450}) {
      group.by_distance[ReuseCounts::BucketOf(distance)] = 80.0 / ReuseCounts::kGroups;
    }
    group.hits = sampled_hits / ReuseCounts::kGroups;
    for (size_t i = 0; i < ReuseCounts::kSimulated; ++i) {
      group.simulated_hits[i] = std::array{60.0, 130.0, 220.0, 300.0}[i] / ReuseCounts::kGroups;
    }
  }
  return HitRateCurve(&counts).At(factor);
}

TEST(HitRateCurveTest, SimulatedCachesTellTheDifferences) {
  EXPECT_DOUBLE_EQ(SimulatedEstimate(0.5).hit_rate, (120 - 70) / 400.0);
  EXPECT_DOUBLE_EQ(SimulatedEstimate(1).hit_rate, 120 / 400.0);
  EXPECT_DOUBLE_EQ(SimulatedEstimate(2).hit_rate, (120 + 90) / 400.0);
  EXPECT_DOUBLE_EQ(SimulatedEstimate(4).hit_rate, (120 + 170) / 400.0);
  // LRU gains at 1.5 times the capacity what it gains up to twice.
  EXPECT_NEAR(SimulatedEstimate(1.4).hit_rate, 120 / 400.0, 0.01);
  EXPECT_NEAR(SimulatedEstimate(1.6).hit_rate, (120 + 90) / 400.0, 0.01);
  // LRU has 240 hits of 320 at four times the capacity, the policy 300: of what LRU gains beyond,
  // three quarters are there already.
  EXPECT_NEAR(SimulatedEstimate(5).hit_rate, (120 + 170 + 80 / 4.0) / 400, 1e-9);
  EXPECT_DOUBLE_EQ(SimulatedEstimate(16).hit_rate, SimulatedEstimate(5).hit_rate);
  // Below half the capacity it falls to nothing.
  EXPECT_NEAR(SimulatedEstimate(0.001).hit_rate, 0, 0.001);
  double last = 0;
  for (double factor = 0.05; factor < 16; factor *= 1.05) {
    const double rate = SimulatedEstimate(factor).hit_rate;
    EXPECT_GE(rate, last) << factor;
    last = rate;
  }
  // The groups agree. So the error is three lookups and the doubt about small caches: a third of a
  // point, and a twentieth of the change.
  EXPECT_DOUBLE_EQ(SimulatedEstimate(2).error, std::hypot(3.0 / 400, 0.0035, 0.05 * 90 / 400));
  EXPECT_EQ(SimulatedEstimate(1).error, 0);
}

// The small cache of today's size had 130 hits, the cache 120 of the same lookups. Half of that is
// expected at other capacities.
TEST(HitRateCurveTest, ACacheWithFewerHitsThanSimulatedKeepsHalfOfTheDifference) {
  EXPECT_DOUBLE_EQ(SimulatedEstimate(0.5, 120).hit_rate, (120 - 70 + 5) / 400.0);
  EXPECT_DOUBLE_EQ(SimulatedEstimate(1, 120).hit_rate, 120 / 400.0);
  EXPECT_DOUBLE_EQ(SimulatedEstimate(2, 120).hit_rate, (120 + 90 + 5) / 400.0);
  EXPECT_NEAR(SimulatedEstimate(5, 120).hit_rate, (120 + 170 + 5 + 80 / 4.0) / 400, 1e-9);
  EXPECT_DOUBLE_EQ(SimulatedEstimate(4, 120).error,
                   std::hypot(std::hypot(0.0035, 0.05 * 175 / 400, 5 / 400.0), 3.0 / 400));
  // More memory never costs hits, however far the small cache is off.
  EXPECT_EQ(SimulatedEstimate(2, 330).hit_rate, SimulatedEstimate(1, 330).hit_rate);
  EXPECT_EQ(SimulatedEstimate(0.5, 0).hit_rate, 115 / 400.0);
}

class LiveCoreTest : public ::testing::Test {
 protected:
  void Add(uint64_t id, uint32_t prompt, uint32_t blocks) {
    const std::vector<TokenId> tokens = PromptOf(prompt, blocks);
    const auto added = core_->sequences().AddSequence(session_, SequenceId{id},
                                                      pagoda::PromptOf({}, tokens), now_);
    ASSERT_TRUE(added.ok()) << added.status();
    ASSERT_TRUE(
        core_->sequences().CommitTokens(session_, SequenceId{id}, {}, blocks * 4, now_).ok());
  }
  std::vector<TokenId> PromptOf(uint32_t prompt, uint32_t blocks) const {
    std::vector<TokenId> tokens(size_t{blocks} * 4 + 1, prompt);
    for (uint32_t i = 0; i < blocks; ++i) tokens[size_t{i} * 4] = i;
    return tokens;
  }
  void Free(uint64_t id) {
    ASSERT_TRUE(core_->sequences().FreeSequence(session_, SequenceId{id}, now_).ok());
  }
  double Counted(size_t bucket) const {
    double sum = 0;
    for (const auto& group : core_->Stats().windows[0].reuse_distances.groups) {
      sum += group.by_distance[bucket];
    }
    return sum;
  }

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_ = *BlockManager::Create(
      {.layout = TinyLayout(4), .tiers = HostTiers({40}), .eviction_policy = "lru"});
  SessionId session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
};

TEST_F(LiveCoreTest, AnEvictedBlockTellsHowFarAwayItWas) {
  Add(1, 7, 10);
  Free(1);
  Add(2, 8, 20);
  Free(2);
  Add(3, 9, 15);  // With a block for the last token. Evicts six blocks of the first prompt.
  Free(3);
  Add(4, 7, 10);
  Free(4);
  const ReuseCounts counts = core_->Stats().windows[0].reuse_distances;
  EXPECT_EQ(counts.lookups, 55);
  EXPECT_EQ(counts.hits, 4);
  // 35 others were more recent than the first block, and one more than each next one.
  for (size_t i = 0; i < 10; ++i) {
    const size_t bucket = ReuseCounts::BucketOf(static_cast<uint32_t>(35 + i));
    EXPECT_GE(Counted(bucket), 1) << i;
  }
}

TEST_F(LiveCoreTest, AnInvalidatedBlockIsAFirstUse) {
  std::vector<TokenId> prefix = PromptOf(7, 10);
  prefix.pop_back();
  Add(1, 7, 10);
  Free(1);
  ASSERT_EQ(core_->prefixes().Invalidate(pagoda::PromptOf({}, prefix), now_).value(),
            1u);  // The last block.
  Add(2, 7, 10);
  double counted = 0;
  for (size_t i = 0; i < ReuseCounts::kBuckets; ++i) counted += Counted(i);
  EXPECT_EQ(counted, 9);
}

TEST_F(LiveCoreTest, AResetLeavesNothingToWaitFor) {
  Add(1, 7, 10);
  Free(1);
  core_->ResetPrefixCache(now_);
  Add(2, 7, 10);
  Free(2);
  ReuseCounts counts = core_->Stats().windows[0].reuse_distances;
  EXPECT_EQ(counts.lookups, 20);
  for (size_t i = 0; i < ReuseCounts::kBuckets; ++i) EXPECT_EQ(Counted(i), 0) << i;
  // The blocks of the second run are followed as any others.
  Add(3, 7, 10);
  EXPECT_EQ(core_->Stats().windows[0].reuse_distances.hits, 10);
}

TEST_F(LiveCoreTest, ARunningSequenceTakesItsPlace) {
  Add(1, 7, 10);
  Free(1);
  Add(2, 8, 10);  // Runs.
  Add(3, 9, 10);
  Free(3);
  Add(4, 7, 10);
  EXPECT_EQ(Counted(20), 1);  // The first block, behind 10 that are held and 10 that are not.
}

TEST(HitRateCurveTest, ASlidingWindowHasNoCurve) {
  const std::unique_ptr<BlockManager> core = *BlockManager::Create(
      {.layout = *CacheLayout::Create(
           {.name = "test",
            .tokens_per_block = 4,
            .layers = {{.window = WindowSize{8}, .num_kv_heads = 1, .head_dim = 1},
                       {.num_kv_heads = 1, .head_dim = 1}}}),
       .tiers = HostTiers({50, 50})});
  const ManagerStats stats = core->Stats();
  EXPECT_EQ(stats.windows.front().reuse_distances.rate, 0);
  EXPECT_EQ(stats.windows.back().reuse_distances.rate, 1);
}

}  // namespace
}  // namespace pagoda
