#include "events/event_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr TenantId kAlice{1};
constexpr uint8_t kPrimaryOnly = 1 << kPrimaryTier.value();
constexpr uint8_t kStoredOnly = 1 << 1;

std::vector<Event> Shown(const EventFilter& filter, const Event& event) {
  std::vector<Event> shown;
  filter.Apply(event, [&](const Event& part) { shown.push_back(part); });
  return shown;
}

StoredBlock Block(uint32_t id, Tier tier = kPrimaryTier) {
  return {.id = BlockId{id}, .hash = BlockHash{id + 100}, .token_count = 2, .tier = tier};
}

// Blocks 1 to 4, one below the other; 2 lies in the lower tier.
Event Chain() {
  StoredEvent stored{.blocks = {Block(1), Block(2, Tier(1)), Block(3), Block(4)},
                     .tokens = {1, 1, 2, 2, 3, 3, 4, 4}};
  return {.revision = Revision{9}, .what = stored};
}

TEST(EventFilterTest, NothingSaidIsEverything) {
  EXPECT_THAT(Shown({}, Chain()), ElementsAre(Chain()));
}

TEST(EventFilterTest, TypesAreThatOfTheEvent) {
  EXPECT_THAT(Shown({.types = kStoredOnly}, Chain()), SizeIs(1));
  EXPECT_THAT(Shown({.types = kStoredOnly}, {.what = RemovedEvent{}}), IsEmpty());
}

TEST(EventFilterTest, AStoredEventFallsIntoThePartsThatStay) {
  const std::vector<Event> shown = Shown({.tiers = kPrimaryOnly}, Chain());
  ASSERT_THAT(shown, SizeIs(2));
  const auto& first = std::get<StoredEvent>(shown[0].what);
  const auto& second = std::get<StoredEvent>(shown[1].what);
  EXPECT_THAT(first.blocks, ElementsAre(Block(1)));
  EXPECT_EQ(first.parent, kNoBlock);
  EXPECT_THAT(second.blocks, ElementsAre(Block(3), Block(4)));
  EXPECT_EQ(second.parent, BlockId{2});
  EXPECT_EQ(second.parent_hash, BlockHash{102});
  EXPECT_THAT(second.tokens, ElementsAre(3, 3, 4, 4));
  EXPECT_EQ(shown[1].revision, Revision{9});
}

TEST(EventFilterTest, AMoveConcernsBothTiersAndARemovalAll) {
  const Event move = {
      .what = UpdatedEvent{.id = BlockId{1}, .tier = Change<Tier>{kPrimaryTier, Tier(1)}}};
  const Event priority = {
      .what =
          UpdatedEvent{.id = BlockId{1}, .priority = Change<Priority>{Priority{1}, Priority{2}}}};
  const Event removal = {.what = RemovedEvent{.blocks = {BlockId{1}}, .hashes = {BlockHash{1}}}};
  for (const uint8_t tiers : {uint8_t{1}, uint8_t{2}}) {
    EXPECT_THAT(Shown({.tiers = tiers}, move), SizeIs(1));
    EXPECT_THAT(Shown({.tiers = tiers}, priority), SizeIs(1));
    EXPECT_THAT(Shown({.tiers = tiers}, removal), SizeIs(1));
  }
}

TEST(EventFilterTest, ABlockIsStoredInEachTierThatHasACopy) {
  Event event = Chain();
  std::get<StoredEvent>(event.what).blocks[2].lower = TierSet::FromBits(0b110);
  constexpr uint8_t kThirdOnly = 4;
  const std::vector<Event> shown = Shown({.tiers = kThirdOnly}, event);
  ASSERT_THAT(shown, SizeIs(1));
  EXPECT_THAT(std::get<StoredEvent>(shown[0].what).blocks, SizeIs(1));
  EXPECT_EQ(std::get<StoredEvent>(shown[0].what).blocks[0].id, BlockId{3});
  EXPECT_THAT(Shown({.tiers = 2 | kThirdOnly}, event), SizeIs(1)) << "blocks 2 and 3 together";
}

TEST(EventFilterTest, ACopyThatComesOrGoesConcernsItsTier) {
  UpdatedEvent dropped{.id = BlockId{1}};
  dropped.lower = Change<TierSet>{TierSet::FromBits(0b110), TierSet::FromBits(0b100)};
  EXPECT_THAT(Shown({.tiers = 1}, {.what = dropped}), IsEmpty());
  EXPECT_THAT(Shown({.tiers = 2}, {.what = dropped}), SizeIs(1));
  EXPECT_THAT(Shown({.tiers = 4}, {.what = dropped}), IsEmpty()) << "its copy there stays";
  // The block falls to its copy in the second tier; the copy in the third stays.
  dropped.tier = Change<Tier>{kPrimaryTier, Tier(1)};
  EXPECT_THAT(Shown({.tiers = 1}, {.what = dropped}), SizeIs(1));
  EXPECT_THAT(Shown({.tiers = 2}, {.what = dropped}), SizeIs(1));
  EXPECT_THAT(Shown({.tiers = 4}, {.what = dropped}), IsEmpty());
  // A priority concerns every tier, even if it changes together with something else.
  dropped.priority = Change<Priority>{Priority{35}, Priority{60}};
  EXPECT_THAT(Shown({.tiers = 4}, {.what = dropped}), SizeIs(1));
}

TEST(EventFilterTest, APoolsCapacityIsThatOfItsTier) {
  const Event pools = {.what = CreatedEvent{.blocks_per_tier = {8, 16}}};
  const std::vector<Event> shown = Shown({.tiers = kPrimaryOnly}, pools);
  ASSERT_THAT(shown, SizeIs(1));
  EXPECT_THAT(std::get<CreatedEvent>(shown[0].what).blocks_per_tier, ElementsAre(8, 0));
}

TEST(EventFilterTest, WindowsAndTenantsAreThoseOfTheEvent) {
  Event event = Chain();
  event.window = WindowSize{64};
  event.tenant = kAlice;
  EXPECT_THAT(Shown({.windows = {WindowSize{32}, WindowSize{64}}}, event), SizeIs(1));
  EXPECT_THAT(Shown({.windows = {kFullAttention}}, event), IsEmpty());
  EXPECT_THAT(Shown({.tenant = kAlice}, event), SizeIs(1));
  EXPECT_THAT(Shown({.tenant = TenantId{2}}, event), IsEmpty());
  EXPECT_THAT(Shown({.tenant = kAlice}, Chain()), IsEmpty());
  EXPECT_THAT(Shown({.tenant = kAlice, .default_tenant = true}, Chain()), SizeIs(1));
}

TEST(EventFilterTest, WhatEmptiesAWindowConcernsEveryTenant) {
  const Event cleared = {.what = RemovedEvent{.scope = RemovedEvent::Scope::kWindow}};
  EXPECT_THAT(Shown({.tiers = kPrimaryOnly, .tenant = kAlice}, cleared), SizeIs(1));
  const Event gone = {.what = RemovedEvent{.reason = RemovalReason::kReleased,
                                           .scope = RemovedEvent::Scope::kPools}};
  EXPECT_THAT(Shown({.tiers = kPrimaryOnly, .tenant = kAlice}, gone), SizeIs(1));
}

// Chain() under a salt of the namespace that tenants share.
Event SaltedChain(TenantId tenant = kDefaultTenant) {
  Event event = Chain();
  event.tenant = tenant;
  auto& stored = std::get<StoredEvent>(event.what);
  stored.name_space = SharedNamespace({.lora_id = 7, .cache_salt = "secret"});
  stored.extras.resize(stored.tokens.size());
  stored.extras[1].extra_id = 9;
  return event;
}

TEST(EventFilterTest, ATenantSeesNeitherTheSaltsOfTheDefaultTenantNorWhatIsStoredUnderThem) {
  const EventFilter alice{.tenant = kAlice, .default_tenant = true};
  const std::vector<Event> shown = Shown(alice, SaltedChain());
  ASSERT_THAT(shown, SizeIs(1));
  const auto& stored = std::get<StoredEvent>(shown[0].what);
  EXPECT_TRUE(stored.content_hidden);
  EXPECT_EQ(*stored.name_space, (NamespaceKey{.lora_id = 7}));
  EXPECT_THAT(stored.tokens, IsEmpty());
  EXPECT_THAT(stored.extras, IsEmpty());
  EXPECT_EQ(stored.blocks, std::get<StoredEvent>(Chain().what).blocks) << "the hashes tell";
  EXPECT_EQ(shown[0].revision, Revision{9});
}

TEST(EventFilterTest, WhatIsHiddenFallsIntoPartsToo) {
  const EventFilter alice{.tiers = kPrimaryOnly, .tenant = kAlice, .default_tenant = true};
  const std::vector<Event> shown = Shown(alice, SaltedChain());
  ASSERT_THAT(shown, SizeIs(2));
  for (const Event& part : shown) {
    EXPECT_TRUE(std::get<StoredEvent>(part.what).content_hidden);
    EXPECT_THAT(std::get<StoredEvent>(part.what).tokens, IsEmpty());
  }
  EXPECT_THAT(std::get<StoredEvent>(shown[1].what).blocks, ElementsAre(Block(3), Block(4)));
}

TEST(EventFilterTest, NothingElseIsHidden) {
  const EventFilter alice{.tenant = kAlice, .default_tenant = true};
  Event shared = Chain();
  EXPECT_THAT(Shown(alice, shared), ElementsAre(shared)) << "without a salt it is shared";
  EXPECT_THAT(Shown(alice, SaltedChain(kAlice)), ElementsAre(SaltedChain(kAlice))) << "its own";
  EXPECT_THAT(Shown({}, SaltedChain()), ElementsAre(SaltedChain())) << "an operator's";
}

TEST(EventFilterTest, APinsEndIsToldToOperatorsAndToItsTenant) {
  Event ended{.what = UpdatedEvent{.id = BlockId{1}, .ended_pin = EndedPin{.pin = PinId{3}}}};
  const EventFilter alice{.tenant = kAlice, .default_tenant = true};
  EXPECT_THAT(Shown(alice, ended), IsEmpty());
  EXPECT_THAT(Shown({}, ended), SizeIs(1));
  EXPECT_THAT(Shown({.tiers = kPrimaryOnly}, ended), SizeIs(1));
  ended.tenant = kAlice;
  EXPECT_THAT(Shown(alice, ended), SizeIs(1));
}

}  // namespace
}  // namespace pagoda
