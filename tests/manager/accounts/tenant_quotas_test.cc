// Tenants: how much each can have, what it is charged for, and which one gives up blocks.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/manager/accounts/tenants_fixture.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

TEST_F(TenantsTest, AQuotaIsHard) {
  Make({{.name = "red", .quota_blocks = {4, kNoQuota}}, {.name = "blue"}});
  const SessionId red = Open(kRed);
  ASSERT_TRUE(Run(red, AllocateBlocks{kFullAttention, 3}).ok());
  const auto more = Run(red, AllocateBlocks{kFullAttention, 2});
  EXPECT_EQ(ReasonOf(more.status()), Reason::kTenantQuotaExceeded) << more.status();
  EXPECT_EQ(Used(kRed), 3u) << "nothing changed";
  EXPECT_TRUE(Run(red, AllocateBlocks{kFullAttention, 1}).ok());
  EXPECT_TRUE(Run(Open(kBlue), AllocateBlocks{kFullAttention, kBlocks - 4}).ok());
}

// Matched blocks are capacity that the tenant has, and that cannot be evicted for the rest.
TEST_F(TenantsTest, AQuotaIsTheReasonWhereAPrefixMatches) {
  Make({{.name = "red", .quota_blocks = {4, kNoQuota}}, {.name = "blue"}});
  const SessionId red = Open(kRed);
  Cache(red, Prompt(1, 2));
  ASSERT_TRUE(Run(red, AllocateBlocks{kFullAttention, 1}).ok());
  const auto more = Run(red, AddSequence{.sequence = SequenceId{9}, .tokens = Prompt(1, 4)});
  EXPECT_EQ(ReasonOf(more.status()), Reason::kTenantQuotaExceeded) << more.status();
}

// Waiting for it would never end.
TEST_F(TenantsTest, MoreThanTheWholeQuotaCanNeverBeHad) {
  Make({{.name = "red", .quota_blocks = {4, kNoQuota}}, {.name = "blue"}});
  const SessionId red = Open(kRed);
  const auto refused = [&](const Operation& operation) {
    const absl::Status status = Run(red, operation).status();
    EXPECT_NE(status.message().find("quota is 4"), std::string::npos) << status;
    return ReasonOf(status);
  };
  EXPECT_EQ(refused(AllocateBlocks{kFullAttention, 5}), Reason::kInvalidCount);
  EXPECT_EQ(refused(AddSequence{.sequence = SequenceId{1}, .tokens = Prompt(1, 5)}),
            Reason::kInvalidCount);
  // Its tokens need slots eventually.
  EXPECT_EQ(
      refused(AddSequence{.sequence = SequenceId{1}, .tokens = Prompt(1, 5), .reserved_tokens = 4}),
      Reason::kInvalidCount);
  ASSERT_TRUE(Run(red, AddSequence{.sequence = SequenceId{1}, .tokens = Prompt(1, 2)}).ok());
  EXPECT_EQ(refused(ReserveTokens{.sequence = SequenceId{1}, .count = 9}), Reason::kInvalidCount);
  EXPECT_EQ(refused(AppendTokens{.sequence = SequenceId{1}, .tokens = Prompt(2, 3)}),
            Reason::kInvalidCount);
  // The tenant's other sequences can release blocks, so waiting makes sense.
  ASSERT_TRUE(Run(red, AllocateBlocks{kFullAttention, 2}).ok());
  EXPECT_EQ(ReasonOf(Run(red, ReserveTokens{.sequence = SequenceId{1}, .count = 8}).status()),
            Reason::kTenantQuotaExceeded);
}

// --- What a tenant holds ---

TEST_F(TenantsTest, ATenantThatSharesIsChargedForWhatItHolds) {
  Make({{.name = "red"},
        {.name = "blue"},
        {.name = "open", .shares = true, .quota_blocks = {4, 4}}});
  const SessionId open = Open(kOpen);
  for (uint64_t i = 1; i <= 2; ++i) {
    const SequenceId name{i};
    ASSERT_TRUE(
        Run(open, AddSequence{.sequence = name, .tokens = Prompt(static_cast<TokenId>(i), 2)})
            .ok());
    ASSERT_TRUE(Run(open, CommitTokens{.sequence = name, .computed_tokens = 8}).ok());
  }
  EXPECT_EQ(Used(kOpen), 4u) << "published, and held";
  EXPECT_EQ(Used(kDefaultTenant), 0u);
  const auto more = Run(open, AddSequence{.sequence = SequenceId{3}, .tokens = Prompt(3, 1)});
  EXPECT_EQ(ReasonOf(more.status()), Reason::kTenantQuotaExceeded) << more.status();
  ASSERT_TRUE(Run(open, FreeSequence{SequenceId{1}}).ok());
  EXPECT_EQ(Used(kOpen), 2u);
  EXPECT_EQ(Used(kDefaultTenant), 2u) << "cached and held by nobody";
  EXPECT_TRUE(Run(open, AddSequence{.sequence = SequenceId{3}, .tokens = Prompt(3, 2)}).ok());
}

TEST_F(TenantsTest, EachTenantThatHoldsASharedBlockIsCharged) {
  constexpr TenantId kWide{2};
  Make({{.name = "open", .shares = true, .quota_blocks = {4, 4}},
        {.name = "wide", .shares = true, .quota_blocks = {3, 4}}});
  const SessionId open = Open(kRed), wide = Open(kWide), trusted = Open(kDefaultTenant);
  Cache(trusted, Prompt(1, 3));
  const AddSequence add{.sequence = SequenceId{100}, .tokens = Prompt(1, 3)};
  ASSERT_TRUE(Run(open, add).ok());
  EXPECT_EQ(Used(kRed), 3u);
  // It holds nothing yet, and would be charged for all three: two that match, and one for the rest.
  ASSERT_TRUE(Run(wide, add).ok());
  EXPECT_EQ(Used(kWide), 3u);
  EXPECT_EQ(ReasonOf(Run(wide, AllocateBlocks{kFullAttention, 1}).status()),
            Reason::kTenantQuotaExceeded);
  // A second sequence of the tenant shares blocks that the tenant already holds.
  ASSERT_TRUE(Run(open, AddSequence{.sequence = SequenceId{101}, .tokens = Prompt(1, 3)}).ok());
  EXPECT_EQ(Used(kRed), 4u);
  ASSERT_TRUE(Run(open, FreeSequence{SequenceId{100}}).ok());
  EXPECT_EQ(Used(kRed), 3u);
  ASSERT_TRUE(Run(open, FreeSequence{SequenceId{101}}).ok());
  EXPECT_EQ(Used(kRed), 0u);
  EXPECT_EQ(Used(kWide), 3u);
  ASSERT_TRUE(Run(wide, FreeSequence{SequenceId{100}}).ok());
  EXPECT_EQ(Used(kWide), 0u);
}

// A cut, a truncation and a reset make private blocks of shared ones, which their holder can write.
TEST_F(TenantsTest, WhatLeavesTheTreeStaysChargedToItsHolder) {
  enum class Leaves { kInvalidated, kTruncated, kReset };
  for (const Leaves leaves : {Leaves::kInvalidated, Leaves::kTruncated, Leaves::kReset}) {
    Make({{.name = "red"},
          {.name = "blue"},
          {.name = "open", .shares = true, .quota_blocks = {4, 4}}});
    const SessionId open = Open(kOpen);
    uint32_t refused = 0;
    for (uint64_t i = 1; i <= 8; ++i) {
      const SequenceId name{i};
      const std::vector<TokenId> prompt = Prompt(static_cast<TokenId>(i), 1);
      const auto added = Run(open, AddSequence{.sequence = name, .tokens = prompt});
      if (!added.ok()) {
        EXPECT_EQ(ReasonOf(added.status()), Reason::kTenantQuotaExceeded);
        ++refused;
        continue;
      }
      ASSERT_TRUE(Run(open, CommitTokens{.sequence = name, .computed_tokens = 4}).ok());
      switch (leaves) {
        case Leaves::kInvalidated:
          EXPECT_EQ(*core_->prefixes().Invalidate(PromptOf({}, prompt), now_), 1u);
          break;
        case Leaves::kTruncated:
          ASSERT_TRUE(Run(open, TruncateSequence{name, 3}).ok());
          break;
        case Leaves::kReset:
          EXPECT_EQ(core_->ResetPrefixCache(now_), 1u);
          break;
      }
      core_->CheckInvariants();
    }
    EXPECT_EQ(refused, 4u);
    EXPECT_EQ(Used(kOpen), 4u);
    EXPECT_EQ(Used(kDefaultTenant), 0u);
    for (uint64_t i = 1; i <= 4; ++i) ASSERT_TRUE(Run(open, FreeSequence{SequenceId{i}}).ok());
    EXPECT_EQ(Used(kOpen), 0u);
  }
}

TEST_F(TenantsTest, APinOfTheDefaultTenantCountsAgainstItsQuota) {
  Make({{.name = "open", .shares = true, .quota_blocks = {2, 2}}, {.name = "blue"}});
  const SessionId open = Open(kRed), trusted = Open(kDefaultTenant);
  for (TokenId first = 1; first <= 3; ++first) Cache(trusted, Prompt(first, 1));
  Cache(trusted, Prompt(4, 3));
  EXPECT_EQ(ReasonOf(Run(open, PinPrefix{.tokens = Prompt(4, 3)}).status()), Reason::kInvalidCount);
  ASSERT_TRUE(Run(open, PinPrefix{.tokens = Prompt(1, 1)}).ok());
  const auto second = Run(open, PinPrefix{.tokens = Prompt(2, 1)});
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(Used(kRed), 2u);
  EXPECT_TRUE(Run(open, PinPrefix{.tokens = Prompt(1, 1)}).ok()) << "it holds that one already";
  EXPECT_EQ(ReasonOf(Run(open, PinPrefix{.tokens = Prompt(3, 1)}).status()),
            Reason::kTenantQuotaExceeded);
  ASSERT_TRUE(Run(open, UnpinPrefix{std::get<PinnedPrefix>(*second).pin}).ok());
  EXPECT_EQ(Used(kRed), 1u);
}

// The tenant's own copy of published blocks, and the published ones.
TEST_F(TenantsTest, AtItsQuotaASequenceGoesOnWithoutTheBlockThatOthersPublished) {
  Make({{.name = "open", .shares = true, .quota_blocks = {2, 2}}, {.name = "blue"}});
  const SessionId open = Open(kRed);
  const SequenceId name{50};
  ASSERT_TRUE(Run(open, AddSequence{.sequence = name, .tokens = Prompt(1, 2)}).ok());
  Cache(Open(kDefaultTenant), Prompt(1, 2));
  ASSERT_TRUE(Run(open, CommitTokens{.sequence = name, .computed_tokens = 8}).ok());
  EXPECT_EQ(Used(kRed), 2u);
  ASSERT_TRUE(Run(open, FreeSequence{name}).ok());
  EXPECT_EQ(Used(kRed), 0u);
  EXPECT_EQ(Used(kDefaultTenant), 2u);
}

TEST_F(TenantsTest, ARefusalNamesTheLimitThatRefuses) {
  Make({{.name = "open", .shares = true, .quota_blocks = {3, 3}}, {.name = "blue"}}, 4);
  const SessionId open = Open(kRed), blue = Open(kBlue), trusted = Open(kDefaultTenant);
  Cache(trusted, Prompt(1, 1));
  ASSERT_TRUE(Run(trusted, OffloadPrefix{.tokens = Prompt(1, 1)}).ok());
  for (const Order& copy : core_->TakeOrders()) {
    core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
  }
  ASSERT_TRUE(Run(open, PinPrefix{.tokens = Prompt(1, 1)}).ok());
  ASSERT_TRUE(Run(blue, AllocateBlocks{kFullAttention, kBlocks - 2}).ok());
  // Two blocks are left of the quota and of the pool. Three more are too many for both.
  EXPECT_EQ(ReasonOf(Run(open, AllocateBlocks{kFullAttention, 3}).status()),
            Reason::kTenantQuotaExceeded);
  // It holds the matched blocks, which are below: only the pool lacks a slot for them.
  const AddSequence add{.sequence = SequenceId{9}, .tokens = Prompt(1, 3)};
  EXPECT_EQ(ReasonOf(Run(open, add).status()), Reason::kBlocksExhausted);
  // The pool can hold one more block, and the quota cannot.
  const BlockRef first = [&] {
    const auto taken = Run(open, AllocateBlocks{kFullAttention, 2});
    return std::get<AllocatedBlocks>(*taken).blocks.front().ref();
  }();
  EXPECT_EQ(ReasonOf(Run(open, AllocateBlocks{kFullAttention, 1}).status()),
            Reason::kTenantQuotaExceeded);
  EXPECT_EQ(ReasonOf(Run(blue, AllocateBlocks{kFullAttention, 1}).status()),
            Reason::kBlocksExhausted);
  ASSERT_TRUE(Run(open, FreeBlocks{kFullAttention, {first}}).ok());
  ASSERT_TRUE(Run(blue, AllocateBlocks{kFullAttention, 1}).ok());
  EXPECT_EQ(ReasonOf(Run(open, AllocateBlocks{kFullAttention, 1}).status()),
            Reason::kBlocksExhausted)
      << "one block is left of the quota, and none of the pool";
}

TEST_F(TenantsTest, CapacityCountsWhatATenantHoldsOfTheDefaultTenant) {
  Make({{.name = "open", .shares = true, .quota_blocks = {4, 4}}, {.name = "blue"}});
  const SessionId open = Open(kRed), trusted = Open(kDefaultTenant);
  Cache(trusted, Prompt(1, 3));
  ASSERT_TRUE(Run(trusted, AddSequence{.sequence = SequenceId{1}, .tokens = Prompt(1, 3)}).ok());
  const auto ask = [&](uint32_t blocks) {
    return std::get<CapacityAnswer>(*Run(open, QueryCapacity{.tokens = Prompt(1, blocks)}))
        .windows.at(0);
  };
  EXPECT_EQ(ask(4).blocks_now, 4u) << "its quota is the tighter limit, and it holds nothing";
  EXPECT_EQ(ask(4).available_blocks, 4u);
  ASSERT_TRUE(Run(open, AddSequence{.sequence = SequenceId{1}, .tokens = Prompt(1, 3)}).ok());
  EXPECT_EQ(ask(3).blocks_now, 1u);
  EXPECT_EQ(ask(3).available_blocks, 1u);
}

TEST_F(TenantsTest, CapacityTellsWhatAQuotaIsAndLeaves) {
  Make({{.name = "red", .quota_blocks = {4, kNoQuota}}, {.name = "blue"}});
  const SessionId red = Open(kRed), engine = Open(kDefaultTenant);
  Cache(red, Prompt(1, 2));
  ASSERT_TRUE(Run(red, AllocateBlocks{kFullAttention, 1}).ok());
  ASSERT_TRUE(Run(red, AddSequence{.sequence = SequenceId{50}, .tokens = Prompt(2, 1)}).ok());
  const auto ask = [&](SessionId session, QueryCapacity query) {
    return std::get<CapacityAnswer>(*Run(session, std::move(query))).windows.at(0);
  };
  // The tenant's cached blocks can be evicted.
  for (const WindowCapacity& told :
       {ask(red, {.tokens = Prompt(3, 1)}), ask(red, {.sequence = SequenceId{50}}),
        ask(engine, {.name_space = {.tenant = "red"}, .tokens = Prompt(3, 1)})}) {
    EXPECT_EQ(told.quota_blocks, 4u);
    EXPECT_EQ(told.quota_left_blocks, 2u);
    EXPECT_EQ(told.available_blocks, 2u);
  }
  for (const WindowCapacity& told :
       {ask(Open(kBlue), {.tokens = Prompt(3, 1)}), ask(engine, {.tokens = Prompt(3, 1)})}) {
    EXPECT_EQ(told.quota_blocks, std::nullopt);
    EXPECT_EQ(told.quota_left_blocks, std::nullopt);
  }
}

TEST_F(TenantsTest, AtItsQuotaATenantEvictsItsOwn) {
  Make({{.name = "red", .quota_blocks = {4, kNoQuota}}, {.name = "blue"}});
  const SessionId red = Open(kRed), blue = Open(kBlue);
  Cache(blue, Prompt(1, 6));
  for (TokenId first = 1; first <= 5; ++first) Cache(red, Prompt(first, 2));
  EXPECT_EQ(Used(kRed), 4u);
  EXPECT_EQ(Used(kBlue), 6u) << "though its blocks are the oldest, and there are free ones";
}

TEST_F(TenantsTest, WhenBlocksAreScarceWhoHasMostForItsShareGivesWay) {
  Make({{.name = "red", .share = 3}, {.name = "blue", .share = 1}});
  const SessionId red = Open(kRed), blue = Open(kBlue);
  Cache(red, Prompt(1, 12));
  for (TokenId first = 1; first <= 12; ++first) Cache(blue, Prompt(first, 2));
  EXPECT_EQ(Used(kRed) + Used(kBlue), kBlocks);
  EXPECT_GE(Used(kRed), 11u) << "three quarters are its share";
  // Alone it can have everything.
  for (TokenId first = 100; first <= 112; ++first) Cache(red, Prompt(first, 2));
  EXPECT_LE(Used(kBlue), 5u);
}

TEST_F(TenantsTest, TheHostTierHasItsOwnQuota) {
  Make({{.name = "red", .quota_blocks = {4, 2}}, {.name = "blue", .quota_blocks = {4, 0}}}, 8);
  const SessionId red = Open(kRed), blue = Open(kBlue);
  for (TokenId first = 1; first <= 6; ++first) {
    Cache(red, Prompt(first, 2));
    Cache(blue, Prompt(first, 2));
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
  }
  const auto uses = core_->lists().TenantUses();
  ASSERT_EQ(uses[1].uses.size(), 2u);
  EXPECT_EQ(uses[1].uses[1].used_blocks, 2u);
  EXPECT_EQ(uses[2].uses[1].used_blocks, 0u);
}

// Clients of five tenants that do anything, allowed or not.
class TenantsCrowdTest : public TenantsTest {
 protected:
  void Begin(uint32_t seed) {
    random_.seed(seed);
    Make({{.name = "red", .share = 2, .quota_blocks = {6, 3}},
          {.name = "blue", .quota_blocks = {9, kNoQuota}},
          {.name = "open", .shares = true, .quota_blocks = {5, 2}},
          {.name = "wide", .shares = true, .quota_blocks = {7, 2}}},
         Below(2) * 6);
    sessions_.clear();
    pins_.clear();
    for (uint16_t tenant = 0; tenant < 5; ++tenant) sessions_.push_back(Open(TenantId{tenant}));
  }
  // One operation of one client, then all copies, of which some fail.
  void Step(uint32_t step);

 private:
  // Whom and what an operation is about.
  struct Subject {
    SessionId session;
    SequenceId name;
    std::vector<TokenId> prompt;
    NamespaceKey key;
  };

  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  void Try(SessionId session, Operation operation) {
    Run(session, std::move(operation)).status().IgnoreError();
  }
  Subject DrawSubject();
  void Operate(const Subject& subject, uint32_t step);
  void Append(const Subject& subject);
  void Truncate(const Subject& subject);
  void Pin(const Subject& subject);
  void Unpin();
  void CompleteStep(SessionId session, uint64_t steps);

  std::mt19937 random_;
  std::vector<SessionId> sessions_;
  std::vector<PinId> pins_;
};

void TenantsCrowdTest::Step(uint32_t step) {
  now_ += absl::Milliseconds(1);
  Operate(DrawSubject(), step);
  for (const Order& copy : core_->TakeOrders()) {
    const bool fails = Below(20) == 0;
    core_->Complete(copy.lane, copy.ticket, fails ? absl::DataLossError("test") : absl::OkStatus(),
                    now_);
  }
  core_->CheckInvariants();  // Which holds every account against its quota.
}

TenantsCrowdTest::Subject TenantsCrowdTest::DrawSubject() {
  Subject subject;
  subject.session = sessions_[Below(5)];
  subject.name = SequenceId{1 + Below(3)};
  subject.prompt.resize(1 + Below(20));
  for (TokenId& token : subject.prompt) token = Below(2);
  // The default tenant's session can act for others, too: for a tenant that shares, in its own
  // namespace.
  if (subject.session == sessions_[0]) {
    subject.key.tenant = std::array{"", "", "red", "open"}[Below(4)];
  }
  return subject;
}

void TenantsCrowdTest::Operate(const Subject& subject, uint32_t step) {
  const auto& [session, name, prompt, key] = subject;
  switch (Below(12)) {
    case 0:
      return Try(session, FreeSequence{name});
    case 1:
      return Truncate(subject);
    case 2:
      return Try(session, OffloadPrefix{.name_space = key, .tokens = prompt});
    case 3:
      return Try(session, PrefetchPrefix{.name_space = key, .tokens = prompt});
    case 4:
      return Append(subject);
    case 5:
      return Try(session, ForkSequence{name, SequenceId{1 + Below(3)}});
    case 6:
      core_->Maintain(now_, 4);
      return;
    case 7:
      return Pin(subject);
    case 8:
      return Unpin();
    case 9:
      if (Below(4) == 0)
        core_->prefixes().Invalidate(PromptOf(key, {}), now_).status().IgnoreError();
      if (Below(16) == 0) core_->ResetPrefixCache(now_);
      return;
    case 10:
      return CompleteStep(session, uint64_t{step} + 1);
    default:
      return Try(session, AddSequence{.sequence = name, .name_space = key, .tokens = prompt});
  }
}

void TenantsCrowdTest::Append(const Subject& subject) {
  const auto found = core_->sequences().FindSequence(subject.session, subject.name);
  if (!found.ok()) return;
  const std::vector<TokenId> next(1 + Below(6), Below(2));
  Try(subject.session, AppendTokens{.sequence = subject.name,
                                    .tokens = next,
                                    .computed_tokens = (*found)->token_count,
                                    .known_losses = (*found)->losses});
}

void TenantsCrowdTest::Truncate(const Subject& subject) {
  const auto found = core_->sequences().FindSequence(subject.session, subject.name);
  if (!found.ok()) return;
  Try(subject.session, TruncateSequence{subject.name, 1 + Below((*found)->token_count)});
}

void TenantsCrowdTest::Pin(const Subject& subject) {
  const auto pinned =
      Run(subject.session, PinPrefix{.name_space = subject.key, .tokens = subject.prompt});
  if (pinned.ok()) pins_.push_back(std::get<PinnedPrefix>(*pinned).pin);
}

void TenantsCrowdTest::Unpin() {
  if (pins_.empty()) return;
  core_->prefixes().Unpin(pins_.back(), now_).IgnoreError();
  pins_.pop_back();
}

void TenantsCrowdTest::CompleteStep(SessionId session, uint64_t steps) {
  core_->BeginBatch(session, {.step = steps, .completed_step = steps - Below(3) % steps}, now_)
      .IgnoreError();
}

TEST_F(TenantsCrowdTest, KeepsToItsQuotas) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Begin(seed);
    for (uint32_t step = 0; step < 300; ++step) Step(step);
  }
}

// A block that must be offloaded skips a tier that could not charge its copy.
TEST_F(TenantsTest, ACopyThatCannotBeChargedIsGivenUp) {
  std::vector<TierSpec> tiers;
  for (const uint32_t blocks : {2, 3, 3}) {
    tiers.push_back({.name = DefaultTierName(Tier(tiers.size())),
                     .blocks = {blocks},
                     .min_priority = Priority{0}});
  }
  core_ = *BlockManager::Create(
      {.layout = TinyLayout(kTokensPerBlock),
       .tiers = std::move(tiers),
       .pin_budget_permille = 1000,
       .epoch = Epoch{1},
       .tenants = {{.name = "red", .quota_blocks = {kNoQuota, 1, kNoQuota, kNoQuota}}}});
  const SessionId anybody = Open(kDefaultTenant);
  const NamespaceKey red{.tenant = "red"};
  const std::vector<TokenId> path = Prompt(100, 2), pinned = Prompt(300, 1);
  const auto settle = [&] {
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
    core_->CheckInvariants();
  };
  Cache(anybody, path, red);
  ASSERT_TRUE(Run(anybody, OffloadPrefix{.name_space = red, .tokens = path}).ok());
  settle();
  // Its first block is onboarded and leaves a copy in the second tier; the other is in the third.
  const std::vector<TokenId> first(path.begin(), path.begin() + kTokensPerBlock);
  ASSERT_TRUE(Run(anybody, PrefetchPrefix{.name_space = red, .tokens = first}).ok());
  settle();
  Cache(anybody, pinned, red);
  ASSERT_TRUE(Run(anybody, OffloadPrefix{.name_space = red, .tokens = pinned}).ok());
  settle();
  ASSERT_TRUE(Run(anybody, PinPrefix{.name_space = red, .tokens = pinned}).ok());
  // Fills the whole first tier.
  const auto added =
      Run(anybody, AddSequence{.sequence = SequenceId{77}, .tokens = Prompt(500, 2)});
  EXPECT_TRUE(added.ok()) << added.status();
  settle();
  for (const TreeEntry& entry : core_->DumpTree(kFullAttention)) {
    if (entry.tokens.front() == 300) continue;
    EXPECT_EQ(entry.tier, Tier{2});
    EXPECT_TRUE(entry.lower.empty());
  }
}

}  // namespace
}  // namespace pagoda
