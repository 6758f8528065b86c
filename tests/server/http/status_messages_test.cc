// The messages of /api/v1 that no gRPC method gives, from hand-made rows.
#include "server/http/status_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wire/message_json.h"

namespace pagoda::server {
namespace {

using enum SlotState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::TierBlockMap Cells(const std::vector<SlotState>& slots, uint32_t max_cells) {
  v1::TierBlockMap map;
  SlotsToCells(slots, max_cells, &map);
  return map;
}

TEST(SlotsToCellsTest, ACellForEachBlockIfTheyFit) {
  const v1::TierBlockMap map = Cells({kFree, kCached, kActive, kPinned, kInFlight}, 8);
  EXPECT_EQ(map.blocks_per_cell(), 1u);
  EXPECT_THAT(map.free_blocks(), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_THAT(map.cached_blocks(), ElementsAre(0, 1, 0, 0, 0));
  EXPECT_THAT(map.active_blocks(), ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(map.pinned_blocks(), ElementsAre(0, 0, 0, 1, 0));
  EXPECT_THAT(map.in_flight_blocks(), ElementsAre(0, 0, 0, 0, 1));
}

TEST(SlotsToCellsTest, CellsOfTheSameSizeButTheLast) {
  const v1::TierBlockMap map = Cells({kFree, kFree, kCached, kCached, kActive, kActive, kFree}, 3);
  EXPECT_EQ(map.blocks_per_cell(), 3u);
  EXPECT_THAT(map.free_blocks(), ElementsAre(2, 0, 1));
  EXPECT_THAT(map.cached_blocks(), ElementsAre(1, 1, 0));
  EXPECT_THAT(map.active_blocks(), ElementsAre(0, 2, 0));
}

TEST(SlotsToCellsTest, TheSpareIsLeftOut) {
  const v1::TierBlockMap map = Cells({kFree, kSpare, kCached, kCached}, 3);
  EXPECT_THAT(map.free_blocks(), ElementsAre(1, 0, 0));
  EXPECT_THAT(map.cached_blocks(), ElementsAre(0, 1, 1));
  EXPECT_THAT(Cells({}, 3).free_blocks(), IsEmpty());
}

class EventToSummaryTest : public ::testing::Test {
 protected:
  v1::EventSummary Of(decltype(Event::what) what) {
    v1::EventSummary summary;
    EventToSummary({.revision = Revision{7},
                    .time = absl::UnixEpoch() + absl::Milliseconds(1500),
                    .tenant = TenantId{1},
                    .what = std::move(what)},
                   tenants_, &summary);
    return summary;
  }
  const TenantTable tenants_ = *TenantTable::Create({{.name = "acme"}}, 1);
};

TEST_F(EventToSummaryTest, SaysWhatWasStoredWithoutTheTokens) {
  StoredEvent stored{.parent = BlockId{3}, .name_space = NamespaceKey{.cache_salt = "s"}};
  for (uint32_t i = 0; i < 10; ++i) {
    stored.blocks.push_back({.id = BlockId{i}, .hash = BlockHash{i}, .token_count = 4});
  }
  stored.tokens.assign(40, 123'456);
  const v1::EventSummary summary = Of(stored);
  EXPECT_EQ(summary.revision(), 7u);
  EXPECT_EQ(summary.time().seconds(), 1);
  EXPECT_EQ(summary.time().nanos(), 500'000'000);
  EXPECT_EQ(summary.type(), v1::EVENT_TYPE_STORED);
  EXPECT_EQ(summary.window_size(), 0u);
  EXPECT_EQ(summary.tenant(), "acme");
  EXPECT_EQ(summary.blocks(), 10u);
  EXPECT_THAT(summary.block_ids(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(summary.stored().tokens(), 40u);
  EXPECT_EQ(summary.stored().parent_block_id(), 3u);
  EXPECT_EQ(summary.stored().namespace_().ShortDebugString(), R"(cache_salt: "s")");
  EXPECT_EQ(summary.stored().tier(), v1::TIER_PRIMARY);
  EXPECT_EQ(summary.stored().priority(), 35u);
  EXPECT_EQ(summary.stored().last_hash(), 9u);
  EXPECT_THAT(*JsonOf(summary), Not(HasSubstr("123456")));
  EXPECT_FALSE(Of(StoredEvent{.blocks = {{.id = BlockId{1}}}}).stored().has_parent_block_id());
}

TEST_F(EventToSummaryTest, SaysFromWhatToWhat) {
  const v1::EventSummary summary =
      Of(UpdatedEvent{.id = BlockId{5},
                      .tier = Change<Tier>{kPrimaryTier, Tier(1)},
                      .priority = Change<Priority>{Priority{35}, Priority{80}}});
  EXPECT_EQ(summary.type(), v1::EVENT_TYPE_UPDATED);
  EXPECT_THAT(summary.block_ids(), ElementsAre(5));
  EXPECT_EQ(summary.tier().ShortDebugString(), "old_value: TIER_PRIMARY new_value: TIER_SECOND");
  EXPECT_EQ(summary.priority().ShortDebugString(), "old_value: 35 new_value: 80");
  EXPECT_FALSE(summary.has_lower_tiers() || summary.has_ended_pin());
}

TEST_F(EventToSummaryTest, SaysWhereCopiesAre) {
  const TierSet below = TierSet::FromBits(0b10);
  UpdatedEvent updated{.id = BlockId{5}, .tier = Change<Tier>{Tier(1), kPrimaryTier}};
  updated.lower = Change<TierSet>{{}, below};
  const v1::EventSummary up = Of(updated);
  EXPECT_EQ(up.tier().ShortDebugString(), "old_value: TIER_SECOND new_value: TIER_PRIMARY");
  EXPECT_EQ(up.lower_tiers().ShortDebugString(), "new_value: TIER_SECOND");
  const v1::EventSummary stored = Of(StoredEvent{.blocks = {{.id = BlockId{1}, .lower = below}}});
  EXPECT_THAT(stored.stored().lower_tiers(), ElementsAre(v1::TIER_SECOND));
  EXPECT_THAT(Of(StoredEvent{.blocks = {{.id = BlockId{1}}}}).stored().lower_tiers(), IsEmpty());
}

TEST_F(EventToSummaryTest, SaysWhichPinEnded) {
  const v1::EventSummary summary = Of(
      UpdatedEvent{.id = BlockId{5},
                   .ended_pin = EndedPin{PinId{3}, PinEnd::kPrefixLeft, RemovalReason::kCleared}});
  EXPECT_EQ(summary.ended_pin().ShortDebugString(),
            "pin_id: 3 why: PIN_END_PREFIX_LEFT removal: REMOVAL_REASON_CLEARED");
}

TEST_F(EventToSummaryTest, SaysWhyBlocksLeft) {
  const v1::EventSummary one =
      Of(RemovedEvent{.reason = RemovalReason::kTakenOver, .blocks = {BlockId{4}}});
  EXPECT_EQ(one.type(), v1::EVENT_TYPE_REMOVED);
  EXPECT_EQ(one.reason(), v1::REMOVAL_REASON_TAKEN_OVER);
  EXPECT_EQ(one.scope(), v1::REMOVAL_SCOPE_UNSPECIFIED);
  EXPECT_THAT(one.block_ids(), ElementsAre(4));
  const v1::EventSummary all =
      Of(RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow});
  EXPECT_EQ(all.scope(), v1::REMOVAL_SCOPE_WINDOW);
  EXPECT_EQ(all.blocks(), 0u);
  const v1::EventSummary pools =
      Of(RemovedEvent{.reason = RemovalReason::kReleased, .scope = RemovedEvent::Scope::kPools});
  EXPECT_EQ(pools.scope(), v1::REMOVAL_SCOPE_POOLS);
  EXPECT_EQ(pools.blocks(), 0u);
}

TEST_F(EventToSummaryTest, PoolsAndRawBlocksAreBothCreated) {
  const v1::EventSummary pools = Of(CreatedEvent{.blocks_per_tier = {8, 0}});
  EXPECT_EQ(pools.type(), v1::EVENT_TYPE_CREATED);
  ASSERT_EQ(pools.capacity_size(), 1);
  EXPECT_EQ(pools.capacity(0).ShortDebugString(), "tier: TIER_PRIMARY blocks: 8");
  const v1::EventSummary blocks = Of(CreatedEvent{.blocks = {BlockId{1}, BlockId{2}}});
  EXPECT_EQ(blocks.blocks(), 2u);
  EXPECT_EQ(blocks.capacity_size(), 0);
}

// One line for each type of event, as GET /api/v1/events prints it. A change of a line is a change
// for every program that reads it: CHANGELOG.md names it.
TEST_F(EventToSummaryTest, EachTypeHasItsJson) {
  const auto line = [&](decltype(Event::what) what) { return JsonOf(Of(std::move(what))).value(); };
  EXPECT_EQ(
      line(CreatedEvent{.blocks_per_tier = {8, 0, 4}, .blocks = {BlockId{1}}}),
      R"({"revision":"7","type":"EVENT_TYPE_CREATED","window_size":0,"tenant":"acme","blocks":"1",)"
      R"("block_ids":[1],"capacity":[{"tier":"TIER_PRIMARY","blocks":8},{"tier":"TIER_THIRD",)"
      R"("blocks":4}],"reason":"REMOVAL_REASON_UNSPECIFIED","scope":"REMOVAL_SCOPE_UNSPECIFIED",)"
      R"("time":"1970-01-01T00:00:01.500Z"})");
  EXPECT_EQ(
      line(StoredEvent{.parent = BlockId{3},
                       .name_space = NamespaceKey{.lora_id = 1,
                                                  .cache_salt = std::string("s"),
                                                  .tenant = std::string("t")},
                       .blocks = {{.id = BlockId{4},
                                   .hash = BlockHash{9},
                                   .token_count = 2,
                                   .lower = TierSet::FromBits(0b10)}},
                       .tokens = {5, 6}}),
      R"({"revision":"7","type":"EVENT_TYPE_STORED","window_size":0,"tenant":"acme","blocks":"1",)"
      R"("block_ids":[4],"capacity":[],"stored":{"tokens":"2","namespace":{"cache_salt":"s",)"
      R"("tenant":"t","keyed":false,"lora_id":"1"},"tier":"TIER_PRIMARY",)"
      R"("lower_tiers":["TIER_SECOND"],"priority":35,"last_hash":"9","parent_block_id":3},)"
      R"("reason":"REMOVAL_REASON_UNSPECIFIED","scope":"REMOVAL_SCOPE_UNSPECIFIED",)"
      R"("time":"1970-01-01T00:00:01.500Z"})");
  EXPECT_EQ(
      line(UpdatedEvent{.id = BlockId{5},
                        .tier = Change<Tier>{kPrimaryTier, Tier(1)},
                        .lower = Change<TierSet>{{}, TierSet::FromBits(0b100)},
                        .priority = Change<Priority>{Priority{35}, Priority{80}}}),
      R"({"revision":"7","type":"EVENT_TYPE_UPDATED","window_size":0,"tenant":"acme","blocks":"1",)"
      R"("block_ids":[5],"capacity":[],"tier":{"old_value":"TIER_PRIMARY",)"
      R"("new_value":"TIER_SECOND"},"lower_tiers":{"old_value":[],"new_value":["TIER_THIRD"]},)"
      R"("priority":{"old_value":35,"new_value":80},"reason":"REMOVAL_REASON_UNSPECIFIED",)"
      R"("scope":"REMOVAL_SCOPE_UNSPECIFIED","time":"1970-01-01T00:00:01.500Z"})");
  EXPECT_EQ(
      line(UpdatedEvent{
          .id = BlockId{5},
          .ended_pin = EndedPin{PinId{3}, PinEnd::kPrefixLeft, RemovalReason::kCleared}}),
      R"({"revision":"7","type":"EVENT_TYPE_UPDATED","window_size":0,"tenant":"acme","blocks":"1",)"
      R"("block_ids":[5],"capacity":[],"ended_pin":{"pin_id":"3","why":"PIN_END_PREFIX_LEFT",)"
      R"("removal":"REMOVAL_REASON_CLEARED"},"reason":"REMOVAL_REASON_UNSPECIFIED",)"
      R"("scope":"REMOVAL_SCOPE_UNSPECIFIED","time":"1970-01-01T00:00:01.500Z"})");
  EXPECT_EQ(
      line(RemovedEvent{.blocks = {BlockId{4}}}),
      R"({"revision":"7","type":"EVENT_TYPE_REMOVED","window_size":0,"tenant":"acme","blocks":"1",)"
      R"("block_ids":[4],"capacity":[],"reason":"REMOVAL_REASON_EVICTED",)"
      R"("scope":"REMOVAL_SCOPE_UNSPECIFIED","time":"1970-01-01T00:00:01.500Z"})");
}

TEST(HistoryToProtoTest, HasAColumnForEachTotalAndTier) {
  const CacheInfo cache = {.tiers = {{.name = "hbm"}, {.name = "dram"}}};
  const StatusSample first{.time = absl::UnixEpoch() + absl::Seconds(2),
                           .lookup_tokens = 1,
                           .hit_tokens = 2,
                           .lower_hit_tokens = 3,
                           .allocated_blocks = 4,
                           .evicted_blocks = 5,
                           .offloaded_blocks = 6,
                           .onboarded_blocks = 7,
                           .copied_bytes = 8,
                           .events = 9,
                           .used = {10, 11}};
  StatusSample second = first;
  second.time += absl::Seconds(2);
  second.used = {12, 13};
  v1::StatusHistory history;
  HistoryToProto({first, second}, cache, &history);
  EXPECT_EQ(*JsonOf(history),
            R"({"times":["1970-01-01T00:00:02Z","1970-01-01T00:00:04Z"],)"
            R"("prefix_lookup_tokens_total":["1","1"],"prefix_hit_tokens_total":["2","2"],)"
            R"("lower_hit_tokens_total":["3","3"],"allocated_blocks_total":["4","4"],)"
            R"("evicted_blocks_total":["5","5"],"offloaded_blocks_total":["6","6"],)"
            R"("onboarded_blocks_total":["7","7"],"copied_bytes_total":["8","8"],)"
            R"("revision":["9","9"],"tiers":[)"
            R"({"tier":"TIER_PRIMARY","name":"hbm","used_blocks":["10","12"]},)"
            R"({"tier":"TIER_SECOND","name":"dram","used_blocks":["11","13"]}],)"
            R"("interval":"2s"})");
}

TEST(SubscriberRowToProtoTest, LagIsNeverNegative) {
  const TenantTable tenants = *TenantTable::Create({}, 1);
  const SubscriberRow row{.opened = absl::UnixEpoch(), .sent = Revision{10}};
  v1::SubscriberInfo info;
  SubscriberRowToProto(row, tenants, Revision{17}, &info);
  EXPECT_EQ(info.lag_events(), 7u);
  EXPECT_EQ(info.kind(), v1::SUBSCRIBER_KIND_WATCH);
  EXPECT_EQ(info.role(), v1::CALLER_ROLE_OPERATOR);
  SubscriberRowToProto(row, tenants, Revision{9}, &info);
  EXPECT_EQ(info.lag_events(), 0u);
}

}  // namespace
}  // namespace pagoda::server
