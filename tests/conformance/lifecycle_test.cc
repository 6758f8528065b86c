// Events for every allocation. After every step, every test here checks that the events alone tell
// which blocks are taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "events/snapshot.h"
#include "tests/conformance/conformance.h"
#include "tests/events/shadow_allocations.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;

class LifecycleTest : public ConformanceTest {
 protected:
  void MakeAll(uint32_t primary, uint32_t lower = 0) {
    Make({.windows = {{.primary = primary, .lower = lower}},
          .lifecycle_events = LifecycleEvents::kAll});
    TakeEvents();
  }
  std::vector<BlockId> Ids(uint64_t sequence) {
    std::vector<BlockId> ids;
    for (const BlockHandle& handle : Table(sequence)) ids.push_back(handle.id);
    return ids;
  }
  // The following operations belong to this step.
  void Step(uint64_t step, uint64_t completed_step) {
    const absl::Status begun =
        core_->BeginBatch(session_, {.step = step, .completed_step = completed_step}, now_);
    EXPECT_TRUE(begun.ok()) << begun;
    Maintain();
  }
  // The only event since the last call: blocks were released.
  std::vector<BlockId> TakeReleased() {
    const auto removed = TakeOnly<RemovedEvent>();
    EXPECT_EQ(removed.reason, RemovalReason::kReleased);
    EXPECT_THAT(removed.hashes, IsEmpty());
    return {removed.blocks.begin(), removed.blocks.end()};
  }
  // Two events since the last call: blocks left the cache, and are taken from then on.
  void ExpectBecamePrivate(RemovalReason reason, const std::vector<BlockId>& taken) {
    const std::vector<Event> events = TakeEvents();
    ASSERT_THAT(events, SizeIs(2));
    const auto* removed = std::get_if<RemovedEvent>(&events[0].what);
    ASSERT_NE(removed, nullptr);
    EXPECT_EQ(removed->reason, reason);
    const auto* created = std::get_if<CreatedEvent>(&events[1].what);
    ASSERT_NE(created, nullptr);
    EXPECT_THAT(created->blocks, UnorderedElementsAreArray(taken));
  }
};

TEST_F(LifecycleTest, ASequencesBlocksAreCreatedInOneEventAndReleasedInOne) {
  MakeAll(8);
  Add(1, Range(0, 9));
  const std::vector<BlockId> blocks = Ids(1);
  ASSERT_THAT(blocks, SizeIs(3));
  EXPECT_THAT(TakeOnly<CreatedEvent>().blocks, ElementsAreArray(blocks));
  Free(1);
  EXPECT_THAT(TakeReleased(), UnorderedElementsAreArray(blocks)) << "nothing was computed";
}

TEST_F(LifecycleTest, WhatIsStoredIsNotReleased) {
  MakeAll(8);
  Add(1, Range(0, 11));
  const std::vector<BlockId> blocks = Ids(1);
  TakeEvents();
  Compute(1, 8);
  EXPECT_THAT(TakeOnly<StoredEvent>().blocks, SizeIs(2));
  Free(1);
  EXPECT_THAT(TakeReleased(), ElementsAre(blocks[2]));
  Serve(2, Range(100, 131));  // Evicts all of it, and takes each id again.
  for (const Event& event : TakeEvents()) {
    const auto* removed = std::get_if<RemovedEvent>(&event.what);
    EXPECT_TRUE(removed == nullptr || removed->reason == RemovalReason::kEvicted);
  }
}

TEST_F(LifecycleTest, ABlockThatIsCutInPlaceIsTakenAgain) {
  MakeAll(8);
  Add(1, Range(0, 7));
  Compute(1, 8);
  const std::vector<BlockId> blocks = Ids(1);
  TakeEvents();
  Truncate(1, 6);
  ExpectBecamePrivate(RemovalReason::kTruncated, {blocks[1]});
  Append(1, {50, 51}, 8);
  EXPECT_THAT(TakeOnly<StoredEvent>().blocks, SizeIs(1));
}

TEST_F(LifecycleTest, ATailThatIsTakenOverBeginsANewLife) {
  MakeAll(8);
  Serve(1, Range(0, 5));
  const BlockId tail = RequireCached(Range(0, 5)).id;
  TakeEvents();
  EXPECT_EQ(Add(2, Range(0, 9)), 6u);
  const std::vector<BlockId> blocks = Ids(2);
  ASSERT_THAT(blocks, SizeIs(3));
  ASSERT_EQ(blocks[1], tail);
  ExpectBecamePrivate(RemovalReason::kTakenOver, {tail, blocks[2]});
}

TEST_F(LifecycleTest, WhatIsHeldWhileItsPrefixGoesIsTaken) {
  MakeAll(8);
  Add(1, Range(0, 7));
  Compute(1, 8);
  const std::vector<BlockId> blocks = Ids(1);
  TakeEvents();
  ASSERT_TRUE(Run(InvalidatePrefix{.tokens = Range(0, 3)}).ok());
  ExpectBecamePrivate(RemovalReason::kInvalidated, blocks);
  Free(1);
  EXPECT_THAT(TakeReleased(), UnorderedElementsAreArray(blocks));
}

TEST_F(LifecycleTest, WhatIsHeldWhileTheCacheIsResetIsTaken) {
  MakeAll(8);
  Add(1, Range(0, 7));
  Compute(1, 8);
  const std::vector<BlockId> blocks = Ids(1);
  Serve(2, Range(100, 103));
  TakeEvents();
  EXPECT_EQ(core_->ResetPrefixCache(now_), 3u);
  Maintain();
  ExpectBecamePrivate(RemovalReason::kCleared, blocks);
  Free(1);
  EXPECT_THAT(TakeReleased(), UnorderedElementsAreArray(blocks));
}

// Its bytes lie in the slot of the cached block, which was in a lower tier. Its id is in a block
// table nevertheless.
TEST_F(LifecycleTest, ABlockThatGaveItsSlotAwayIsTakenUntilItsSequenceEnds) {
  MakeAll(8, 8);
  Add(1, Range(0, 3));
  Add(2, Range(0, 3));
  const std::vector<BlockId> own = Ids(2);
  Compute(1, 4);
  Free(1);
  ASSERT_TRUE(Run(OffloadPrefix{.tokens = Range(0, 3)}).ok());
  TakeEvents();
  Compute(2, 4);
  EXPECT_TRUE(TakeOnly<UpdatedEvent>().tier.has_value());
  EXPECT_EQ(Primary().active, 1u);
  EXPECT_THAT(core_->DumpAllocated(kFullAttention), ElementsAreArray(own));
  Free(2);
  EXPECT_THAT(TakeReleased(), ElementsAreArray(own));
}

TEST_F(LifecycleTest, ADeferredBlockIsTakenUntilItIsFree) {
  MakeAll(8);
  Step(1, 0);
  const auto raw = Run(AllocateBlocks{.count = 1});
  EXPECT_THAT(TakeOnly<CreatedEvent>().blocks, ElementsAre(raw->blocks.at(0).id));
  ASSERT_TRUE(Run(FreeBlocks{.blocks = {raw->blocks.at(0).ref()}}).ok());
  EXPECT_THAT(TakeEvents(), IsEmpty());
  Step(2, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(raw->blocks.at(0).id));
}

TEST_F(LifecycleTest, ASnapshotTellsWhatIsTaken) {
  MakeAll(8);
  Add(1, Range(0, 9));
  Compute(1, 8);
  ASSERT_TRUE(Run(AllocateBlocks{.count = 2}).ok());
  ShadowAllocations late;
  SnapshotPosition position;
  while (!position.done) {
    const SnapshotPiece piece = core_->ReadSnapshot(position, 3, 100, now_);
    for (const Event& event : piece.events) ASSERT_EQ(late.Apply(event), absl::OkStatus());
    position = piece.end;
  }
  EXPECT_THAT(late.Dump(kFullAttention), SizeIs(3));
  EXPECT_EQ(late.Dump(kFullAttention), core_->DumpAllocated(kFullAttention));
}

// If only raw blocks have events, sequences take and free theirs silently.
TEST_F(LifecycleTest, ByDefaultSequencesTakeBlocksUntold) {
  Make(4, 8);
  TakeEvents();
  Add(1, Range(0, 9));
  Free(1);
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

TEST(PoolsEventsTest, ThePoolsGoLastAndOnce) {
  const std::unique_ptr<BlockManager> core = *BlockManager::Create(
      {.layout = *CacheLayout::Create(
           {.tokens_per_block = 4,
            .layers = {{.window = WindowSize{8}, .num_kv_heads = 1, .head_dim = 1},
                       {.num_kv_heads = 1, .head_dim = 1}}}),
       .tiers = HostTiers({8, 8}),
       .lifecycle_events = LifecycleEvents::kOff,
       .epoch = Epoch{1}});
  const absl::Time now = absl::UnixEpoch();
  EXPECT_THAT(core->TakeEvents(), SizeIs(2)) << "of each window that its pools are there";
  core->RemovePools(now);
  const EventBatch events = core->TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const auto& removed = std::get<RemovedEvent>(events[i].what);
    EXPECT_EQ(removed.reason, RemovalReason::kReleased);
    EXPECT_EQ(removed.scope, RemovedEvent::Scope::kPools);
    EXPECT_EQ(events[i].window, core->info().windows[i].window);
  }
  core->RemovePools(now);
  const SessionId session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
  ASSERT_TRUE(core->Execute(session, AllocateBlocks{.count = 1}, now).ok()) << "the cache goes on";
  EXPECT_THAT(core->TakeEvents(), IsEmpty());
  EXPECT_EQ(core->revision(), Revision{4});
}

}  // namespace
}  // namespace pagoda
