#include "manager/services/event_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/events/shadow_allocations.h"
#include "tests/events/shadow_tree.h"
#include "tests/events/tree_model.h"
#include "tests/manager/services/record_change.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WindowSize kSliding{4};

class EventRecorderTest : public ::testing::Test {
 protected:
  EventRecorderTest() { recorder_.BeginOperation(absl::UnixEpoch()); }

  void Removed(RemovalReason reason, uint32_t id, WindowSize window = kFullAttention) {
    recorder_.Removed(window, reason, {BlockId{id}, BlockHash{id}, 2 * id});
  }
  void Evicted(uint32_t id, WindowSize window = kFullAttention) {
    Removed(RemovalReason::kEvicted, id, window);
  }
  void Stored(uint32_t id, BlockId parent, absl::Span<const TokenExtra> extras = {}) {
    const TokenId token = id;
    recorder_.Stored(kFullAttention, {}, {parent, BlockHash{parent.value()}, 7},
                     {.id = BlockId{id}, .token_count = 1}, {{&token, 1}, extras});
  }
  void MovedDown(uint32_t id, WindowSize window = kFullAttention) {
    recorder_.CopiesChanged(window, {BlockId{id}, BlockHash{id}, 3 * id}, {kPrimaryTier, Tier(1)},
                            {});
  }
  void Reprioritized(uint32_t id, uint8_t from, uint8_t to) {
    recorder_.PriorityChanged(kFullAttention, {BlockId{id}, BlockHash{id}, 3 * id},
                              {Priority{from}, Priority{to}});
  }
  static const RemovedEvent& AsRemoved(const Event& event) {
    return std::get<RemovedEvent>(event.what);
  }
  static const StoredEvent& AsStored(const Event& event) {
    return std::get<StoredEvent>(event.what);
  }
  static const UpdatedEvent& AsUpdated(const Event& event) {
    return std::get<UpdatedEvent>(event.what);
  }

  EventRecorder recorder_;
};

TEST_F(EventRecorderTest, RemovalsOfOneOperationAndReasonAreOneEvent) {
  recorder_.BeginOperation(absl::FromUnixSeconds(5));
  recorder_.ExpectRemoved(256);
  for (uint32_t id = 0; id < 256; ++id) Evicted(id);
  recorder_.BeginOperation(absl::FromUnixSeconds(6));
  Evicted(256);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(AsRemoved(events[0]).blocks.size(), 256u);
  EXPECT_EQ(AsRemoved(events[0]).blocks[255], BlockId{255});
  EXPECT_EQ(AsRemoved(events[0]).hashes[255], BlockHash{255});
  EXPECT_EQ(AsRemoved(events[0]).end_tokens.size(), 256u);
  EXPECT_EQ(AsRemoved(events[0]).end_tokens[255], 510u);
  EXPECT_THAT(AsRemoved(events[1]).blocks, ElementsAre(BlockId{256}));
  EXPECT_EQ(events[0].time, absl::FromUnixSeconds(5));
  EXPECT_EQ(events[1].time, absl::FromUnixSeconds(6));
}

TEST_F(EventRecorderTest, ARemovalAfterAStoreIsAnEventOfItsOwn) {
  Evicted(1);
  Stored(1, kNoBlock);
  Evicted(1);
  Evicted(2);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 3u) << "or a block would be removed before it is stored";
  EXPECT_THAT(AsRemoved(events[2]).blocks, ElementsAre(BlockId{1}, BlockId{2}));
}

TEST_F(EventRecorderTest, ARemovalForAnotherReasonMayHaveBeenTheChilds) {
  Evicted(1);
  Removed(RemovalReason::kDisplaced, 2);
  Evicted(3);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 3u) << "block 2 may be a child of block 3";
  EXPECT_THAT(AsRemoved(events[2]).blocks, ElementsAre(BlockId{3}));
}

TEST_F(EventRecorderTest, InASlidingWindowThereAreNoChildrenToWaitFor) {
  Evicted(1, kSliding);
  Removed(RemovalReason::kDisplaced, 2, kSliding);
  Evicted(3, kSliding);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(AsRemoved(events[0]).blocks, ElementsAre(BlockId{1}, BlockId{3}));
  EXPECT_EQ(AsRemoved(events[1]).reason, RemovalReason::kDisplaced);
}

TEST_F(EventRecorderTest, WindowsDoNotComeBetweenEachOther) {
  Evicted(1);
  Evicted(2, kSliding);
  MovedDown(3, kSliding);
  Evicted(4);
  Evicted(5, kSliding);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_THAT(AsRemoved(events[0]).blocks, ElementsAre(BlockId{1}, BlockId{4}));
  EXPECT_THAT(AsRemoved(events[1]).blocks, ElementsAre(BlockId{2}, BlockId{5}));
}

// Victims are offloaded one by one, and each displaces another.
TEST_F(EventRecorderTest, RemovalsJoinAcrossChangesOfOtherBlocks) {
  for (uint32_t id = 0; id < 100; ++id) {
    Removed(RemovalReason::kDisplaced, id);
    MovedDown(100 + id);
  }
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 101u);
  EXPECT_EQ(AsRemoved(events[0]).blocks.size(), 100u);
}

TEST_F(EventRecorderTest, ABlocksOwnEventsStayInOrder) {
  for (const WindowSize window : {kFullAttention, kSliding}) {
    Removed(RemovalReason::kDisplaced, 1, window);
    MovedDown(2, window);
    Removed(RemovalReason::kDisplaced, 2, window);  // The block offloaded last leaves.
    Removed(RemovalReason::kDisplaced, 3, window);
    const EventBatch events = recorder_.Take();
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(AsUpdated(events[1]).id, BlockId{2});
    EXPECT_THAT(AsRemoved(events[2]).blocks, ElementsAre(BlockId{2}, BlockId{3}));
  }
  recorder_.BeginOperation(absl::UnixEpoch());
  Evicted(1);
  Evicted(2);
  EXPECT_EQ(recorder_.Take().size(), 1u) << "the change was another operation's";
}

TEST_F(EventRecorderTest, NothingJoinsWhatWasTaken) {
  Evicted(1);
  Stored(2, kNoBlock);
  MovedDown(2);
  EXPECT_EQ(recorder_.Take().size(), 3u);
  Evicted(3);
  EXPECT_EQ(recorder_.Take().size(), 1u);
  Reprioritized(2, 35, 40);
  Stored(4, BlockId{2});
  EXPECT_EQ(recorder_.Take().size(), 2u);
}

TEST_F(EventRecorderTest, TierAndPriorityOfABlockAreOneEvent) {
  Reprioritized(1, 50, 35);
  MovedDown(1);
  Reprioritized(1, 35, 40);  // A second change is another event, so that each change is seen.
  MovedDown(2);
  MovedDown(2, kSliding);
  recorder_.BeginOperation(absl::UnixEpoch());
  Reprioritized(2, 50, 35);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(AsUpdated(events[0]),
            (UpdatedEvent{.id = BlockId{1},
                          .end_token = 3,
                          .hash = BlockHash{1},
                          .tier = Change<Tier>{kPrimaryTier, Tier(1)},
                          .priority = Change<Priority>{Priority{50}, Priority{35}}}));
  EXPECT_EQ(AsUpdated(events[1]).priority, (Change<Priority>{Priority{35}, Priority{40}}));
  EXPECT_FALSE(AsUpdated(events[1]).tier.has_value());
  EXPECT_EQ(events[2].window, kFullAttention);
  EXPECT_EQ(events[3].window, kSliding);
}

TEST_F(EventRecorderTest, AStoredEventIsAChain) {
  Stored(1, kNoBlock);
  Stored(2, BlockId{1});
  Stored(3, BlockId{1});  // A sibling: not a child of the block before.
  recorder_.BeginOperation(absl::UnixEpoch());
  Stored(4, BlockId{3});
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(AsStored(events[0]).blocks.size(), 2u);
  EXPECT_THAT(AsStored(events[0]).tokens, ElementsAre(1, 2));
  EXPECT_THAT(AsStored(events[0]).extras, IsEmpty());
  EXPECT_FALSE(AsStored(events[0]).parent_hash.has_value());
  EXPECT_EQ(AsStored(events[1]).parent, BlockId{1});
  EXPECT_EQ(AsStored(events[1]).parent_hash, BlockHash{1});
  EXPECT_EQ(AsStored(events[1]).first_token, 7u);
}

TEST_F(EventRecorderTest, AChainHasExtrasForEveryTokenOrForNone) {
  const TokenExtra nothing;
  const TokenExtra something{.extra_id = 7};
  Stored(1, kNoBlock, {&nothing, 1});
  Stored(2, BlockId{1}, {&something, 1});
  Stored(3, BlockId{2});
  Stored(4, kNoBlock, {&nothing, 1});
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(AsStored(events[0]).extras, ElementsAre(nothing, something, nothing));
  EXPECT_THAT(AsStored(events[1]).extras, IsEmpty());
}

TEST_F(EventRecorderTest, AnEventIsBoundedAndTheNextGoesOn) {
  constexpr uint32_t kChain = 3 * kMaxStoredBlocks / 2;
  recorder_.ExpectStored(kChain, kChain);
  for (uint32_t id = 1; id <= kChain; ++id) Stored(id, id == 1 ? kNoBlock : BlockId{id - 1});
  constexpr uint32_t kGone = 2 * kMaxListedBlocks + 1;
  recorder_.ExpectRemoved(kGone);
  for (uint32_t id = 0; id < kGone; ++id) Evicted(id);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(AsStored(events[0]).blocks.size(), kMaxStoredBlocks);
  EXPECT_EQ(AsStored(events[1]).blocks.size(), kMaxStoredBlocks / 2);
  EXPECT_EQ(AsStored(events[1]).parent, BlockId{kMaxStoredBlocks});
  EXPECT_EQ(AsStored(events[1]).parent_hash, BlockHash{kMaxStoredBlocks});
  EXPECT_EQ(AsRemoved(events[2]).blocks.size(), kMaxListedBlocks);
  EXPECT_EQ(AsRemoved(events[3]).blocks.size(), kMaxListedBlocks);
  EXPECT_EQ(AsRemoved(events[4]).blocks.size(), 1u);
  EXPECT_EQ(AsRemoved(events[4]).hashes.size(), 1u);
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].revision, Revision{i + 1});
}

TEST_F(EventRecorderTest, AStoredEventIsBoundedByTokensToo) {
  const std::vector<TokenId> tokens(512);
  constexpr uint32_t kBlocks = 3 * kMaxStoredTokens / 512;
  for (uint32_t id = 1; id <= kBlocks; ++id) {
    recorder_.Stored(kFullAttention, {},
                     {id == 1 ? kNoBlock : BlockId{id - 1}, BlockHash{id - 1}, 512 * (id - 1)},
                     {.id = BlockId{id}, .token_count = 512}, {tokens, {}});
  }
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 3u);
  for (const Event& event : events) EXPECT_EQ(AsStored(event).tokens.size(), kMaxStoredTokens);
}

TEST_F(EventRecorderTest, RawBlocksAreBoundedToo) {
  const std::vector<BlockId> blocks(kMaxListedBlocks + 3);
  recorder_.BlocksCreated(kFullAttention, blocks);
  recorder_.BlocksReleased(kFullAttention, blocks);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(std::get<CreatedEvent>(events[0].what).blocks.size(), kMaxListedBlocks);
  EXPECT_EQ(std::get<CreatedEvent>(events[1].what).blocks.size(), 3u);
  EXPECT_EQ(AsRemoved(events[2]).blocks.size(), kMaxListedBlocks);
  EXPECT_EQ(AsRemoved(events[3]).blocks.size(), 3u);
  EXPECT_EQ(AsRemoved(events[3]).reason, RemovalReason::kReleased);
}

TEST_F(EventRecorderTest, APinsEndIsAnEventOfItsOwn) {
  recorder_.PinEnded(kFullAttention, BlockId{1}, BlockHash{1}, {.pin = PinId{5}});
  Reprioritized(1, 35, 60);
  recorder_.PinEnded(kFullAttention, BlockId{1}, BlockHash{1}, {.pin = PinId{6}});
  Evicted(1);
  const EventBatch events = recorder_.Take();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(AsUpdated(events[0]).ended_pin->pin, PinId{5});
  EXPECT_FALSE(AsUpdated(events[0]).priority.has_value());
  EXPECT_FALSE(AsUpdated(events[1]).ended_pin.has_value());
  EXPECT_EQ(AsUpdated(events[2]).ended_pin->pin, PinId{6});
  EXPECT_THAT(AsRemoved(events[3]).blocks, ElementsAre(BlockId{1}));
}

TEST_F(EventRecorderTest, RevisionsHaveNoHolesAcrossTakes) {
  Evicted(1);
  EXPECT_EQ(recorder_.Take().at(0).revision, Revision{1});
  EXPECT_TRUE(recorder_.Take().empty());
  recorder_.BeginOperation(absl::UnixEpoch());
  recorder_.WindowCleared(kFullAttention);
  EXPECT_EQ(recorder_.Take().at(0).revision, Revision{2});
  EXPECT_EQ(recorder_.last(), Revision{2});
}

TEST_F(EventRecorderTest, LivesOutsideTheTreeAreToldOnlyWhereAllAre) {
  recorder_.BlockTaken(kFullAttention, BlockId{1}, kDefaultTenant);
  recorder_.BlockFreed(kFullAttention, BlockId{1}, kDefaultTenant);
  EXPECT_THAT(recorder_.Take(), IsEmpty());
}

class EventRecorderLifecycleTest : public EventRecorderTest {
 protected:
  EventRecorderLifecycleTest() { reuse_intervals_.BeginOperation(absl::UnixEpoch()); }

  void Taken(uint32_t id, TenantId tenant = kDefaultTenant, WindowSize window = kFullAttention) {
    reuse_intervals_.BlockTaken(window, BlockId{id}, tenant);
  }
  void Freed(uint32_t id, TenantId tenant = kDefaultTenant) {
    reuse_intervals_.BlockFreed(kFullAttention, BlockId{id}, tenant);
  }
  void EvictedBeside(uint32_t id) {
    reuse_intervals_.Removed(kFullAttention, RemovalReason::kEvicted,
                             {BlockId{id}, BlockHash{id}, id});
  }
  static const std::pmr::vector<BlockId>& CreatedBlocks(const Event& event) {
    return std::get<CreatedEvent>(event.what).blocks;
  }

  EventRecorder reuse_intervals_{RecordEvents::kYes, LifecycleEvents::kAll};
};

TEST_F(EventRecorderLifecycleTest, LivesOfOneOperationAreOneEvent) {
  for (uint32_t id = 0; id < 8; ++id) Taken(id);
  for (uint32_t id = 8; id < 16; ++id) Freed(id);
  reuse_intervals_.BeginOperation(absl::UnixEpoch());
  Taken(16);
  const EventBatch events = reuse_intervals_.Take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(CreatedBlocks(events[0]).size(), 8u);
  EXPECT_EQ(AsRemoved(events[1]).reason, RemovalReason::kReleased);
  EXPECT_EQ(AsRemoved(events[1]).blocks.size(), 8u);
  EXPECT_THAT(AsRemoved(events[1]).hashes, IsEmpty());
  EXPECT_THAT(CreatedBlocks(events[2]), ElementsAre(BlockId{16}));
}

TEST_F(EventRecorderLifecycleTest, EvictionsBetweenDoNotSplitWhatIsTaken) {
  Taken(1);
  for (uint32_t id = 2; id < 8; ++id) {
    EvictedBeside(id);
    Taken(id);
  }
  const EventBatch events = reuse_intervals_.Take();
  ASSERT_EQ(events.size(), 3u) << "taken, evicted, and what was taken after the first eviction";
  EXPECT_THAT(CreatedBlocks(events[0]), ElementsAre(BlockId{1}));
  EXPECT_EQ(AsRemoved(events[1]).blocks.size(), 6u);
  EXPECT_EQ(CreatedBlocks(events[2]).size(), 6u);
}

TEST_F(EventRecorderLifecycleTest, ABlockIsToldInItsOwnOrder) {
  Freed(1);
  Taken(1);
  Freed(1);
  Taken(1);
  const EventBatch events = reuse_intervals_.Take();
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(std::holds_alternative<CreatedEvent>(events[i].what), i % 2 == 1) << i;
  }
}

TEST_F(EventRecorderLifecycleTest, TenantsAndWindowsAreApart) {
  Taken(1, TenantId{1});
  Taken(2, TenantId{2});
  Taken(3, TenantId{2}, kSliding);
  Taken(4, TenantId{2});
  const EventBatch events = reuse_intervals_.Take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].tenant, TenantId{1});
  EXPECT_EQ(events[1].tenant, TenantId{2});
  EXPECT_THAT(CreatedBlocks(events[1]), ElementsAre(BlockId{2}, BlockId{4}));
  EXPECT_EQ(events[2].window, kSliding);
}

TEST_F(EventRecorderLifecycleTest, LivesAreBoundedToo) {
  for (uint32_t id = 0; id < kMaxListedBlocks + 3; ++id) Taken(id);
  for (uint32_t id = 0; id < kMaxListedBlocks + 3; ++id) Freed(id);
  const EventBatch events = reuse_intervals_.Take();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(CreatedBlocks(events[0]).size(), kMaxListedBlocks);
  EXPECT_EQ(CreatedBlocks(events[1]).size(), 3u);
  EXPECT_EQ(AsRemoved(events[2]).blocks.size(), kMaxListedBlocks);
  EXPECT_EQ(AsRemoved(events[3]).blocks.size(), 3u);
}

TEST_F(EventRecorderLifecycleTest, NothingFollowsThePools) {
  reuse_intervals_.PoolsRemoved(kFullAttention);
  reuse_intervals_.Stop();
  Taken(1);
  EvictedBeside(2);
  reuse_intervals_.PoolsRemoved(kFullAttention);
  const EventBatch events = reuse_intervals_.Take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(AsRemoved(events[0]).reason, RemovalReason::kReleased);
  EXPECT_EQ(AsRemoved(events[0]).scope, RemovedEvent::Scope::kPools);
  EXPECT_EQ(reuse_intervals_.last(), Revision{1});
}

TEST_F(EventRecorderTest, RecordsNothingWhereNobodyReads) {
  EventRecorder silent(RecordEvents::kNo, LifecycleEvents::kAll);
  silent.BeginOperation(absl::UnixEpoch());
  const TokenId token = 1;
  silent.PoolsCreated(kFullAttention, {1});
  silent.BlocksCreated(kFullAttention, {BlockId{1}});
  silent.BlocksReleased(kFullAttention, {BlockId{1}});
  silent.BlockTaken(kFullAttention, BlockId{1}, kDefaultTenant);
  silent.BlockFreed(kFullAttention, BlockId{1}, kDefaultTenant);
  silent.Stored(kFullAttention, {}, {}, {.token_count = 1}, {{&token, 1}});
  silent.CopiesChanged(kFullAttention, {.id = BlockId{1}}, {}, {});
  silent.PriorityChanged(kFullAttention, {.id = BlockId{1}}, {});
  silent.Removed(kFullAttention, RemovalReason::kEvicted, {.id = BlockId{1}});
  silent.WindowCleared(kFullAttention);
  silent.PoolsRemoved(kFullAttention);
  EXPECT_THAT(silent.Take(), IsEmpty());
  EXPECT_EQ(silent.last(), Revision{0});
}

// Blocks are taken, stored, removed and released at random, many times within one operation.
TEST(EventRecorderLawTest, JoinedLivesFitOneByOneAndMakeTheSameSet) {
  enum class State : uint8_t { kFree, kTaken, kCached };
  constexpr uint32_t kIds = 6;
  for (const WindowSize window : {kFullAttention, kSliding}) {
    std::mt19937 random(7);
    EventRecorder recorder(RecordEvents::kYes, LifecycleEvents::kAll);
    ShadowAllocations shadow;
    std::vector<State> blocks(kIds, State::kFree);
    size_t events = 0, joined = 0;
    for (int operation = 0; operation < 20'000; ++operation) {
      recorder.BeginOperation(absl::UnixEpoch());
      for (uint32_t i = random() % 12; i > 0; --i) {
        const BlockId id{static_cast<uint32_t>(random() % kIds)};
        const TenantId tenant{static_cast<uint16_t>(random() % 8 == 0)};
        State& state = blocks[id.value()];
        ++joined;
        if (state == State::kFree) {
          recorder.BlockTaken(window, id, tenant);
          state = State::kTaken;
        } else if (state == State::kTaken && random() % 2 == 0) {
          recorder.BlockFreed(window, id, tenant);
          state = State::kFree;
        } else if (state == State::kTaken) {
          const TokenId token = id.value();
          recorder.Stored(window, {}, {},
                          {.id = id, .hash = BlockHash{id.value()}, .token_count = 1},
                          {{&token, 1}, {}}, tenant);
          state = State::kCached;
        } else {
          const bool held = random() % 2 == 0;
          recorder.Removed(window, held ? RemovalReason::kTruncated : RemovalReason::kEvicted,
                           {id, BlockHash{id.value()}, 1}, tenant);
          if (held) recorder.BlockTaken(window, id, tenant);
          state = held ? State::kTaken : State::kFree;
        }
      }
      for (const Event& event : recorder.Take()) {
        ASSERT_EQ(shadow.Apply(event), absl::OkStatus()) << "operation " << operation;
        ++events;
      }
      std::vector<BlockId> taken;
      for (uint32_t id = 0; id < kIds; ++id) {
        if (blocks[id] == State::kTaken) taken.push_back(BlockId{id});
      }
      ASSERT_EQ(shadow.Dump(window), taken) << "operation " << operation;
    }
    EXPECT_LT(events, joined) << "nothing was joined";
  }
}

TEST(EventRecorderLawTest, JoinedEventsFitOneByOneAndMakeTheSameTree) {
  constexpr int kOperations = 300, kChanges = 12;
  int recorded = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    TreeModel full(kFullAttention, seed), sliding(kSliding, seed + 1000);
    std::mt19937_64 rng(seed);
    EventRecorder recorder;
    ShadowTree shadow;
    for (int operation = 0; operation < kOperations; ++operation) {
      recorder.BeginOperation(absl::UnixEpoch());
      for (int change = 0; change < kChanges; ++change) {
        if (rng() % 2 == 0) {
          RecordChange(full.Next(), kFullAttention, recorder);
        } else {
          RecordChange(sliding.Next(), kSliding, recorder);
        }
      }
      for (const Event& event : recorder.Take()) {
        const absl::Status applied = shadow.Apply(event);
        ASSERT_TRUE(applied.ok()) << applied << ", seed " << seed;
        ++recorded;
      }
      ASSERT_TRUE(shadow.Compare(kFullAttention, full.Entries()).ok()) << "seed " << seed;
      ASSERT_TRUE(shadow.Compare(kSliding, sliding.Entries()).ok()) << "seed " << seed;
    }
  }
  EXPECT_LT(recorded, 60 * kOperations * kChanges - 5000) << "thousands are joined";
}

}  // namespace
}  // namespace pagoda
