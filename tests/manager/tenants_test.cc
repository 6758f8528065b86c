// Tenants: who sees what, who ends what, and what events say of them.
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "manager/block_manager.h"
#include "manager/tenants.h"
#include "pools/error.h"
#include "tests/manager/tenants_fixture.h"
#include "tests/manager/testing.h"

namespace pagoda {
namespace {

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
