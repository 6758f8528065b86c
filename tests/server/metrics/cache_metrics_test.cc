#include "server/metrics/cache_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "prometheus/text_serializer.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr TenantId kRed{1}, kBlue{2};

// Two tenants: red caches two blocks and looks up 16 tokens; blue holds three blocks.
class CacheMetricsTest : public ::testing::Test {
 protected:
  CacheMetricsTest() {
    const std::vector<TokenId> prompt(8, 1);
    const SessionId red = Open(kRed), blue = Open(kBlue);
    for (uint64_t i = 1; i <= 2; ++i) {
      Run(red, AddSequence{.sequence = SequenceId{i}, .tokens = prompt});
      Run(red, CommitTokens{.sequence = SequenceId{i}, .computed_tokens = 8});
      Run(red, FreeSequence{SequenceId{i}});
    }
    Run(blue, AllocateBlocks{.window = kFullAttention, .count = 3});
  }
  SessionId Open(TenantId tenant) {
    return core_->OpenSession("test", absl::InfiniteDuration(), now_, tenant)->ref.id;
  }
  void Run(SessionId session, const Operation& operation) {
    now_ += absl::Seconds(2);
    const auto result = core_->Execute(session, operation, now_);
    EXPECT_TRUE(result.ok()) << result.status();
  }
  std::string Text(TenantLabels labels) {
    const ManagerStats stats = core_->Stats();
    const std::vector<TenantUsage> uses = core_->lists().TenantUses();
    return prometheus::TextSerializer().Serialize(CollectCacheMetrics({.stats = stats,
                                                                       .uses = uses,
                                                                       .info = core_->info(),
                                                                       .layout = layout_,
                                                                       .tenants = core_->tenants()},
                                                                      labels));
  }

  const CacheLayout layout_ = TinyLayout(4);
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_ = *BlockManager::Create(
      {.layout = layout_,
       .tiers = HostTiers({16}, {0}),
       .tenants = {{.name = "red", .quota_blocks = {9, kNoQuota}}, {.name = "say \"blue\""}},
       .reuse_sample = 1});
};

TEST_F(CacheMetricsTest, WhatATenantHasIsUnderItsName) {
  const std::string text = Text(TenantLabels::kNames);
  for (const char* line :
       {"pagoda_allocated_blocks_total{window=\"full\",tenant=\"(default tenant)\"} 0",
        "pagoda_allocated_blocks_total{window=\"full\",tenant=\"say \\\"blue\\\"\"} 3",
        "pagoda_prefix_lookup_tokens_total{window=\"full\",tenant=\"red\"} 16",
        "pagoda_prefix_hit_tokens_total{window=\"full\",tier=\"primary\",tenant=\"red\"} 7",
        "pagoda_tenant_blocks{window=\"full\",tier=\"primary\",state=\"cached\",tenant=\"red\"} 2",
        "pagoda_tenant_blocks{window=\"full\",tier=\"primary\",state=\"held\","
        "tenant=\"say \\\"blue\\\"\"} 3",
        "pagoda_tenant_quota_blocks{window=\"full\",tier=\"primary\",tenant=\"red\"} 9",
        "pagoda_tenant_sessions{tenant=\"red\"} 1", "pagoda_tenant_sequences{tenant=\"red\"} 0",
        "pagoda_tenant_sequence_bytes{tenant=\"red\"} 0",
        "pagoda_failed_operations_total{reason=\"TOO_MANY_SEQUENCES\",tenant=\"red\"} 0",
        "pagoda_failed_operations_total{reason=\"TENANT_QUOTA_EXCEEDED\",tenant=\"red\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
}

TEST_F(CacheMetricsTest, WithoutNamesTheyAreSums) {
  const std::string text = Text(TenantLabels::kSummed);
  EXPECT_THAT(text, Not(HasSubstr("tenant=")));
  for (const char* line :
       {"pagoda_allocated_blocks_total{window=\"full\"} 6",
        "pagoda_prefix_lookup_tokens_total{window=\"full\"} 16",
        "pagoda_prefix_hit_tokens_total{window=\"full\",tier=\"primary\"} 7",
        "pagoda_tenant_blocks{window=\"full\",tier=\"primary\",state=\"held\"} 3",
        "pagoda_tenant_sessions 2",
        "pagoda_failed_operations_total{reason=\"BLOCKS_EXHAUSTED\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
}

TEST_F(CacheMetricsTest, ATierHasTheCachesNameForIt) {
  std::vector<TierSpec> tiers = HostTiers({16}, {4});
  tiers[0].name = "hbm";
  core_ = *BlockManager::Create({.layout = layout_, .tiers = std::move(tiers)});
  const std::string text = Text(TenantLabels::kSummed);
  EXPECT_THAT(text, HasSubstr("pagoda_block_capacity_blocks{window=\"full\",tier=\"hbm\"} 16\n"));
  EXPECT_THAT(text,
              HasSubstr("pagoda_block_capacity_blocks{window=\"full\",tier=\"secondary\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("pagoda_tenant_blocks{window=\"full\",tier=\"hbm\""));
  EXPECT_THAT(text, Not(HasSubstr("tier=\"primary\"")));
}

TEST_F(CacheMetricsTest, CopiesOfBlocksInNearerTiersAreCounted) {
  core_ = *BlockManager::Create({.layout = layout_, .tiers = HostTiers({16}, {4})});
  const SessionId session = Open(kDefaultTenant);
  const std::vector<TokenId> prompt(8, 1);
  Run(session, AddSequence{.sequence = SequenceId{1}, .tokens = prompt});
  Run(session, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 8});
  Run(session, FreeSequence{SequenceId{1}});
  Run(session, OffloadPrefix{.tokens = prompt});
  Run(session, PrefetchPrefix{.tokens = prompt});
  for (const Order& copy : core_->TakeOrders()) {
    core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
  }
  std::string text = Text(TenantLabels::kSummed);
  for (const char* line :
       {"pagoda_duplicate_blocks{window=\"full\",tier=\"primary\"} 0",
        "pagoda_duplicate_blocks{window=\"full\",tier=\"secondary\"} 2",
        "pagoda_blocks{window=\"full\",tier=\"secondary\",state=\"cached\"} 2",
        "pagoda_cached_blocks{window=\"full\",tier=\"secondary\",priority=\"30-39\"} 0",
        "pagoda_freely_evicted_blocks_total{window=\"full\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
  Run(session, OffloadPrefix{.tokens = prompt});
  text = Text(TenantLabels::kSummed);
  EXPECT_THAT(text, HasSubstr("pagoda_freely_evicted_blocks_total{window=\"full\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("pagoda_offloaded_blocks_total{window=\"full\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("pagoda_duplicate_blocks{window=\"full\",tier=\"secondary\"} 0"));
}

TEST_F(CacheMetricsTest, CachedBlocksAreCountedByTensOfPriorities) {
  for (const Order& copy : core_->TakeOrders()) {
    core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
  }
  const SessionId red = core_->lists().Sessions(SessionId{}, 1, now_).front().session;
  Run(red, SetRetention{.tokens = std::vector<TokenId>(4, 1),
                        .retention = {.ranges = {{.token_start = 0,
                                                  .token_end = 4,
                                                  .retention = {.priority = Priority{100}}}}}});
  const std::string text = Text(TenantLabels::kSummed);
  const std::string name = "pagoda_cached_blocks{window=\"full\",tier=\"primary\",priority=";
  for (const char* line : {"\"0-9\"} 0", "\"30-39\"} 1", "\"90-99\"} 0", "\"100\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", name, line, "\n")));
  }
  EXPECT_THAT(text, Not(HasSubstr("pagoda_cached_blocks{window=\"full\",tier=\"secondary\"")));
}

// Prompts of two blocks, of which red has had two lookups of one block each so far.
TEST_F(CacheMetricsTest, HitRatesOfOtherCapacitiesNeedAHundredLookups) {
  const std::string name = "pagoda_predicted_hit_rate{window=\"full\",capacity=";
  EXPECT_THAT(Text(TenantLabels::kSummed), HasSubstr(name + "\"2\"} Nan\n"));
  const SessionId session = Open(kDefaultTenant);
  for (uint32_t i = 0; i < 120; ++i) {
    const std::vector<TokenId> prompt(8, i % 30);  // More than 16 blocks hold, and fewer than 64.
    Run(session, AddSequence{.sequence = SequenceId{1}, .tokens = prompt});
    Run(session, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 8});
    Run(session, FreeSequence{SequenceId{1}});
  }
  const std::string text = Text(TenantLabels::kSummed);
  EXPECT_THAT(text, AllOf(HasSubstr(name + "\"0.5\"} 0"), HasSubstr(name + "\"8\"} 0.7")));
  EXPECT_THAT(text,
              HasSubstr("pagoda_predicted_hit_rate_error{window=\"full\",capacity=\"1\"} 0\n"));
}

TEST_F(CacheMetricsTest, AHistogramCountsUpToEachBound) {
  Run(Open(kBlue), AllocateBlocks{.window = kFullAttention, .count = 11});  // Not an eviction yet.
  Run(Open(kBlue), AllocateBlocks{.window = kFullAttention, .count = 2});
  const std::string text = Text(TenantLabels::kSummed);
  const std::string name = "pagoda_block_idle_before_eviction_seconds";
  // Red's two blocks were released 6 seconds ago by the clock of ReuseIntervals.
  EXPECT_THAT(text,
              AllOf(HasSubstr(name + "_bucket{window=\"full\",tier=\"primary\",le=\"3\"} 0\n"),
                    HasSubstr(name + "_bucket{window=\"full\",tier=\"primary\",le=\"10\"} 2\n"),
                    HasSubstr(name + "_bucket{window=\"full\",tier=\"primary\",le=\"86400\"} 2\n"),
                    HasSubstr(name + "_bucket{window=\"full\",tier=\"primary\",le=\"+Inf\"} 2\n"),
                    HasSubstr(name + "_count{window=\"full\",tier=\"primary\"} 2\n"),
                    HasSubstr(name + "_sum{window=\"full\",tier=\"primary\"} 12\n")));
}

}  // namespace
}  // namespace pagoda::server
