// Tenants: who sees what, who may have how much, and who gives way.
#include "manager/tenants.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "manager/block_manager.h"
#include "pools/error.h"
#include "tests/manager/testing.h"

namespace pagoda {
namespace {

constexpr TenantId kRed{1}, kBlue{2}, kOpen{3};
constexpr uint32_t kBlocks = 16;
constexpr uint32_t kTokensPerBlock = 4;

class TenantsTest : public ::testing::Test {
 protected:
  void Make(std::vector<TenantOptions> tenants, uint32_t secondary = 0) {
    core_ = *BlockManager::Create({.layout = TinyLayout(kTokensPerBlock),
                                   .primary_blocks = {kBlocks},
                                   .secondary_blocks = {secondary},
                                   .pin_budget_permille = 500,
                                   .epoch = Epoch{1},
                                   .tenants = std::move(tenants)});
  }
  void MakeThree() { Make({{.name = "red"}, {.name = "blue"}, {.name = "open", .shares = true}}); }
  SessionId Open(TenantId tenant) {
    return core_->OpenSession("test", absl::InfiniteDuration(), now_, tenant)->ref.id;
  }
  // A prompt of `blocks` blocks that begins with `first`.
  static std::vector<TokenId> Prompt(TokenId first, uint32_t blocks) {
    std::vector<TokenId> tokens(size_t{blocks} * kTokensPerBlock, 7);
    tokens.front() = first;
    return tokens;
  }
  absl::StatusOr<OperationResult> Run(SessionId session, Operation operation) {
    auto result = core_->Execute(session, operation, now_);
    core_->CheckInvariants();
    return result;
  }
  // Adds, computes and frees a prompt: it is cached then. Returns what was matched of it.
  uint32_t Cache(SessionId session, const std::vector<TokenId>& prompt, NamespaceKey key = {}) {
    const SequenceId name{++last_sequence_};
    const auto added =
        Run(session, AddSequence{.sequence = name, .name_space = key, .tokens = prompt});
    EXPECT_TRUE(added.ok()) << added.status();
    if (!added.ok()) return 0;
    const auto computed = static_cast<uint32_t>(prompt.size());
    EXPECT_TRUE(Run(session, CommitTokens{.sequence = name, .computed_tokens = computed}).ok());
    EXPECT_TRUE(Run(session, FreeSequence{name}).ok());
    return std::get<AddedSequence>(*added).matched_tokens;
  }
  uint32_t Match(SessionId session, const std::vector<TokenId>& prompt) {
    const auto matched = Run(session, MatchPrefix{.tokens = prompt});
    return std::get<MatchedPrefix>(*matched).matched_tokens;
  }
  uint32_t Used(TenantId tenant) const {
    return core_->TenantUses()[tenant.value()].uses.front().used_blocks;
  }

  absl::Time now_ = absl::UnixEpoch();
  uint64_t last_sequence_ = 0;
  std::unique_ptr<BlockManager> core_;
};

TEST_F(TenantsTest, OneTenantsPrefixesAreNotAnothers) {
  MakeThree();
  const SessionId red = Open(kRed), blue = Open(kBlue);
  const std::vector<TokenId> prompt = Prompt(1, 3);
  Cache(red, prompt);
  EXPECT_GT(Match(red, prompt), 0u);
  EXPECT_EQ(Match(blue, prompt), 0u);
  EXPECT_EQ(Cache(blue, prompt), 0u) << "the same tokens are computed again";
  EXPECT_EQ(Used(kRed), 3u);
  EXPECT_EQ(Used(kBlue), 3u);
}

TEST_F(TenantsTest, WhoSharesPublishesToTheCommons) {
  MakeThree();
  const SessionId open = Open(kOpen), red = Open(kRed), trusted = Open(kCommons);
  const std::vector<TokenId> prompt = Prompt(1, 3);
  Cache(open, prompt);
  EXPECT_EQ(Used(kCommons), 3u);
  EXPECT_EQ(Used(kOpen), 0u);
  EXPECT_EQ(Match(red, prompt), 0u) << "who does not share does not match either";
  EXPECT_GT(Match(trusted, prompt), 0u);
}

TEST_F(TenantsTest, ANamespaceOfAnotherTenantIsRefused) {
  MakeThree();
  const SessionId red = Open(kRed);
  const NamespaceKey theirs{.tenant = "blue"}, own{.tenant = "red"};
  const std::vector<Operation> operations = {
      AddSequence{.sequence = SequenceId{1}, .name_space = theirs, .tokens = {1}},
      MatchPrefix{.name_space = theirs, .tokens = {1, 2}},
      QueryCapacity{.name_space = theirs, .tokens = {1}},
      OffloadPrefix{.name_space = theirs, .tokens = {1}},
      PrefetchPrefix{.name_space = theirs, .tokens = {1}},
      PinPrefix{.name_space = theirs, .tokens = {1}},
      InvalidatePrefix{.name_space = theirs, .tokens = {1}},
      SetRetention{.name_space = theirs, .tokens = {1}}};
  for (const Operation& operation : operations) {
    EXPECT_EQ(ReasonOf(Run(red, operation).status()), Reason::kPermissionDenied)
        << "operation " << operation.index();
  }
  EXPECT_TRUE(Run(red, MatchPrefix{.name_space = own, .tokens = {1, 2}}).ok());
  EXPECT_TRUE(Run(Open(kCommons), MatchPrefix{.name_space = theirs, .tokens = {1, 2}}).ok())
      << "sessions of the commons are trusted";
}

TEST_F(TenantsTest, PinsOfOthersAreNotSeenAndNotEnded) {
  MakeThree();
  const SessionId red = Open(kRed), blue = Open(kBlue);
  Cache(red, Prompt(1, 2));
  const auto pinned = Run(red, PinPrefix{.tokens = Prompt(1, 2)});
  const PinId pin = std::get<PinnedPrefix>(*pinned).pin;
  ASSERT_NE(pin, PinId{});
  const auto theirs = std::get<ListedPins>(*Run(blue, ListPins{}));
  EXPECT_TRUE(theirs.pins.empty());
  EXPECT_EQ(theirs.pinned_blocks, 0u);
  EXPECT_EQ(std::get<ListedPins>(*Run(red, ListPins{})).pins.size(), 1u);
  EXPECT_EQ(ReasonOf(Run(blue, UnpinPrefix{pin}).status()), Reason::kUnknownPin);
  EXPECT_TRUE(Run(red, UnpinPrefix{pin}).ok());
}

// Two tenants share, and an operator caches for everybody.
TEST_F(TenantsTest, WhoSharesSeesAndEndsItsOwnPinsAlone) {
  Make({{.name = "one", .shares = true}, {.name = "two", .shares = true}});
  const SessionId one = Open(TenantId{1}), two = Open(TenantId{2}), trusted = Open(kCommons);
  const NamespaceKey salted{.cache_salt = "the first one's secret"};
  Cache(one, Prompt(1, 1), salted);
  Cache(trusted, Prompt(2, 1));
  const auto pin = [&](SessionId session, const std::vector<TokenId>& prompt,
                       const NamespaceKey& name_space) {
    return std::get<PinnedPrefix>(
               *Run(session, PinPrefix{.name_space = name_space, .tokens = prompt}))
        .pin;
  };
  const auto listed = [&](SessionId session) {
    return std::get<ListedPins>(*Run(session, ListPins{}));
  };
  const PinId secret = pin(one, Prompt(1, 1), salted);
  const PinId operators = pin(trusted, Prompt(2, 1), {});
  EXPECT_TRUE(listed(two).pins.empty());
  EXPECT_EQ(listed(two).pinned_blocks, 0u);
  ASSERT_EQ(listed(one).pins.size(), 1u);
  EXPECT_EQ(listed(one).pins[0].name_space, salted);
  EXPECT_EQ(listed(one).pinned_blocks, 1u);
  ASSERT_EQ(listed(trusted).pins.size(), 2u);
  EXPECT_EQ(listed(trusted).pins[0].tenant, "one");
  EXPECT_EQ(listed(trusted).pins[1].tenant, "");
  for (const PinId theirs : {secret, operators}) {
    EXPECT_EQ(ReasonOf(Run(two, UnpinPrefix{theirs}).status()), Reason::kUnknownPin);
  }
  EXPECT_TRUE(Run(one, UnpinPrefix{secret}).ok());
  EXPECT_EQ(ReasonOf(Run(one, UnpinPrefix{operators}).status()), Reason::kUnknownPin);
  EXPECT_TRUE(Run(trusted, UnpinPrefix{operators}).ok());
}

TEST_F(TenantsTest, AnOperatorsPinInATenantsNamespaceIsTheOperators) {
  MakeThree();
  const SessionId red = Open(kRed), trusted = Open(kCommons);
  Cache(red, Prompt(1, 2));
  const auto pinned =
      Run(trusted, PinPrefix{.name_space = {.tenant = "red"}, .tokens = Prompt(1, 2)});
  const PinId pin = std::get<PinnedPrefix>(*pinned).pin;
  ASSERT_NE(pin, PinId{});
  EXPECT_EQ(ReasonOf(Run(red, UnpinPrefix{pin}).status()), Reason::kUnknownPin);
  EXPECT_TRUE(Run(trusted, UnpinPrefix{pin}).ok());
}

TEST_F(TenantsTest, WhatIsSharedIsForgottenByTheCommonsAlone) {
  MakeThree();
  const SessionId open = Open(kOpen), red = Open(kRed), trusted = Open(kCommons);
  Cache(trusted, Prompt(1, 2));
  Cache(red, Prompt(1, 3));
  const auto forget = [&](SessionId session) {
    return Run(session, InvalidatePrefix{.tokens = Prompt(1, 1)});
  };
  EXPECT_EQ(ReasonOf(forget(open).status()), Reason::kPermissionDenied);
  EXPECT_EQ(ReasonOf(Run(open, InvalidatePrefix{}).status()), Reason::kPermissionDenied);
  EXPECT_EQ(Used(kCommons), 2u);
  EXPECT_EQ(std::get<InvalidatedPrefix>(*forget(red)).removed_blocks, 3u) << "its own";
  EXPECT_EQ(Used(kCommons), 2u);
  EXPECT_EQ(std::get<InvalidatedPrefix>(*forget(trusted)).removed_blocks, 2u);
}

TEST_F(TenantsTest, APinsEndIsToldOfTheTenantThatMadeIt) {
  MakeThree();
  const SessionId open = Open(kOpen);
  Cache(open, Prompt(1, 1));
  const auto pinned = Run(open, PinPrefix{.tokens = Prompt(1, 1)});
  core_->TakeEvents();
  ASSERT_TRUE(Run(open, UnpinPrefix{std::get<PinnedPrefix>(*pinned).pin}).ok());
  const EventBatch events = core_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(std::get<UpdatedEvent>(events[0].what).ended_pin.has_value());
  EXPECT_EQ(events[0].tenant, kOpen);
}

// 16 blocks, of which 8 may be pinned: two for each of three tenants and the commons.
TEST_F(TenantsTest, ATenantPinsNoMoreThanItsShareOfTheBudget) {
  MakeThree();
  const SessionId red = Open(kRed), blue = Open(kBlue);
  Cache(red, Prompt(1, 3));
  Cache(blue, Prompt(1, 1));
  EXPECT_EQ(ReasonOf(Run(red, PinPrefix{.tokens = Prompt(1, 3)}).status()),
            Reason::kPinBudgetExceeded);
  EXPECT_TRUE(Run(red, PinPrefix{.tokens = Prompt(1, 2)}).ok());
  EXPECT_TRUE(Run(red, PinPrefix{.tokens = Prompt(1, 2)}).ok()) << "a block counts once";
  const auto listed = std::get<ListedPins>(*Run(red, ListPins{}));
  EXPECT_EQ(listed.pinned_blocks, 2u);
  EXPECT_EQ(listed.budget_blocks, 2u);
  EXPECT_TRUE(Run(blue, PinPrefix{.tokens = Prompt(1, 1)}).ok());
}

TEST_F(TenantsTest, OneTenantsPinsDoNotRefuseAnothers) {
  Make({{.name = "red", .share = 2}, {.name = "blue"}});
  const SessionId red = Open(kRed), blue = Open(kBlue);
  Cache(red, Prompt(1, 1));
  Cache(blue, Prompt(1, 1));
  size_t pins = 0;
  absl::Status refusal;
  while (refusal.ok() && pins <= BlockManager::kMaxPins) {
    refusal = core_->Execute(red, PinPrefix{.tokens = Prompt(1, 1)}, now_).status();
    if (refusal.ok()) ++pins;
  }
  EXPECT_EQ(ReasonOf(refusal), Reason::kPinBudgetExceeded);
  EXPECT_EQ(pins, BlockManager::kMaxPins / 2) << "2 of the 4 shares";
  EXPECT_TRUE(Run(blue, PinPrefix{.tokens = Prompt(1, 1)}).ok());
}

TEST_F(TenantsTest, ATenantsPinHasAnEnd) {
  core_ = *BlockManager::Create({.layout = TinyLayout(kTokensPerBlock),
                                 .primary_blocks = {kBlocks},
                                 .max_pin_lease = absl::Hours(1),
                                 .epoch = Epoch{1},
                                 .tenants = {{.name = "red"}}});
  const SessionId red = Open(kRed), trusted = Open(kCommons);
  Cache(red, Prompt(1, 1));
  Cache(trusted, Prompt(1, 1));
  EXPECT_EQ(ReasonOf(Run(red, PinPrefix{.tokens = Prompt(1, 1),
                                        .lease = absl::Hours(1) + absl::Milliseconds(1)})
                         .status()),
            Reason::kInvalidArgument);
  EXPECT_TRUE(Run(red, PinPrefix{.tokens = Prompt(1, 1), .lease = absl::Minutes(1)}).ok());
  EXPECT_TRUE(Run(red, PinPrefix{.tokens = Prompt(1, 1)}).ok());
  EXPECT_TRUE(Run(trusted, PinPrefix{.tokens = Prompt(1, 1)}).ok());
  const auto listed = std::get<ListedPins>(*Run(trusted, ListPins{}));
  ASSERT_EQ(listed.pins.size(), 3u);
  EXPECT_EQ(listed.pins[0].expires, now_ + absl::Minutes(1));
  EXPECT_EQ(listed.pins[1].expires, now_ + absl::Hours(1)) << "without a lease the longest";
  EXPECT_EQ(listed.pins[2].expires, absl::InfiniteFuture());
}

TEST_F(TenantsTest, AnothersBlockIsRefusedWithoutSayingWhatItIs) {
  MakeThree();
  const SessionId red = Open(kRed), blue = Open(kBlue);
  const auto taken = Run(red, AllocateBlocks{kFullAttention, 1});
  const BlockRef ref = std::get<AllocatedBlocks>(*taken).blocks.front().ref();
  const auto freed = Run(blue, FreeBlocks{kFullAttention, {ref}});
  EXPECT_EQ(ReasonOf(freed.status()), Reason::kStaleHandle);
  const BlockRef never{ref.id, Generation{ref.generation.value() + 5}};
  const auto unknown = Run(blue, FreeBlocks{kFullAttention, {never}});
  EXPECT_EQ(ReasonOf(unknown.status()), Reason::kStaleHandle) << "as for a life that never was";
}

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

// What matches is room that the tenant has and that cannot be given up for the rest.
TEST_F(TenantsTest, AQuotaIsTheReasonWhereAPrefixMatches) {
  Make({{.name = "red", .quota_blocks = {4, kNoQuota}}, {.name = "blue"}});
  const SessionId red = Open(kRed);
  Cache(red, Prompt(1, 2));
  const auto more = Run(red, AddSequence{.sequence = SequenceId{9}, .tokens = Prompt(1, 5)});
  EXPECT_EQ(ReasonOf(more.status()), Reason::kTenantQuotaExceeded) << more.status();
}

TEST_F(TenantsTest, CapacityTellsWhatAQuotaIsAndLeaves) {
  Make({{.name = "red", .quota_blocks = {4, kNoQuota}}, {.name = "blue"}});
  const SessionId red = Open(kRed), engine = Open(kCommons);
  Cache(red, Prompt(1, 2));
  ASSERT_TRUE(Run(red, AllocateBlocks{kFullAttention, 1}).ok());
  ASSERT_TRUE(Run(red, AddSequence{.sequence = SequenceId{50}, .tokens = Prompt(2, 1)}).ok());
  const auto ask = [&](SessionId session, QueryCapacity query) {
    return std::get<CapacityAnswer>(*Run(session, std::move(query))).windows.at(0);
  };
  // What the tenant has cached can be given up.
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
  const auto too_long = Run(red, AddSequence{.sequence = SequenceId{99}, .tokens = Prompt(9, 5)});
  EXPECT_EQ(ReasonOf(too_long.status()), Reason::kTenantQuotaExceeded);
}

TEST_F(TenantsTest, WhenBlocksAreScarceWhoHasMostForItsShareGivesWay) {
  Make({{.name = "red", .share = 3}, {.name = "blue", .share = 1}});
  const SessionId red = Open(kRed), blue = Open(kBlue);
  Cache(red, Prompt(1, 12));
  for (TokenId first = 1; first <= 12; ++first) Cache(blue, Prompt(first, 2));
  EXPECT_EQ(Used(kRed) + Used(kBlue), kBlocks);
  EXPECT_GE(Used(kRed), 11u) << "three quarters are its share";
  // Alone it may have everything.
  for (TokenId first = 100; first <= 112; ++first) Cache(red, Prompt(first, 2));
  EXPECT_LE(Used(kBlue), 5u);
}

TEST_F(TenantsTest, TheHostTierHasItsOwnQuota) {
  Make({{.name = "red", .quota_blocks = {4, 2}}, {.name = "blue", .quota_blocks = {4, 0}}}, 8);
  const SessionId red = Open(kRed), blue = Open(kBlue);
  for (TokenId first = 1; first <= 6; ++first) {
    Cache(red, Prompt(first, 2));
    Cache(blue, Prompt(first, 2));
    for (const CopyOrder& copy : core_->TakeCopies()) {
      core_->CompleteCopy(copy.ticket, absl::OkStatus(), now_);
    }
  }
  const auto uses = core_->TenantUses();
  ASSERT_EQ(uses[1].uses.size(), 2u);
  EXPECT_EQ(uses[1].uses[1].used_blocks, 2u);
  EXPECT_EQ(uses[2].uses[1].used_blocks, 0u);
}

TEST_F(TenantsTest, EventsSayWhoseBlocksTheyAreOf) {
  MakeThree();
  const SessionId red = Open(kRed), blue = Open(kBlue), open = Open(kOpen);
  core_->TakeEvents();
  Cache(red, Prompt(1, 6));
  Cache(open, Prompt(1, 6));
  for (const Event& event : core_->TakeEvents()) {
    const auto* stored = std::get_if<StoredEvent>(&event.what);
    ASSERT_NE(stored, nullptr);
    EXPECT_EQ(event.tenant, stored->name_space->tenant == "red" ? kRed : kCommons);
  }
  // Both give up blocks for a third: each removal names blocks of one of them.
  ASSERT_TRUE(Run(blue, AllocateBlocks{kFullAttention, kBlocks}).ok());
  uint32_t removed_red = 0, removed_commons = 0;
  for (const Event& event : core_->TakeEvents()) {
    if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
      (event.tenant == kRed ? removed_red : removed_commons) += removed->blocks.size();
    } else {
      EXPECT_EQ(event.tenant, kBlue);
    }
  }
  EXPECT_EQ(removed_red, 6u);
  EXPECT_EQ(removed_commons, 6u);
}

TEST_F(TenantsTest, ARandomCrowdKeepsToItsQuotas) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    Make({{.name = "red", .share = 2, .quota_blocks = {6, 3}},
          {.name = "blue", .quota_blocks = {9, kNoQuota}},
          {.name = "open", .shares = true, .quota_blocks = {5, 2}}},
         below(2) * 6);
    std::vector<SessionId> sessions;
    for (uint16_t tenant = 0; tenant < 4; ++tenant) sessions.push_back(Open(TenantId{tenant}));
    for (uint32_t step = 0; step < 300; ++step) {
      now_ += absl::Milliseconds(1);
      const SessionId session = sessions[below(4)];
      const SequenceId name{1 + below(3)};
      std::vector<TokenId> prompt(1 + below(20));
      for (TokenId& token : prompt) token = below(2);
      const NamespaceKey key{.tenant = session == sessions[0] && below(2) == 0 ? "red" : ""};
      switch (below(8)) {
        case 0:
          Run(session, FreeSequence{name}).status().IgnoreError();
          break;
        case 1: {
          const auto found = core_->FindSequence(session, name);
          if (!found.ok()) break;
          Run(session, TruncateSequence{name, 1 + below((*found)->token_count)})
              .status()
              .IgnoreError();
          break;
        }
        case 2:
          Run(session, OffloadPrefix{.name_space = key, .tokens = prompt}).status().IgnoreError();
          break;
        case 3:
          Run(session, PrefetchPrefix{.name_space = key, .tokens = prompt}).status().IgnoreError();
          break;
        case 4: {
          const auto found = core_->FindSequence(session, name);
          if (!found.ok()) break;
          const std::vector<TokenId> next(1 + below(6), below(2));
          Run(session, AppendTokens{.sequence = name,
                                    .tokens = next,
                                    .computed_tokens = (*found)->token_count,
                                    .known_losses = (*found)->losses})
              .status()
              .IgnoreError();
          break;
        }
        case 5:
          Run(session, ForkSequence{name, SequenceId{1 + below(3)}}).status().IgnoreError();
          break;
        case 6:
          core_->Maintain(now_, 4);
          break;
        default:
          Run(session, AddSequence{.sequence = name, .name_space = key, .tokens = prompt})
              .status()
              .IgnoreError();
      }
      for (const CopyOrder& copy : core_->TakeCopies()) {
        const bool fails = below(20) == 0;
        core_->CompleteCopy(copy.ticket, fails ? absl::DataLossError("test") : absl::OkStatus(),
                            now_);
      }
      core_->CheckInvariants();  // Which holds every account against its quota.
    }
  }
}

TEST(TenantTableTest, NamesAreChecked) {
  const auto refused = [](std::vector<TenantOptions> tenants, uint32_t commons_share = 1) {
    return ReasonOf(TenantTable::Create(std::move(tenants), commons_share).status()) ==
           Reason::kInvalidArgument;
  };
  EXPECT_TRUE(refused({{.name = ""}}));
  EXPECT_TRUE(refused({{.name = std::string(129, 'x')}}));
  EXPECT_TRUE(refused({{.name = "a"}, {.name = "a"}}));
  EXPECT_TRUE(refused({{.name = "a", .share = 0}}));
  EXPECT_TRUE(refused({}, 0));
  EXPECT_TRUE(refused(std::vector<TenantOptions>(kMaxTenants + 1, {.name = "a"})));
  const auto table = TenantTable::Create({{.name = "a"}}, 1);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(*table->Find("a"), TenantId{1});
  EXPECT_EQ(ReasonOf(table->Find("b").status()), Reason::kUnknownTenant);
  EXPECT_EQ(ReasonOf(table->Find("").status()), Reason::kUnknownTenant);
}

}  // namespace
}  // namespace pagoda
