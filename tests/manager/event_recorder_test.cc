#include "manager/event_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda {
namespace {

using ::testing::ElementsAre;

class EventRecorderTest : public ::testing::Test {
 protected:
  void Evicted(uint32_t id) {
    recorder_.Removed(kFullAttention, RemovalReason::kEvicted, BlockId{id}, BlockHash{id});
  }
  void Stored(uint32_t id, BlockId parent) {
    const TokenId token = id;
    recorder_.Stored(kFullAttention, {}, parent, BlockHash{parent.value()},
                     {.id = BlockId{id}, .token_count = 1}, {&token, 1});
  }
  static const RemovedEvent& AsRemoved(const Event& event) {
    return std::get<RemovedEvent>(event.what);
  }
  static const StoredEvent& AsStored(const Event& event) {
    return std::get<StoredEvent>(event.what);
  }

  EventRecorder recorder_;
};

TEST_F(EventRecorderTest, RemovalsOfOneOperationAndReasonAreOneEvent) {
  recorder_.BeginOperation(absl::FromUnixSeconds(5));
  Evicted(1);
  recorder_.Removed(kFullAttention, RemovalReason::kTakenOver, BlockId{2}, BlockHash{2});
  Evicted(3);
  recorder_.BeginOperation(absl::FromUnixSeconds(6));
  Evicted(4);
  const std::vector<Event> events = recorder_.Take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_THAT(AsRemoved(events[0]).blocks, ElementsAre(BlockId{1}, BlockId{3}));
  EXPECT_EQ(AsRemoved(events[1]).reason, RemovalReason::kTakenOver);
  EXPECT_THAT(AsRemoved(events[2]).blocks, ElementsAre(BlockId{4}));
  EXPECT_EQ(events[1].time, absl::FromUnixSeconds(5));
  EXPECT_EQ(events[2].time, absl::FromUnixSeconds(6));
}

TEST_F(EventRecorderTest, ARemovalAfterAStoreIsAnEventOfItsOwn) {
  recorder_.BeginOperation(absl::UnixEpoch());
  Evicted(1);
  Stored(1, kNoBlock);
  Evicted(1);
  const std::vector<Event> events = recorder_.Take();
  ASSERT_EQ(events.size(), 3u) << "or a block would be removed before it is stored";
  EXPECT_THAT(AsRemoved(events[2]).blocks, ElementsAre(BlockId{1}));
}

TEST_F(EventRecorderTest, AStoredEventIsAChain) {
  recorder_.BeginOperation(absl::UnixEpoch());
  Stored(1, kNoBlock);
  Stored(2, BlockId{1});
  Stored(3, BlockId{1});  // A sibling: not a child of the block before.
  const std::vector<Event> events = recorder_.Take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(AsStored(events[0]).blocks.size(), 2u);
  EXPECT_THAT(AsStored(events[0]).tokens, ElementsAre(1, 2));
  EXPECT_FALSE(AsStored(events[0]).parent_hash.has_value());
  EXPECT_EQ(AsStored(events[1]).parent, BlockId{1});
  EXPECT_EQ(AsStored(events[1]).parent_hash, BlockHash{1});
}

TEST_F(EventRecorderTest, RevisionsHaveNoHolesAcrossTakes) {
  recorder_.BeginOperation(absl::UnixEpoch());
  Evicted(1);
  EXPECT_EQ(recorder_.Take().at(0).revision, Revision{1});
  EXPECT_TRUE(recorder_.Take().empty());
  recorder_.BeginOperation(absl::UnixEpoch());
  recorder_.WindowCleared(kFullAttention);
  EXPECT_EQ(recorder_.Take().at(0).revision, Revision{2});
  EXPECT_EQ(recorder_.last(), Revision{2});
}

}  // namespace
}  // namespace pagoda
