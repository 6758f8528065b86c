#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/events/tree_model.h"
#include "tests/manager/services/record_change.h"
#include "tests/wire/event_messages.h"
#include "wire/message_json.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Event ToProto(decltype(Event::what) what) { return DecodedEvent({.what = std::move(what)}); }

TEST(WireEventsTest, ABlockHasTheExtrasOfItsOwnTokens) {
  StoredEvent stored{.blocks = {{.id = BlockId{3}, .token_count = 2},
                                {.id = BlockId{4}, .token_count = 3},
                                {.id = BlockId{5}, .token_count = 1}},
                     .tokens = {5, 6, 7, 8, 9, 10},
                     .extras = std::pmr::vector<TokenExtra>(6)};
  stored.extras[1].extra_id = 77;
  for (const uint32_t i : {3, 4}) {
    stored.extras[i].digest = {0x0706050403020100, 0, 0, 0xff00000000000000};
    stored.extras[i].item_offset = i + 6;
    stored.extras[i].in_item = true;
  }
  const v1::Event proto = ToProto(stored);
  ASSERT_EQ(proto.stored().blocks_size(), 3);
  EXPECT_THAT(proto.stored().blocks(0).extra_token_ids(), ElementsAre(0, 77));
  EXPECT_THAT(proto.stored().blocks(0).multimodal_items(), IsEmpty());
  EXPECT_THAT(proto.stored().blocks(1).tokens(), ElementsAre(7, 8, 9));
  EXPECT_THAT(proto.stored().blocks(1).extra_token_ids(), IsEmpty());
  ASSERT_EQ(proto.stored().blocks(1).multimodal_items_size(), 1);
  const v1::MultimodalItem& item = proto.stored().blocks(1).multimodal_items(0);
  EXPECT_EQ(item.token_start(), 1u) << "of the block";
  EXPECT_EQ(item.token_count(), 2u);
  EXPECT_EQ(item.item_offset(), 9u);
  std::string digest(32, '\0');
  for (char i = 0; i < 8; ++i) digest[i] = i;
  digest[31] = '\xff';
  EXPECT_EQ(item.digest(), digest);
  EXPECT_THAT(proto.stored().blocks(2).extra_token_ids(), IsEmpty());
  EXPECT_THAT(proto.stored().blocks(2).multimodal_items(), IsEmpty());
}

TEST(WireEventsTest, ANamespaceKeepsItsTenant) {
  const v1::Event proto = ToProto(
      StoredEvent{.name_space = NamespaceKey{
                      .lora_id = 1, .cache_salt = std::string("s"), .tenant = std::string("t")}});
  EXPECT_EQ(proto.stored().namespace_().tenant(), "t");
  EXPECT_EQ(proto.stored().namespace_().cache_salt(), "s");
}

TEST(WireEventsTest, AnUpdateHasWhatChanged) {
  const v1::Event tier = ToProto(UpdatedEvent{
      .id = BlockId{4}, .hash = BlockHash{9}, .tier = Change<Tier>{Tier(1), kPrimaryTier}});
  EXPECT_EQ(tier.updated().block_id(), 4u);
  EXPECT_EQ(tier.updated().block_hash(), 9u);
  EXPECT_EQ(tier.updated().tier().old_value(), v1::TIER_SECOND);
  EXPECT_EQ(tier.updated().tier().new_value(), v1::TIER_PRIMARY);
  EXPECT_FALSE(tier.updated().has_priority());
  const v1::Event priority =
      ToProto(UpdatedEvent{.priority = Change<Priority>{Priority{35}, Priority{0}}});
  EXPECT_FALSE(priority.updated().has_tier());
  EXPECT_EQ(priority.updated().priority().old_value(), 35u);
  EXPECT_EQ(priority.updated().priority().new_value(), 0u);
}

TEST(WireEventsTest, CopiesInFartherTiersAreListedNearestFirst) {
  const v1::Event stored = ToProto(StoredEvent{
      .blocks = {{.id = BlockId{3}, .lower = TierSet::FromBits(0b1010)}, {.id = BlockId{4}}}});
  EXPECT_THAT(stored.stored().blocks(0).lower_tiers(),
              ElementsAre(v1::TIER_SECOND, v1::TIER_FOURTH));
  EXPECT_THAT(stored.stored().blocks(1).lower_tiers(), IsEmpty());
  UpdatedEvent dropped{.id = BlockId{3}};
  dropped.lower = Change<TierSet>{TierSet::FromBits(0b1010), TierSet::FromBits(0b1000)};
  const v1::UpdatedEvent updated = ToProto(dropped).updated();
  EXPECT_FALSE(updated.has_tier());
  EXPECT_THAT(updated.lower_tiers().old_value(), ElementsAre(v1::TIER_SECOND, v1::TIER_FOURTH));
  EXPECT_THAT(updated.lower_tiers().new_value(), ElementsAre(v1::TIER_FOURTH));
  dropped.lower = Change<TierSet>{TierSet::FromBits(0b10), {}};
  EXPECT_TRUE(ToProto(dropped).updated().has_lower_tiers()) << "also where none is left";
  EXPECT_FALSE(ToProto(UpdatedEvent{}).updated().has_lower_tiers());
}

// One line for each type of event, as `pagodactl watch -o json` prints it. A change of a line is a
// change for every program that reads it: CHANGELOG.md names it.
TEST(WireEventsTest, EachTypeHasItsJson) {
  const auto line = [](decltype(Event::what) what) {
    return JsonOf(DecodedEvent({.revision = Revision{7},
                                .time = absl::UnixEpoch() + absl::Milliseconds(1500),
                                .what = std::move(what)}))
        .value();
  };
  EXPECT_EQ(
      line(CreatedEvent{.blocks_per_tier = {8, 0, 4}, .blocks = {BlockId{1}}}),
      R"({"revision":"7","window_size":0,"created":{"capacity":[{"tier":"TIER_PRIMARY","blocks":8},)"
      R"({"tier":"TIER_THIRD","blocks":4}],"block_ids":[1]},"time":"1970-01-01T00:00:01.500Z"})");
  EXPECT_EQ(
      line(StoredEvent{.parent_hash = BlockHash{8},
                       .parent = BlockId{3},
                       .first_token = 4,
                       .name_space = NamespaceKey{.lora_id = 1,
                                                  .cache_salt = std::string("s"),
                                                  .tenant = std::string("t")},
                       .blocks = {{.id = BlockId{4},
                                   .hash = BlockHash{9},
                                   .token_count = 2,
                                   .lower = TierSet::FromBits(0b10)}},
                       .tokens = {5, 6}}),
      R"({"revision":"7","window_size":0,"stored":{"namespace":{"cache_salt":"s","tenant":"t",)"
      R"("keyed":false,"lora_id":"1"},"blocks":[{"block_id":4,"block_hash":"9","tokens":[5,6],)"
      R"("tier":"TIER_PRIMARY","priority":35,"extra_token_ids":[],"multimodal_items":[],)"
      R"("token_count":0,"lower_tiers":["TIER_SECOND"],"key":""}],"content_hidden":false,)"
      R"("parent_hash":"8","parent_block_id":3},"time":"1970-01-01T00:00:01.500Z"})");
  EXPECT_EQ(line(UpdatedEvent{.id = BlockId{5},
                              .end_token = 8,
                              .hash = BlockHash{9},
                              .tier = Change<Tier>{kPrimaryTier, Tier(1)},
                              .lower = Change<TierSet>{{}, TierSet::FromBits(0b100)},
                              .priority = Change<Priority>{Priority{35}, Priority{80}}}),
            R"({"revision":"7","window_size":0,"updated":{"block_id":5,"block_hash":"9",)"
            R"("tier":{"old_value":"TIER_PRIMARY","new_value":"TIER_SECOND"},)"
            R"("priority":{"old_value":35,"new_value":80},)"
            R"("lower_tiers":{"old_value":[],"new_value":["TIER_THIRD"]}},)"
            R"("time":"1970-01-01T00:00:01.500Z"})");
  EXPECT_EQ(
      line(UpdatedEvent{
          .id = BlockId{5},
          .hash = BlockHash{9},
          .ended_pin = EndedPin{PinId{3}, PinEnd::kPrefixLeft, RemovalReason::kCleared}}),
      R"({"revision":"7","window_size":0,"updated":{"block_id":5,"block_hash":"9","ended_pin":)"
      R"({"pin_id":"3","why":"PIN_END_PREFIX_LEFT","removal":"REMOVAL_REASON_CLEARED"}},)"
      R"("time":"1970-01-01T00:00:01.500Z"})");
  EXPECT_EQ(line(RemovedEvent{.blocks = {BlockId{4}}, .hashes = {BlockHash{9}}, .end_tokens = {6}}),
            R"({"revision":"7","window_size":0,"removed":{"reason":"REMOVAL_REASON_EVICTED",)"
            R"("block_ids":[4],"block_hashes":["9"],"scope":"REMOVAL_SCOPE_UNSPECIFIED"},)"
            R"("time":"1970-01-01T00:00:01.500Z"})");
}

TEST(WireEventsTest, EveryReasonHasItsOwn) {
  std::set<v1::RemovalReason> reasons;
  for (int i = 0; i <= static_cast<int>(RemovalReason::kLost); ++i) {
    const auto reason = static_cast<RemovalReason>(i);
    reasons.insert(ToProto(RemovedEvent{.reason = reason}).removed().reason());
  }
  // All reasons of the wire except "unspecified".
  EXPECT_EQ(reasons.size(), static_cast<size_t>(v1::RemovalReason_descriptor()->value_count()) - 1);
  EXPECT_FALSE(reasons.contains(v1::REMOVAL_REASON_UNSPECIFIED));
  EXPECT_EQ(ToProto(RemovedEvent{.reason = RemovalReason::kLost}).removed().reason(),
            v1::REMOVAL_REASON_LOST);
}

// --- To the wire and back ---

Tier TierOf(int tier) { return Tier(tier - v1::TIER_PRIMARY); }

TierSet TiersOf(const google::protobuf::RepeatedField<int>& tiers) {
  TierSet set;
  for (const int tier : tiers) set.Add(TierOf(tier));
  return set;
}

void AddExtras(const v1::StoredBlock& block, std::pmr::vector<TokenExtra>& extras) {
  const size_t begin = extras.size();
  extras.resize(begin + block.tokens_size());
  for (int i = 0; i < block.extra_token_ids_size(); ++i) {
    extras[begin + i].extra_id = block.extra_token_ids(i);
  }
  for (const v1::MultimodalItem& item : block.multimodal_items()) {
    for (uint32_t i = 0; i < item.token_count(); ++i) {
      TokenExtra& extra = extras[begin + item.token_start() + i];
      std::memcpy(extra.digest.data(), item.digest().data(), sizeof(extra.digest));
      extra.item_offset = item.item_offset() + i;
      extra.in_item = true;
    }
  }
}

StoredEvent StoredFrom(const v1::StoredEvent& proto) {
  StoredEvent stored{.name_space = NamespaceFromProto(proto.namespace_())};
  if (proto.has_parent_hash()) stored.parent_hash = BlockHash{proto.parent_hash()};
  if (proto.has_parent_block_id()) stored.parent = BlockId{proto.parent_block_id()};
  for (const v1::StoredBlock& block : proto.blocks()) {
    stored.blocks.push_back({.id = BlockId{block.block_id()},
                             .hash = BlockHash{block.block_hash()},
                             .token_count = static_cast<uint32_t>(block.tokens_size()),
                             .tier = TierOf(block.tier()),
                             .priority = Priority{static_cast<uint8_t>(block.priority())},
                             .lower = TiersOf(block.lower_tiers())});
    stored.tokens.insert(stored.tokens.end(), block.tokens().begin(), block.tokens().end());
    AddExtras(block, stored.extras);
  }
  return stored;
}

UpdatedEvent UpdatedFrom(const v1::UpdatedEvent& proto) {
  UpdatedEvent updated{.id = BlockId{proto.block_id()}, .hash = BlockHash{proto.block_hash()}};
  if (proto.has_tier()) {
    updated.tier = {TierOf(proto.tier().old_value()), TierOf(proto.tier().new_value())};
  }
  if (proto.has_lower_tiers()) {
    updated.lower = {TiersOf(proto.lower_tiers().old_value()),
                     TiersOf(proto.lower_tiers().new_value())};
  }
  if (proto.has_priority()) {
    updated.priority = {Priority{static_cast<uint8_t>(proto.priority().old_value())},
                        Priority{static_cast<uint8_t>(proto.priority().new_value())}};
  }
  return updated;
}

RemovedEvent RemovedFrom(const v1::RemovedEvent& proto) {
  RemovedEvent removed;
  for (const uint32_t id : proto.block_ids()) removed.blocks.emplace_back(id);
  for (const uint64_t hash : proto.block_hashes()) removed.hashes.emplace_back(hash);
  return removed;
}

Event EventFrom(const v1::Event& proto) {
  Event event{.revision = Revision{proto.revision()},
              .window = WindowFromProto(proto.window_size())};
  if (proto.has_stored()) event.what = StoredFrom(proto.stored());
  if (proto.has_updated()) event.what = UpdatedFrom(proto.updated());
  if (proto.has_removed()) event.what = RemovedFrom(proto.removed());
  return event;
}

// A reader of the messages alone gets the tree.
TEST(WireEventsTest, TheWireKeepsTheTree) {
  for (const WindowSize window : {kFullAttention, WindowSize{4}}) {
    TreeModel model(window, 1);
    EventRecorder recorder;
    ShadowTree shadow;
    for (int i = 0; i < 2000; ++i) {
      recorder.BeginOperation(absl::UnixEpoch());
      for (int change = 0; change < 4; ++change) RecordChange(model.Next(), window, recorder);
      for (const Event& event : recorder.Take()) {
        const v1::Event proto = DecodedEvent(event);
        const absl::Status applied = shadow.Apply(EventFrom(proto));
        ASSERT_TRUE(applied.ok()) << applied << "\n" << proto.DebugString();
      }
      const absl::Status compared = shadow.Compare(window, model.Entries());
      ASSERT_TRUE(compared.ok()) << compared;
    }
  }
}

}  // namespace
}  // namespace pagoda
