// Tenants: the blocks that each one sees, the objects that it can end, and the events about it.
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "manager/accounts/tenants.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/pin_table.h"
#include "tests/manager/accounts/tenants_fixture.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

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

TEST_F(TenantsTest, ASharingTenantPublishesToTheDefaultTenant) {
  MakeThree();
  const SessionId open = Open(kOpen), red = Open(kRed), trusted = Open(kDefaultTenant);
  const std::vector<TokenId> prompt = Prompt(1, 3);
  Cache(open, prompt);
  EXPECT_EQ(Used(kDefaultTenant), 3u);
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
  EXPECT_TRUE(Run(Open(kDefaultTenant), MatchPrefix{.name_space = theirs, .tokens = {1, 2}}).ok())
      << "sessions of the default tenant are trusted";
}

// --- Whom a sequence is charged to ---

TEST_F(TenantsTest, ATrustedSessionNamesWhomASequenceIsChargedTo) {
  Make({{.name = "red"},
        {.name = "blue"},
        {.name = "open", .shares = true, .quota_blocks = {4, 4}}});
  const SessionId engine = Open(kDefaultTenant), red = Open(kRed);
  const auto add = [](uint64_t id, TokenId first, uint32_t blocks, const std::string& tenant) {
    return AddSequence{
        .sequence = SequenceId{id}, .tokens = Prompt(first, blocks), .tenant = tenant};
  };
  ASSERT_TRUE(Run(engine, add(1, 1, 3, "open")).ok());
  EXPECT_EQ(Used(kOpen), 3u);
  EXPECT_EQ(Used(kDefaultTenant), 0u);
  EXPECT_EQ(core_->lists().TenantUses()[kOpen.value()].sequences, 1u);
  const auto left = Run(engine, QueryCapacity{.tokens = Prompt(2, 1), .tenant = "open"});
  EXPECT_EQ(std::get<CapacityAnswer>(*left).windows.at(0).quota_left_blocks, 1u);
  // The tenant's quota bounds the sequence, however it grows. It bounds no other tenant.
  EXPECT_EQ(ReasonOf(Run(engine, add(2, 2, 2, "open")).status()), Reason::kTenantQuotaExceeded);
  EXPECT_EQ(ReasonOf(Run(engine, ReserveTokens{SequenceId{1}, 2 * kTokensPerBlock}).status()),
            Reason::kInvalidCount);
  ASSERT_TRUE(Run(engine, add(3, 2, 1, "open")).ok());
  EXPECT_EQ(ReasonOf(Run(engine, ReserveTokens{SequenceId{1}, 1}).status()),
            Reason::kTenantQuotaExceeded);
  ASSERT_TRUE(Run(engine, FreeSequence{SequenceId{3}}).ok());
  ASSERT_TRUE(Run(engine, ForkSequence{SequenceId{1}, SequenceId{3}}).ok());
  EXPECT_EQ(core_->lists().TenantUses()[kOpen.value()].sequences, 2u)
      << "a fork is charged likewise";
  ASSERT_TRUE(Run(engine, FreeSequence{SequenceId{3}}).ok());
  ASSERT_TRUE(Run(engine, add(4, 3, 6, "")).ok());
  ASSERT_TRUE(Run(red, add(4, 3, 6, "red")).ok()) << "it may name itself";
  // Its published blocks belong to the namespace, whose tenant is charged for them when nothing
  // holds them.
  ASSERT_TRUE(
      Run(engine, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 3 * kTokensPerBlock})
          .ok());
  ASSERT_TRUE(Run(engine, FreeSequence{SequenceId{1}}).ok());
  EXPECT_EQ(Used(kOpen), 0u);
  EXPECT_EQ(Used(kDefaultTenant), 9u);
  EXPECT_GT(Match(engine, Prompt(1, 3)), 0u);
}

TEST_F(TenantsTest, WhoIsNotTrustedHasNothingChargedToOthers) {
  MakeThree();
  const auto refusals = [&](SessionId session, const NamespaceKey& name_space,
                            const std::string& tenant) {
    const AddSequence add{.sequence = SequenceId{1},
                          .name_space = name_space,
                          .tokens = Prompt(1, 1),
                          .tenant = tenant};
    const QueryCapacity query{.name_space = name_space, .tokens = Prompt(1, 1), .tenant = tenant};
    return std::vector{ReasonOf(Run(session, add).status()),
                       ReasonOf(Run(session, query).status())};
  };
  const auto both = [](Reason reason) { return std::vector{reason, reason}; };
  for (const TenantId tenant : {kRed, kOpen}) {
    const SessionId session = Open(tenant);
    EXPECT_EQ(refusals(session, {}, "blue"), both(Reason::kPermissionDenied));
    EXPECT_EQ(refusals(session, {}, "nobody"), both(Reason::kPermissionDenied))
        << "it does not learn who there is";
  }
  const SessionId trusted = Open(kDefaultTenant);
  EXPECT_EQ(refusals(trusted, {}, "nobody"), both(Reason::kUnknownTenant));
  EXPECT_EQ(refusals(trusted, {.tenant = "red"}, "blue"), both(Reason::kInvalidArgument))
      << "nobody else holds a tenant's own blocks";
  EXPECT_EQ(refusals(trusted, {.tenant = "red"}, "red"), both(Reason::kNone));
  Make({});
  EXPECT_EQ(refusals(Open(kDefaultTenant), {}, "red"), both(Reason::kUnknownTenant));
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

// Two tenants share, and an operator caches for everyone.
TEST_F(TenantsTest, WhoSharesSeesAndEndsItsOwnPinsAlone) {
  Make({{.name = "one", .shares = true}, {.name = "two", .shares = true}});
  const SessionId one = Open(TenantId{1}), two = Open(TenantId{2}), trusted = Open(kDefaultTenant);
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
  const SessionId red = Open(kRed), trusted = Open(kDefaultTenant);
  Cache(red, Prompt(1, 2));
  const auto pinned =
      Run(trusted, PinPrefix{.name_space = {.tenant = "red"}, .tokens = Prompt(1, 2)});
  const PinId pin = std::get<PinnedPrefix>(*pinned).pin;
  ASSERT_NE(pin, PinId{});
  EXPECT_EQ(ReasonOf(Run(red, UnpinPrefix{pin}).status()), Reason::kUnknownPin);
  EXPECT_TRUE(Run(trusted, UnpinPrefix{pin}).ok());
}

TEST_F(TenantsTest, SharedBlocksAreInvalidatedByTheDefaultTenantAlone) {
  MakeThree();
  const SessionId open = Open(kOpen), red = Open(kRed), trusted = Open(kDefaultTenant);
  Cache(trusted, Prompt(1, 2));
  Cache(red, Prompt(1, 3));
  const auto forget = [&](SessionId session) {
    return Run(session, InvalidatePrefix{.tokens = Prompt(1, 1)});
  };
  EXPECT_EQ(ReasonOf(forget(open).status()), Reason::kPermissionDenied);
  EXPECT_EQ(ReasonOf(Run(open, InvalidatePrefix{}).status()), Reason::kPermissionDenied);
  EXPECT_EQ(Used(kDefaultTenant), 2u);
  EXPECT_EQ(std::get<InvalidatedPrefix>(*forget(red)).removed_blocks, 3u) << "its own";
  EXPECT_EQ(Used(kDefaultTenant), 2u);
  EXPECT_EQ(std::get<InvalidatedPrefix>(*forget(trusted)).removed_blocks, 2u);
}

TEST_F(TenantsTest, SharedBlocksAreOffloadedByTheDefaultTenantAlone) {
  Make({{.name = "red"}, {.name = "blue"}, {.name = "open", .shares = true}}, 4);
  const SessionId open = Open(kOpen), red = Open(kRed), trusted = Open(kDefaultTenant);
  Cache(trusted, Prompt(1, 2));
  Cache(red, Prompt(1, 2));
  const auto offload = [&](SessionId session) {
    return Run(session, OffloadPrefix{.tokens = Prompt(1, 2)});
  };
  EXPECT_EQ(ReasonOf(offload(open).status()), Reason::kPermissionDenied);
  EXPECT_EQ(core_->Stats().windows[0].counters.offloaded_blocks, 0u);
  EXPECT_EQ(std::get<OffloadedPrefix>(*offload(red)).blocks, 2u) << "its own";
  EXPECT_EQ(std::get<OffloadedPrefix>(*offload(trusted)).blocks, 2u);
}

// The common system prompt is to be kept; a tenant that shares wants it evicted first.
class SharedRetentionTest : public TenantsTest {
 protected:
  static SequenceRetention At(uint8_t priority,
                              absl::Duration duration = absl::InfiniteDuration()) {
    return {.ranges = {{.token_start = 0,
                        .retention = {.priority = Priority{priority}, .duration = duration}}},
            .generated = std::nullopt};
  }
  uint32_t Set(SessionId session, const std::vector<TokenId>& prompt,
               const SequenceRetention& retention) {
    const auto set = Run(session, SetRetention{.tokens = prompt, .retention = retention});
    EXPECT_TRUE(set.ok()) << set.status();
    return set.ok() ? std::get<RetentionSet>(*set).blocks : 0;
  }
  // Adds, computes and frees a prompt with its own retention.
  void CacheAt(SessionId session, const std::vector<TokenId>& prompt,
               const SequenceRetention& retention) {
    const SequenceId name{++last_sequence_};
    const auto computed = static_cast<uint32_t>(prompt.size());
    EXPECT_TRUE(
        Run(session, AddSequence{.sequence = name, .tokens = prompt, .retention = retention}).ok());
    EXPECT_TRUE(Run(session, CommitTokens{.sequence = name, .computed_tokens = computed}).ok());
    EXPECT_TRUE(Run(session, FreeSequence{name}).ok());
  }
  // The cached blocks of the prompt.
  std::vector<int> Priorities(const std::vector<TokenId>& prompt, const NamespaceKey& key = {}) {
    std::vector<int> priorities;
    const absl::StatusOr<InspectedPrefix> found =
        core_->lists().InspectPrefix(PromptOf(key, prompt));
    for (const InspectedBlock& block : found->blocks) {
      priorities.push_back(block.priority.value());
    }
    return priorities;
  }
};

TEST_F(SharedRetentionTest, ATenantOnlyRaisesWhatIsShared) {
  MakeThree();
  const SessionId open = Open(kOpen), trusted = Open(kDefaultTenant);
  const std::vector<TokenId> prompt = Prompt(1, 2);
  Cache(trusted, prompt);
  EXPECT_EQ(Set(open, prompt, At(0)), 0u);
  EXPECT_EQ(Priorities(prompt), std::vector<int>({35, 35}));
  EXPECT_EQ(Set(open, prompt, At(60)), 2u);
  EXPECT_EQ(Priorities(prompt), std::vector<int>({60, 60}));
  EXPECT_EQ(Set(open, prompt, At(59)), 0u);
  EXPECT_EQ(Set(open, prompt, At(100, absl::Seconds(1))), 0u) << "then it would be at 35";
  EXPECT_EQ(Priorities(prompt), std::vector<int>({60, 60}));
  EXPECT_EQ(Set(trusted, prompt, At(20)), 2u);
  EXPECT_EQ(Set(open, prompt, At(30)), 0u) << "a wish below the default is none";
  EXPECT_EQ(Set(open, prompt, At(50, absl::Seconds(1))), 2u) << "and then at 35";
  now_ += absl::Seconds(2);
  core_->Maintain(now_, 0);
  EXPECT_EQ(Priorities(prompt), std::vector<int>({35, 35}));
}

TEST_F(SharedRetentionTest, ATenantMayDoAsItLikesWithItsOwn) {
  MakeThree();
  const SessionId red = Open(kRed), trusted = Open(kDefaultTenant);
  const std::vector<TokenId> prompt = Prompt(1, 2);
  CacheAt(red, prompt, At(80));
  EXPECT_EQ(Set(red, prompt, At(0)), 2u);
  EXPECT_EQ(Priorities(prompt, {.tenant = "red"}), std::vector<int>({0, 0}));
  CacheAt(red, prompt, At(10));
  EXPECT_EQ(Priorities(prompt, {.tenant = "red"}), std::vector<int>({10, 10}));
  const auto set = Run(
      trusted, SetRetention{.name_space = {.tenant = "red"}, .tokens = prompt, .retention = At(5)});
  EXPECT_EQ(std::get<RetentionSet>(*set).blocks, 2u) << "the default tenant's sessions are trusted";
}

// The first block is matched. The second one is computed again, and the cached one is canonical.
TEST_F(SharedRetentionTest, ASequencesWishOnlyRaisesWhatIsShared) {
  MakeThree();
  const SessionId open = Open(kOpen), trusted = Open(kDefaultTenant);
  const std::vector<TokenId> prompt = Prompt(1, 2);
  Cache(trusted, prompt);
  CacheAt(open, prompt, At(0));
  EXPECT_EQ(Priorities(prompt), std::vector<int>({35, 35}));
  CacheAt(open, prompt, At(90));
  EXPECT_EQ(Priorities(prompt), std::vector<int>({90, 90}));
  CacheAt(open, prompt, At(100, absl::Seconds(1)));
  EXPECT_EQ(Priorities(prompt), std::vector<int>({90, 90}));
  CacheAt(open, Prompt(2, 1), At(0));
  EXPECT_EQ(Priorities(Prompt(2, 1)), std::vector<int>({0})) << "nobody had it before";
}

// A tail leaves when a longer block that begins with it enters. That block is kept at least as long
// as the tail: if the tail was copied, if it was taken over, and if the longer block was there.
TEST_F(SharedRetentionTest, ATailThatIsSharedIsNotLoweredByWhatFollows) {
  const std::vector<TokenId> tail = {1, 2, 3}, longer = {1, 2, 3, 4}, other = {1, 2, 3, 5};
  for (const uint8_t kept : {35, 80}) {
    for (const bool matches : {true, false}) {
      MakeThree();
      const SessionId open = Open(kOpen), trusted = Open(kDefaultTenant);
      CacheAt(trusted, tail, At(kept));
      const SequenceId holder{1000};
      if (!matches) {  // It begins before the tail is cached.
        ASSERT_TRUE(Run(trusted, InvalidatePrefix{}).ok());
        ASSERT_TRUE(
            Run(open, AddSequence{.sequence = holder, .tokens = longer, .retention = At(0)}).ok());
        CacheAt(trusted, tail, At(kept));
      } else {
        const auto added =
            Run(open, AddSequence{.sequence = holder, .tokens = longer, .retention = At(0)});
        ASSERT_EQ(std::get<AddedSequence>(*added).matched_tokens, 3u);
      }
      ASSERT_TRUE(Run(open, CommitTokens{.sequence = holder, .computed_tokens = 4}).ok());
      ASSERT_TRUE(Run(open, FreeSequence{holder}).ok());
      EXPECT_EQ(Priorities(longer), std::vector<int>({kept})) << "matches: " << matches;
      // A tail that a cached block begins with is merged with that block.
      CacheAt(open, tail, At(100, absl::Seconds(1)));
      EXPECT_EQ(Priorities(longer), std::vector<int>({kept == 35 ? 100 : kept}));
    }
  }
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

// 16 blocks, of which 8 can be pinned: two for each of three tenants and the default tenant.
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
  while (refusal.ok() && pins <= PinTable::kMaxPins) {
    refusal = core_->Execute(red, PinPrefix{.tokens = Prompt(1, 1)}, now_).status();
    if (refusal.ok()) ++pins;
  }
  EXPECT_EQ(ReasonOf(refusal), Reason::kPinBudgetExceeded);
  EXPECT_EQ(pins, PinTable::kMaxPins / 2) << "2 of the 4 shares";
  EXPECT_TRUE(Run(blue, PinPrefix{.tokens = Prompt(1, 1)}).ok());
}

TEST_F(TenantsTest, ATenantsPinHasAnEnd) {
  core_ = *BlockManager::Create({.layout = TinyLayout(kTokensPerBlock),
                                 .tiers = HostTiers({kBlocks}),
                                 .max_pin_lease = absl::Hours(1),
                                 .epoch = Epoch{1},
                                 .tenants = {{.name = "red"}}});
  const SessionId red = Open(kRed), trusted = Open(kDefaultTenant);
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

TEST_F(TenantsTest, ABlockThatLeftTheTreeIsItsOnlyHolders) {
  Make({{.name = "one", .shares = true}, {.name = "two", .shares = true}});
  const SessionId trusted = Open(kDefaultTenant), one = Open(TenantId{1}), two = Open(TenantId{2});
  // Adds and computes the prompt. Returns its first block, which the default tenant owns in the
  // tree.
  const auto start = [&](SessionId session, uint64_t name, const std::vector<TokenId>& prompt) {
    const auto added = Run(session, AddSequence{.sequence = SequenceId{name}, .tokens = prompt});
    const auto computed = static_cast<uint32_t>(prompt.size());
    EXPECT_TRUE(
        Run(session, CommitTokens{.sequence = SequenceId{name}, .computed_tokens = computed}).ok());
    return std::get<AddedSequence>(*added).tables.front().blocks.front().ref();
  };
  const auto refusal = [&](SessionId session, const BlockRef& ref) {
    return ReasonOf(Run(session, FreeBlocks{kFullAttention, {ref}}).status());
  };
  const BlockRef alone = start(one, 1, Prompt(1, 2));
  const BlockRef shared = start(one, 2, Prompt(2, 2));
  ASSERT_EQ(start(two, 1, Prompt(2, 2)), shared);
  EXPECT_EQ(refusal(one, alone), Reason::kStaleHandle) << "the default tenant's";

  ASSERT_TRUE(Run(trusted, InvalidatePrefix{.tokens = Prompt(1, 1)}).ok());
  ASSERT_TRUE(Run(trusted, InvalidatePrefix{.tokens = Prompt(2, 1)}).ok());
  EXPECT_EQ(refusal(one, alone), Reason::kForeignBlock) << "a sequence's of its own";
  EXPECT_EQ(refusal(two, alone), Reason::kStaleHandle) << "another tenant's";
  for (const SessionId session : {one, two}) {
    EXPECT_EQ(refusal(session, shared), Reason::kStaleHandle) << "the default tenant's still";
  }
  EXPECT_EQ(Used(TenantId{1}), 4u);
  EXPECT_EQ(Used(TenantId{2}), 3u) << "two blocks that both hold, and its copy of the second";
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
    EXPECT_EQ(event.tenant, stored->name_space->tenant == "red" ? kRed : kDefaultTenant);
  }
  // Both give up blocks for a third tenant. Each removal names blocks of one of them.
  ASSERT_TRUE(Run(blue, AllocateBlocks{kFullAttention, kBlocks}).ok());
  uint32_t removed_red = 0, removed_default_tenant = 0;
  for (const Event& event : core_->TakeEvents()) {
    if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
      (event.tenant == kRed ? removed_red : removed_default_tenant) += removed->blocks.size();
    } else {
      EXPECT_EQ(event.tenant, kBlue);
    }
  }
  EXPECT_EQ(removed_red, 6u);
  EXPECT_EQ(removed_default_tenant, 6u);
}

TEST(TenantTableTest, NamesAreChecked) {
  const auto refused = [](std::vector<TenantOptions> tenants, uint32_t default_tenant_share = 1) {
    return ReasonOf(TenantTable::Create(std::move(tenants), default_tenant_share).status()) ==
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
