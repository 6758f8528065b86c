// How long blocks stay cached, lie idle and are waited for, at fixed times.
#include "manager/advice/reuse_intervals.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr size_t kPrimary = 0, kLower = 1;

// "3:2 5:1": two durations in the bucket of bound 3, one in that of bound 5.
std::string Buckets(const DurationHistogram& histogram) {
  std::string text;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    if (histogram.count(i) == 0) continue;
    const std::string bound =
        i < histogram.bounds().size() ? absl::StrCat(histogram.bounds()[i]) : "more";
    absl::StrAppend(&text, text.empty() ? "" : " ", bound, ":", histogram.count(i));
  }
  return text;
}

TEST(ReuseIntervalsTest, OneIdInSoManyIsInTheSample) {
  for (const uint32_t one_in : {1u, 2u, 3u, 64u, 100u, 1000u}) {
    const ReuseIntervals lives(one_in);
    constexpr uint32_t kIds = 1'000'000;
    uint32_t sampled = 0;
    for (uint32_t i = 0; i < kIds; ++i) sampled += lives.Samples(BlockId{i}) ? 1 : 0;
    EXPECT_NEAR(sampled, kIds / one_in, 2 + kIds / one_in / 1000) << "one in " << one_in;
  }
  const ReuseIntervals none(0);
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_FALSE(none.Samples(BlockId{i}));
}

// Prompts of 64, 128 or 256 blocks that fill a fresh pool one after another. Their first blocks are
// at every 64th, 128th or 256th id.
TEST(ReuseIntervalsTest, EveryPlaceInAPromptIsInTheSampleAsOften) {
  const ReuseIntervals lives(64);
  for (const uint32_t prompt : {64u, 128u, 256u}) {
    std::vector<uint32_t> by_place(prompt);
    constexpr uint32_t kPrompts = 6400;
    for (uint32_t i = 0; i < kPrompts * prompt; ++i) {
      by_place[i % prompt] += lives.Samples(BlockId{i}) ? 1 : 0;
    }
    for (const uint32_t count : by_place) EXPECT_NEAR(count, kPrompts / 64, 25) << prompt;
  }
}

// A core that follows every block. Time passes between the actions of its sequences.
class LivesTest : public ::testing::Test {
 protected:
  void Make(uint32_t primary, uint32_t lower = 0, uint32_t sample = 1) {
    core_ = *BlockManager::Create(
        {.layout = TinyLayout(4), .tiers = HostTiers({primary}, {lower}), .reuse_sample = sample});
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  }
  // A prompt of two blocks, whose tokens are all `first`.
  static std::vector<TokenId> Prompt(TokenId first) {
    return {first, first, first, first, first, first, first, first};
  }
  void Add(uint64_t id, const std::vector<TokenId>& prompt) {
    ASSERT_TRUE(
        core_->sequences().AddSequence(session_, SequenceId{id}, PromptOf({}, prompt), now_).ok());
    ASSERT_TRUE(core_->sequences().CommitTokens(session_, SequenceId{id}, {}, 8, now_).ok());
  }
  void Free(uint64_t id) {
    ASSERT_TRUE(core_->sequences().FreeSequence(session_, SequenceId{id}, now_).ok());
  }
  void Pass(absl::Duration time) { now_ += time; }
  void CompleteCopies() {
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
  }
  ReuseIntervals::Histograms Intervals() const { return core_->Stats().windows[0].reuse_intervals; }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
};

TEST_F(LivesTest, ALifeRunsFromStoredToRemovedAndIdlenessFromTheLastRelease) {
  Make(2);
  Add(1, Prompt(1));
  Pass(absl::Seconds(2));
  Free(1);
  Pass(absl::Seconds(20));
  Add(2, Prompt(2));  // Evicts both.
  const ReuseIntervals::Histograms lives = Intervals();
  EXPECT_EQ(Buckets(lives.lifetime[kPrimary]), "30:2");
  EXPECT_NEAR(lives.lifetime[kPrimary].sum_seconds(), 44, 1e-6);
  EXPECT_EQ(Buckets(lives.idle_before_eviction[kPrimary]), "30:2");
  EXPECT_NEAR(lives.idle_before_eviction[kPrimary].sum_seconds(), 40, 1e-6);
  EXPECT_EQ(Buckets(lives.reuse_gap[kPrimary]), "");
  EXPECT_EQ(Buckets(lives.lifetime[kLower]), "");
}

TEST_F(LivesTest, AGapIsFromTheLastReleaseToTheNextMatch) {
  Make(8);
  Add(1, Prompt(1));
  Free(1);
  Pass(absl::Milliseconds(500));
  Add(2, Prompt(1));  // Matches the first block; all but the last token of the second one are
                      // copied.
  EXPECT_EQ(Buckets(Intervals().reuse_gap[kPrimary]), "1:2");
  Pass(absl::Seconds(2));
  Add(3, Prompt(1));
  EXPECT_EQ(Intervals().reuse_gap[kPrimary].total(), 2u) << "the second sequence holds both";
  Free(2);
  Pass(absl::Seconds(5));
  Free(3);  // The last holder.
  Pass(absl::Seconds(50));
  Add(4, Prompt(1));
  const DurationHistogram gaps = Intervals().reuse_gap[kPrimary];
  EXPECT_EQ(Buckets(gaps), "1:2 60:2");
  EXPECT_NEAR(gaps.sum_seconds(), 2 * 0.5 + 2 * 50, 1e-6);
}

TEST_F(LivesTest, ABlockThatIsClearedHasALifeAndNoIdleness) {
  Make(8);
  Add(1, Prompt(1));
  Free(1);
  Add(2, Prompt(2));  // Held when it is cleared.
  Pass(absl::Minutes(2));
  core_->ResetPrefixCache(now_);
  EXPECT_EQ(Buckets(Intervals().lifetime[kPrimary]), "180:4");
  EXPECT_EQ(Intervals().idle_before_eviction[kPrimary].total(), 0u);
  Free(2);  // It is not followed any more.
  Pass(absl::Hours(1));
  Add(3, Prompt(3));
  EXPECT_EQ(Intervals().lifetime[kPrimary].total(), 4u);
}

TEST_F(LivesTest, WhatGoesDownIsMeasuredWhereItEnds) {
  Make(2, 2);
  Add(1, Prompt(1));
  Free(1);
  Pass(absl::Seconds(5));
  Add(2, Prompt(2));  // Offloads both.
  CompleteCopies();
  EXPECT_EQ(Intervals().lifetime[kPrimary].total(), 0u) << "a block that moves lives on";
  Free(2);
  Pass(absl::Seconds(15));
  Add(3, Prompt(1));  // Onboarded again, 20 seconds after its last use.
  CompleteCopies();
  EXPECT_GE(Intervals().reuse_gap[kLower].total(), 1u);
  EXPECT_NEAR(Intervals().reuse_gap[kLower].sum_seconds() / 20,
              static_cast<double>(Intervals().reuse_gap[kLower].total()), 1e-6);
  Free(3);
  Pass(absl::Hours(2));
  Add(4, Prompt(4));  // Needs slots in both tiers.
  CompleteCopies();
  const ReuseIntervals::Histograms lives = Intervals();
  EXPECT_GE(lives.idle_before_eviction[kLower].total(), 1u);
  EXPECT_EQ(lives.idle_before_eviction[kPrimary].total(), 0u);
  EXPECT_EQ(lives.lifetime[kLower].total(), lives.idle_before_eviction[kLower].total());
}

TEST_F(LivesTest, WithoutASampleNothingIsMeasured) {
  Make(2, 0, 0);
  Add(1, Prompt(1));
  Free(1);
  Pass(absl::Seconds(5));
  Add(2, Prompt(2));
  EXPECT_EQ(core_->Stats().windows[0].counters.evicted_blocks, 2u);
  EXPECT_EQ(Intervals().lifetime[kPrimary].total(), 0u);
}

}  // namespace
}  // namespace pagoda
