// Which call causes which events, and their content. Every test in this folder also checks after
// every step that a tree made from the events equals the cache's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "manager/shared_manager.h"
#include "tests/conformance/conformance.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EventsTest : public ConformanceTest {
 protected:
  std::unique_ptr<BlockManager> MakeBare(RecordEvents record_events = RecordEvents::kYes) {
    return *BlockManager::Create(
        {.layout = *CacheLayout::Create(
             {.tokens_per_block = 4, .layers = {{.num_kv_heads = 1, .head_dim = 1}}}),
         .tiers = HostTiers({8}),
         .record_events = record_events,
         .epoch = Epoch{1}});
  }
};

// Scenario 41.
TEST_F(EventsTest, TheFirstEventSaysWhatThereIs) {
  Make(4, 8, 2);
  EXPECT_THAT(TakeOnly<CreatedEvent>().blocks_per_tier, ElementsAre(8, 2));
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

// Scenario 42.
TEST_F(EventsTest, NewContentIsStoredOnceUnderItsParent) {
  Make(4, 8, 2);
  const NamespaceKey adapter{.lora_id = 42};
  TakeEvents();
  Add(1, Range(0, 9), adapter);
  Compute(1, 10);
  const std::vector<Event> published = TakeEvents();
  ASSERT_THAT(published, SizeIs(1));
  const auto stored = std::get<StoredEvent>(published[0].what);
  EXPECT_FALSE(stored.parent_hash.has_value());
  EXPECT_EQ(stored.parent, kNoBlock);
  EXPECT_EQ(stored.name_space, adapter);
  EXPECT_THAT(stored.tokens, ElementsAreArray(Range(0, 7)));
  ASSERT_THAT(stored.blocks, SizeIs(2));
  for (const StoredBlock& block : stored.blocks) {
    EXPECT_EQ(block.tier, kPrimaryTier);
    EXPECT_EQ(block.priority, kDefaultPriority);
    EXPECT_EQ(block.token_count, 4u);
  }

  Append(1, {10});
  Free(1);
  const std::vector<Event> freed = TakeEvents();
  ASSERT_THAT(freed, SizeIs(1));
  EXPECT_EQ(freed[0].revision.value(), published[0].revision.value() + 1);
  const auto tail = std::get<StoredEvent>(freed[0].what);
  EXPECT_EQ(tail.parent_hash, stored.blocks.at(1).hash);
  EXPECT_EQ(tail.parent, stored.blocks.at(1).id);
  EXPECT_THAT(tail.tokens, ElementsAreArray(Range(8, 9)));
  ASSERT_THAT(tail.blocks, SizeIs(1));
  EXPECT_EQ(tail.blocks.at(0).token_count, 2u);

  Add(2, Range(0, 8), adapter);
  FreeAsPeersDo(2);
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

// Scenario 44. With peers, events that fall out of the buffer are lost silently. Here a reader that
// asks for them is told the oldest revision, and starts from a snapshot.
TEST_F(EventsTest, WhatTheLogHasDroppedIsRefusedByName) {
  EventLog log({.max_events = 1});
  SharedManager manager(MakeBare(), &log);
  const auto client = OpenLocalCacheClient(&manager, "test");
  ASSERT_TRUE(client.ok());
  const SequenceId id{1};
  ASSERT_TRUE(
      RunOne<AddedSequence>(**client, AddSequence{.sequence = id, .tokens = Range(0, 9)}).ok());
  EXPECT_EQ(log.last(), Revision{1}) << "Created";
  ASSERT_TRUE(
      RunOne<CommittedTokens>(**client, CommitTokens{.sequence = id, .computed_tokens = 10}).ok());
  EXPECT_EQ(log.oldest(), Revision{2});
  EXPECT_EQ(ReasonOf(log.Read(Revision{1}, 10).status()), Reason::kRevisionCompacted);
  const auto kept = log.Read(Revision{2}, 10);
  ASSERT_TRUE(kept.ok());
  ASSERT_THAT(*kept, SizeIs(1));
  const auto stored = std::get<StoredEvent>((*kept)[0]->at(0).what);

  ASSERT_TRUE(RunOne<AppendedTokens>(**client, AppendTokens{.sequence = id, .tokens = {10}}).ok());
  EXPECT_EQ(log.last(), Revision{2});
  ASSERT_TRUE(RunOne<FreedSequence>(**client, FreeSequence{.sequence = id}).ok());
  const auto tail = log.Read(Revision{3}, 10);
  ASSERT_TRUE(tail.ok());
  EXPECT_EQ(std::get<StoredEvent>((*tail)[0]->at(0).what).parent_hash, stored.blocks.at(1).hash);
}

// Scenario 46. Peers differ among their versions: the largest window only, or largest first. Here
// every window reports its own events, ascending.
TEST_F(EventsTest, EachWindowTellsOfItself) {
  const WindowSize small{12}, large{16};
  Make({.windows = {{small, 4, 2}, {large, 8, 2}}});
  const std::vector<Event> created = TakeEvents();
  ASSERT_THAT(created, SizeIs(2));
  EXPECT_EQ(created[0].window, small);
  EXPECT_THAT(std::get<CreatedEvent>(created[0].what).blocks_per_tier, ElementsAre(4, 2));
  EXPECT_EQ(created[1].window, large);
  EXPECT_THAT(std::get<CreatedEvent>(created[1].what).blocks_per_tier, ElementsAre(8, 2));
  Add(1, Range(0, 8));
  Compute(1, 8);
  const std::vector<Event> stored = TakeEvents();
  ASSERT_THAT(stored, SizeIs(2));
  EXPECT_EQ(stored[0].window, small);
  EXPECT_EQ(stored[1].window, large);
  for (const Event& event : stored) {
    EXPECT_THAT(std::get<StoredEvent>(event.what).blocks, SizeIs(2));
  }
}

// Scenario 49.
TEST_F(EventsTest, WhoWantsNoEventsHasNone) {
  Make({.windows = {{.primary = 2}}, .record_events = RecordEvents::kNo});
  Serve(1, Range(0, 7));
  Serve(2, Range(100, 107));
  EXPECT_EQ(Match(Range(100, 108)), 8u);
  EXPECT_THAT(TakeEvents(), IsEmpty());
  EXPECT_EQ(core_->revision(), Revision{0});
}

// Scenario 49.
TEST_F(EventsTest, AReaderThatWaitsWakesWithTheEvents) {
  EventLog log({});
  SharedManager manager(MakeBare(), &log);
  const auto client = OpenLocalCacheClient(&manager, "test");
  ASSERT_TRUE(RunOne<AllocatedBlocks>(**client, AllocateBlocks{.count = 1}).ok());
  const Revision seen = log.last();
  std::thread writer(
      [&] { EXPECT_TRUE(RunOne<AllocatedBlocks>(**client, AllocateBlocks{.count = 1}).ok()); });
  EXPECT_EQ(log.WaitBeyond(seen, absl::InfiniteDuration()).value(), seen.value() + 1);
  writer.join();
}

// Scenario 50. The blocks that one call stores in a chain are one event, and so are the blocks that
// it removes. Calls are never mixed, so an event is the trace of one operation.
TEST_F(EventsTest, OneCallIsOneEventAWindowAndKind) {
  Make(4, 8);
  TakeEvents();
  Serve(1, Range(0, 7));
  const auto stored = OfType<StoredEvent>(TakeEvents());
  ASSERT_THAT(stored, SizeIs(1));
  EXPECT_THAT(stored[0].blocks, SizeIs(2));
  Add(2, Range(0, 16));
  Compute(2, 12);
  const auto third = TakeOnly<StoredEvent>();
  EXPECT_EQ(third.parent_hash, stored[0].blocks.at(1).hash);
  Compute(2, 16);
  EXPECT_EQ(TakeOnly<StoredEvent>().parent_hash, third.blocks.at(0).hash);
  Free(2);
  Serve(3, Range(100, 115));  // Four blocks are free, so there is only Stored.
  TakeEvents();
  Add(4, Range(200, 231));
  EXPECT_THAT(TakeOnly<RemovedEvent>().blocks, SizeIs(8));
}

// Scenario 50.
TEST_F(EventsTest, NothingHappensToWhatIsNotThere) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  TakeEvents();
  EXPECT_EQ(Run(InvalidatePrefix{.tokens = Range(50, 57)})->removed_blocks, 0u);
  EXPECT_EQ(Run(InvalidatePrefix{.name_space = {.cache_salt = "s"}})->removed_blocks, 0u);
  EXPECT_EQ(Run(SetRetention{.tokens = Range(50, 57),
                             .retention = {.ranges = {{0, 8, {.priority = Priority{9}}}}}})
                ->blocks,
            0u);
  EXPECT_EQ(Run(OffloadPrefix{.tokens = Range(50, 57)})->blocks, 0u);
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

// The rest of peers' table of calls and events, which no other test covers.
TEST_F(EventsTest, HoldingIsNoEvent) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  TakeEvents();
  Add(2, Range(0, 8));         // A full match.
  Add(3, Range(0, 5));         // A copied part.
  Append(2, {9, 10, 11, 12});  // Blocks from the free ones.
  Fork(2, 4);
  Free(4);
  EXPECT_EQ(Match(Range(0, 8)), 8u);
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

TEST_F(EventsTest, AnAppendThatEvictsSaysSo) {
  Make(4, 2);
  Serve(1, Range(0, 3));
  Add(2, Range(10, 13));
  TakeEvents();
  Append(2, {14});
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kEvicted);
  EXPECT_THAT(removed.blocks, SizeIs(1));
}

TEST_F(EventsTest, AnInvalidatedPrefixLeavesChildrenFirst) {
  Make(4, 16);
  Serve(1, Range(0, 11));
  Serve(2, Range(0, 7) + Range(50, 53));
  Serve(3, Range(100, 103));
  const BlockHash root = RequireCached(Range(0, 3)).hash;
  TakeEvents();
  EXPECT_EQ(Run(InvalidatePrefix{.tokens = {0, 1}})->removed_blocks, 4u);
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kInvalidated);
  ASSERT_THAT(removed.hashes, SizeIs(4));
  EXPECT_EQ(removed.hashes.back(), root);
  EXPECT_EQ(CachedBlocks(), 1u);
}

// The place of a block in its prompt is all that a reader of hashes by chunks knows it by.
TEST_F(EventsTest, EventsSayWhereBlocksEndInTheirPrompt) {
  Make(4, 16);
  Serve(1, Range(0, 9));
  TakeEvents();
  Serve(2, Range(0, 7) + Range(50, 55));
  const auto stored = OfType<StoredEvent>(TakeEvents());
  ASSERT_THAT(stored, SizeIs(2));
  EXPECT_EQ(stored[0].first_token, 8u);
  EXPECT_EQ(stored[1].first_token, 12u) << "the tail, when its sequence ended";
  ASSERT_TRUE(Run(SetRetention{.tokens = Range(0, 7) + Range(50, 53),
                               .retention = {.ranges = {{8, 12, {.priority = Priority{60}}}}}})
                  .ok());
  EXPECT_EQ(TakeOnly<UpdatedEvent>().end_token, 12u);

  EXPECT_EQ(Run(InvalidatePrefix{})->removed_blocks, 5u);
  EXPECT_THAT(TakeOnly<RemovedEvent>().end_tokens,
              ::testing::UnorderedElementsAre(4, 8, 10, 12, 14));
}

TEST_F(EventsTest, EventsHaveNoGapsAndTheirTime) {
  Make(4, 8);
  for (uint64_t id = 1; id < 10; ++id) {
    Advance(absl::Seconds(1));
    const TokenId first = static_cast<TokenId>(100 * id);
    Serve(id, Range(first, first + 9));
  }
  uint64_t revision = 0;
  absl::Time time = absl::UnixEpoch();
  for (const Event& event : TakeEvents()) {
    EXPECT_EQ(event.revision.value(), ++revision);
    EXPECT_GE(event.time, time);
    time = event.time;
  }
  EXPECT_EQ(time, now_);
  EXPECT_EQ(core_->revision().value(), revision);
}

TEST_F(EventsTest, RawBlocksComeAndGoById) {
  Make(4, 8);
  TakeEvents();
  const auto raw = Run(AllocateBlocks{.count = 2});
  EXPECT_THAT(TakeOnly<CreatedEvent>().blocks,
              ElementsAre(raw->blocks.at(0).id, raw->blocks.at(1).id));
  ASSERT_TRUE(Run(FreeBlocks{.blocks = {raw->blocks.at(1).ref()}}).ok());
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kReleased);
  EXPECT_THAT(removed.blocks, ElementsAre(raw->blocks.at(1).id));
  EXPECT_THAT(removed.hashes, IsEmpty());
}

// The same calls give the same events.
TEST_F(EventsTest, EventsAreDetermined) {
  std::vector<Event> first;
  for (int run = 0; run < 2; ++run) {
    Make(4, 4, 3);
    for (uint64_t id = 1; id < 20; ++id) {
      const TokenId begin = static_cast<TokenId>(id * id % 7);
      Serve(id, Range(begin, begin + 10));
    }
    std::vector<Event> events = TakeEvents();
    if (run == 0) {
      first = std::move(events);
    } else {
      EXPECT_EQ(events, first);
    }
  }
}

}  // namespace
}  // namespace pagoda
