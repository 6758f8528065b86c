// The core's counters for operators: by tenant, tier and reason, by the end of sessions, by
// operation.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "manager/advice/hit_rate_curve.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/session_endings.h"
#include "manager/tree/prefix_uses.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr TenantId kRed{1}, kBlue{2};
constexpr size_t kPrimary = 0, kLower = 1;

class CountersTest : public ::testing::Test {
 protected:
  void Make(uint32_t primary, uint32_t lower, std::vector<TenantOptions> tenants = {}) {
    core_ = *BlockManager::Create({.layout = TinyLayout(4),
                                   .tiers = HostTiers({primary}, {lower}),
                                   .tenants = std::move(tenants)});
  }
  SessionRef Open(TenantId tenant = kDefaultTenant) {
    return core_->OpenSession("test", kLease, now_, tenant)->ref;
  }
  absl::Status Run(SessionRef session, const Operation& operation) {
    const absl::Status status = core_->Execute(session.id, operation, now_).status();
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, copy_status_, now_);
    }
    return status;
  }
  // Two full blocks of this token.
  static std::vector<TokenId> Prompt(TokenId token) { return std::vector<TokenId>(8, token); }
  void Begin(SessionRef session, uint64_t id, TokenId token) {
    ASSERT_TRUE(
        Run(session, AddSequence{.sequence = SequenceId{id}, .tokens = Prompt(token)}).ok());
    ASSERT_TRUE(Run(session, CommitTokens{.sequence = SequenceId{id}, .computed_tokens = 8}).ok());
  }
  void Cache(SessionRef session, TokenId token) {
    Begin(session, ++last_, token);
    ASSERT_TRUE(Run(session, FreeSequence{SequenceId{last_}}).ok());
  }
  TenantCounters Of(TenantId tenant) const {
    return core_->Stats().windows[0].tenants.at(tenant.value());
  }
  uint64_t Removed(TenantId tenant, size_t tier, RemovalReason reason) const {
    return Of(tenant).removed_blocks[tier][static_cast<size_t>(reason)];
  }
  uint64_t AllRemoved() const {
    uint64_t sum = 0;
    for (const TenantCounters& tenant : core_->Stats().windows[0].tenants) {
      for (const auto& by_reason : tenant.removed_blocks) {
        sum = std::accumulate(by_reason.begin(), by_reason.end(), sum);
      }
    }
    return sum;
  }

  static constexpr absl::Duration kLease = absl::Seconds(10);
  absl::Time now_ = absl::UnixEpoch();
  absl::Status copy_status_;
  uint64_t last_ = 0;
  std::unique_ptr<BlockManager> core_;
};

TEST_F(CountersTest, ARemovalCountsByTierAndReason) {
  Make(4, 2);
  const SessionRef session = Open();
  Cache(session, 1);
  Cache(session, 2);
  Cache(session, 3);  // 1 is offloaded.
  EXPECT_EQ(AllRemoved(), 0u) << "a block that moves is not removed";
  Cache(session, 4);  // 2 is offloaded, 1 must leave.
  EXPECT_EQ(Removed(kDefaultTenant, kLower, RemovalReason::kDisplaced), 2u);
  EXPECT_EQ(core_->Stats().windows[0].counters.displaced_blocks, 2u);
  ASSERT_TRUE(Run(session, InvalidatePrefix{.tokens = {4, 4}}).ok());
  EXPECT_EQ(Removed(kDefaultTenant, kPrimary, RemovalReason::kInvalidated), 2u);
  EXPECT_EQ(AllRemoved(), 4u);
  core_->ResetPrefixCache(now_);
  EXPECT_EQ(Removed(kDefaultTenant, kPrimary, RemovalReason::kCleared), 2u);
  EXPECT_EQ(Removed(kDefaultTenant, kLower, RemovalReason::kCleared), 2u);
  EXPECT_EQ(AllRemoved(), 8u);
}

TEST_F(CountersTest, CachedBlocksAreCountedByPriority) {
  Make(8, 4);
  const SessionRef session = Open();
  const auto counts = [this](size_t tier) {
    std::map<size_t, uint32_t> by_priority;
    const PriorityCounts all = core_->Stats().windows[0].cached_by_priority[tier];
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != 0) by_priority[i] = all[i];
    }
    core_->CheckInvariants();
    return by_priority;
  };
  using Counts = std::map<size_t, uint32_t>;
  Cache(session, 1);
  Cache(session, 2);
  EXPECT_EQ(counts(kPrimary), (Counts{{35, 4}}));
  const auto retain = [&](TokenId token, uint8_t priority, absl::Duration duration) {
    const SetRetention set{.tokens = Prompt(token),
                           .retention = {.ranges = {{.token_start = 0,
                                                     .token_end = 4,
                                                     .retention = {.priority = Priority{priority},
                                                                   .duration = duration}}}}};
    ASSERT_TRUE(Run(session, set).ok());
  };
  retain(1, 80, absl::InfiniteDuration());
  retain(2, 90, absl::Seconds(1));
  EXPECT_EQ(counts(kPrimary), (Counts{{35, 2}, {80, 1}, {90, 1}}));
  Begin(session, 50, 1);  // Holds the first block; its last token is computed again.
  EXPECT_EQ(counts(kPrimary).count(80), 0u) << "what is held is not counted";
  ASSERT_TRUE(Run(session, FreeSequence{SequenceId{50}}).ok());
  EXPECT_EQ(counts(kPrimary), (Counts{{35, 2}, {80, 1}, {90, 1}}));
  ASSERT_TRUE(Run(session, OffloadPrefix{.tokens = Prompt(1)}).ok());
  EXPECT_EQ(counts(kPrimary), (Counts{{35, 1}, {90, 1}}));
  EXPECT_EQ(counts(kLower), (Counts{{35, 1}, {80, 1}}));
  now_ += absl::Seconds(2);
  core_->Maintain(now_, 0);
  EXPECT_EQ(counts(kPrimary), (Counts{{35, 2}})) << "a priority that expires";
  core_->ResetPrefixCache(now_);
  EXPECT_EQ(counts(kPrimary), Counts());
  EXPECT_EQ(counts(kLower), Counts());
}

TEST_F(CountersTest, WhatIsBeingCopiedIsInFlightAndNotAmongTheCached) {
  Make(8, 4);
  const SessionRef session = Open();
  Cache(session, 1);
  ASSERT_TRUE(core_->Execute(session.id, OffloadPrefix{.tokens = Prompt(1)}, now_).ok());
  core_->CheckInvariants();
  EXPECT_EQ(core_->Stats().windows[0].cached_by_priority[kLower][35], 0u);
  for (const Order& copy : core_->TakeOrders()) {
    core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
  }
  EXPECT_EQ(core_->Stats().windows[0].cached_by_priority[kLower][35], 2u);
}

// A request goes on after a preemption: it matches what it had computed itself.
TEST_F(CountersTest, ARequestsPromptCountsOnce) {
  Make(8, 8);
  const SessionRef session = Open();
  const auto run = [&](bool uncounted) {
    const SequenceId sequence{++last_};
    ASSERT_TRUE(Run(session, AddSequence{.sequence = sequence,
                                         .tokens = std::vector<TokenId>(13, 1),
                                         .uncounted = uncounted})
                    .ok());
    ASSERT_TRUE(Run(session, CommitTokens{.sequence = sequence, .computed_tokens = 12}).ok());
    ASSERT_TRUE(Run(session, FreeSequence{sequence}).ok());
  };
  const auto uses = [&] {
    std::vector<PrefixNode> nodes(core_->lists().num_prefix_nodes());
    core_->lists().PrefixNodes(0, absl::MakeSpan(nodes));
    return TopPrefixes(nodes, 8).size();
  };
  run(false);
  run(true);
  ASSERT_TRUE(Run(session, OffloadPrefix{.tokens = std::vector<TokenId>(13, 1)}).ok());
  run(true);
  const WindowStats window = core_->Stats().windows[0];
  EXPECT_EQ(window.counters.onboarded_blocks, 3u) << "they matched";
  EXPECT_EQ(window.counters.prefix_lookup_tokens, 13u);
  EXPECT_EQ(window.counters.prefix_hit_tokens, 0u);
  EXPECT_EQ(window.counters.lower_hit_tokens, 0u);
  EXPECT_EQ(window.reuse_distances.requests, 1u);
  EXPECT_EQ(window.reuse_distances.lookups, 3);
  EXPECT_EQ(window.reuse_distances.hits, 0);
  for (const ReuseCounts::Group& group : window.reuse_distances.groups) {
    EXPECT_EQ(std::accumulate(group.by_distance.begin(), group.by_distance.end(), 0.0), 0);
  }
  EXPECT_EQ(uses(), 0u);
  run(false);
  EXPECT_EQ(core_->Stats().windows[0].counters.prefix_lookup_tokens, 26u);
  EXPECT_EQ(core_->Stats().windows[0].counters.prefix_hit_tokens, 12u);
  EXPECT_EQ(core_->Stats().windows[0].reuse_distances.hits, 3);
  EXPECT_EQ(uses(), 1u);
}

TEST_F(CountersTest, AnEvictionAndATakeOverCountOnce) {
  Make(2, 0);
  const SessionRef session = Open();
  Cache(session, 1);
  // Its tail is taken over, because nothing else is free.
  ASSERT_TRUE(Run(session, AddSequence{.sequence = SequenceId{90}, .tokens = Prompt(1)}).ok());
  EXPECT_EQ(Removed(kDefaultTenant, kPrimary, RemovalReason::kTakenOver), 1u);
  ASSERT_TRUE(Run(session, FreeSequence{SequenceId{90}}).ok());
  Cache(session, 2);
  EXPECT_EQ(Removed(kDefaultTenant, kPrimary, RemovalReason::kEvicted),
            core_->Stats().windows[0].counters.evicted_blocks);
  EXPECT_GE(core_->Stats().windows[0].counters.evicted_blocks, 1u);
  EXPECT_EQ(core_->Stats().windows[0].counters.taken_over_blocks, 1u);
}

TEST_F(CountersTest, ABlockWhoseCopyFailedIsLost) {
  Make(2, 2);
  const SessionRef session = Open();
  Cache(session, 1);
  copy_status_ = absl::InternalError("broken");
  Cache(session, 2);
  EXPECT_EQ(Removed(kDefaultTenant, kLower, RemovalReason::kLost), 2u);
  EXPECT_EQ(core_->Stats().windows[0].counters.lost_blocks, 2u);
}

TEST_F(CountersTest, ATruncatedBlockCounts) {
  Make(4, 0);
  const SessionRef session = Open();
  Begin(session, 1, 1);
  ASSERT_TRUE(Run(session, TruncateSequence{.sequence = SequenceId{1}, .token_count = 6}).ok());
  EXPECT_EQ(Removed(kDefaultTenant, kPrimary, RemovalReason::kTruncated), 1u);
}

TEST_F(CountersTest, WhatATenantAsksAndLosesIsItsOwn) {
  Make(4, 0, {{.name = "red"}, {.name = "blue"}});
  const SessionRef red = Open(kRed), blue = Open(kBlue);
  Cache(red, 1);
  Cache(red, 1);
  EXPECT_EQ(Of(kRed).prefix_lookup_tokens, 16u);
  EXPECT_EQ(Of(kRed).prefix_hit_tokens[kPrimary], 7u);
  EXPECT_EQ(Of(kRed).prefix_hit_tokens[kLower], 0u);
  EXPECT_EQ(Of(kBlue).prefix_lookup_tokens, 0u);
  const uint64_t allocated = Of(kRed).allocated_blocks;
  EXPECT_GE(allocated, 2u);
  Cache(blue, 1);
  Cache(blue, 2);  // Evicts red's.
  EXPECT_EQ(Of(kBlue).prefix_hit_tokens[kPrimary], 0u) << "a namespace of its own";
  EXPECT_EQ(Of(kBlue).allocated_blocks, 4u);
  EXPECT_EQ(Of(kRed).allocated_blocks, allocated);
  EXPECT_GE(Removed(kRed, kPrimary, RemovalReason::kEvicted), 1u);
  const WindowCounters sums = core_->Stats().windows[0].counters;
  EXPECT_EQ(sums.allocated_blocks, allocated + 4);
  EXPECT_EQ(sums.prefix_lookup_tokens, 32u);
  EXPECT_EQ(sums.prefix_hit_tokens, 7u);
}

TEST_F(CountersTest, AHitCountsInTheTierWhereItLay) {
  Make(2, 2);
  const SessionRef session = Open();
  Cache(session, 1);
  Cache(session, 2);  // 1 is offloaded.
  Cache(session, 1);
  EXPECT_EQ(Of(kDefaultTenant).prefix_hit_tokens[kLower], 7u);
  EXPECT_EQ(Of(kDefaultTenant).prefix_hit_tokens[kPrimary], 0u);
  EXPECT_EQ(core_->Stats().windows[0].counters.lower_hit_tokens, 7u);
}

TEST_F(CountersTest, ASessionsEndCountsAndSoDoItsBlocks) {
  Make(8, 0);
  const auto counters = [&] { return core_->Stats().session_counters; };
  const auto end = [](SessionEnd how) { return static_cast<size_t>(how); };
  const SessionRef closed = Open();
  Begin(closed, 1, 1);
  ASSERT_TRUE(core_->endings().CloseSession(closed, now_).ok());
  EXPECT_EQ(counters().ended[end(SessionEnd::kClosed)], 1u);
  EXPECT_EQ(counters().reclaimed_blocks[end(SessionEnd::kClosed)], 2u) << "cached, and evictable";

  const SessionRef ended = Open();
  ASSERT_TRUE(Run(ended, AllocateBlocks{.window = kFullAttention, .count = 3}).ok());
  ASSERT_TRUE(core_->endings().EndSession(ended.id, now_).ok());
  EXPECT_EQ(counters().ended[end(SessionEnd::kEndedByOperator)], 1u);
  EXPECT_EQ(counters().reclaimed_blocks[end(SessionEnd::kEndedByOperator)], 3u);

  const SessionRef writer = Open();
  ASSERT_TRUE(core_->NoteWriter(writer).ok());
  Begin(writer, 1, 2);
  ASSERT_TRUE(Run(writer, AllocateBlocks{.window = kFullAttention, .count = 1}).ok());
  now_ += kLease;
  ASSERT_EQ(core_->endings().ExpireSessions(now_), 1u);
  EXPECT_EQ(counters().ended[end(SessionEnd::kLeaseExpired)], 1u);
  EXPECT_EQ(counters().reclaimed_blocks[end(SessionEnd::kLeaseExpired)], 2u)
      << "what was published";
  EXPECT_EQ(counters().reclaimed_from_quarantine, 0u);
  ASSERT_TRUE(core_->endings().ReleaseQuarantine(writer.id, now_).ok());
  EXPECT_EQ(counters().reclaimed_from_quarantine, 1u) << "the raw block";
}

TEST_F(CountersTest, ABlockThatAnotherSessionHoldsIsNotReclaimed) {
  Make(8, 0);
  const SessionRef one = Open(), other = Open();
  Begin(one, 1, 1);
  Begin(other, 1, 1);
  const uint32_t active = core_->Stats().windows[0].tiers[0].active;
  ASSERT_TRUE(core_->endings().CloseSession(one, now_).ok());
  EXPECT_EQ(core_->Stats().session_counters.reclaimed_blocks[0],
            active - core_->Stats().windows[0].tiers[0].active);
  EXPECT_LT(core_->Stats().session_counters.reclaimed_blocks[0], 2u);
}

TEST_F(CountersTest, AnOperationCountsByKindAndAFailureByTenantAndReason) {
  Make(4, 0, {{.name = "red", .quota_blocks = {1, kNoQuota}}, {.name = "blue"}});
  const SessionRef red = Open(kRed), blue = Open(kBlue);
  const AllocateBlocks two{.window = kFullAttention, .count = 2};
  EXPECT_EQ(ReasonOf(Run(red, two)), Reason::kInvalidCount) << "more than the whole quota";
  EXPECT_TRUE(Run(blue, two).ok());
  EXPECT_TRUE(Run(blue, two).ok());
  EXPECT_EQ(ReasonOf(Run(blue, two)), Reason::kBlocksExhausted);
  EXPECT_EQ(ReasonOf(Run(blue, FreeSequence{SequenceId{5}})), Reason::kUnknownSequence);
  const OperationCounters counters = core_->Stats().operations;
  EXPECT_EQ(counters.run[Operation(two).index()], 4u);
  EXPECT_EQ(counters.run[Operation(FreeSequence{}).index()], 1u);
  EXPECT_EQ(std::accumulate(counters.run.begin(), counters.run.end(), uint64_t{0}), 5u);
  const std::map<std::pair<TenantId, Reason>, uint64_t> expected = {
      {{kRed, Reason::kInvalidCount}, 1},
      {{kBlue, Reason::kBlocksExhausted}, 1},
      {{kBlue, Reason::kUnknownSequence}, 1}};
  EXPECT_EQ(counters.failed, expected);
}

}  // namespace
}  // namespace pagoda
