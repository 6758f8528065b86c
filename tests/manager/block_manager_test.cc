#include "manager/block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;

std::vector<TokenId> Range(TokenId first, TokenId last) {
  std::vector<TokenId> tokens(last - first + 1);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class BlockManagerTest : public ::testing::Test {
 protected:
  void Make(uint32_t blocks, uint32_t tokens_per_block) {
    core_ = MakeCore(blocks, tokens_per_block);
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  }
  ~BlockManagerTest() override {
    if (core_ != nullptr) core_->CheckInvariants();
  }

  absl::StatusOr<uint32_t> Add(uint64_t id, const std::vector<TokenId>& prompt,
                               uint32_t reserved = 0, const NamespaceKey& name_space = {}) {
    const auto added = core_->sequences().AddSequence(session_, SequenceId{id},
                                                      PromptOf(name_space, prompt, reserved), now_);
    if (!added.ok()) return added.status();
    return added->matched_tokens;
  }
  // Adds, computes and frees: a whole request that generates nothing.
  void AddAndFree(uint64_t id, const std::vector<TokenId>& prompt) {
    ASSERT_TRUE(Add(id, prompt).ok());
    Commit(id, {}, static_cast<uint32_t>(prompt.size()));
    Free(id);
  }
  void Commit(uint64_t id, const std::vector<TokenId>& tokens, uint32_t computed) {
    ASSERT_EQ(
        core_->sequences().CommitTokens(session_, SequenceId{id}, tokens, computed, now_).status(),
        absl::OkStatus());
  }
  void Append(uint64_t id, const std::vector<TokenId>& tokens, uint32_t computed = 0) {
    ASSERT_EQ(
        core_->sequences().AppendTokens(session_, SequenceId{id}, tokens, computed, now_).status(),
        absl::OkStatus());
  }
  void Free(uint64_t id) {
    ASSERT_EQ(core_->sequences().FreeSequence(session_, SequenceId{id}, now_), absl::OkStatus());
  }
  TierOccupancy Primary() const { return core_->Stats().windows[0].tiers[0]; }
  const Sequence& Find(uint64_t id) {
    return **core_->sequences().FindSequence(session_, SequenceId{id});
  }
  std::vector<BlockHandle> TableOf(uint64_t id) { return Find(id).windows[0].table; }
  uint32_t Match(const std::vector<TokenId>& tokens, const NamespaceKey& name_space = {}) const {
    return core_->prefixes().Match(PromptOf(name_space, tokens));
  }

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
};

TEST_F(BlockManagerTest, ASequenceHasABlockForEachBegunBlockOfTokens) {
  Make(8, 16);
  ASSERT_TRUE(Add(1, Range(0, 72)).ok());
  EXPECT_EQ(TableOf(1).size(), 5u);  // 73 tokens, 16 in a block.
  EXPECT_EQ(Find(1).token_count, 73u);
  EXPECT_EQ(Find(1).computed_tokens, 0u);
  EXPECT_EQ(Primary().active, 5u);
  EXPECT_EQ(Primary().free, 3u);
}

TEST_F(BlockManagerTest, AFreshPoolHandsOutSlotsInAscendingOrder) {
  Make(8, 4);
  ASSERT_TRUE(Add(1, Range(0, 15)).ok());
  std::vector<uint32_t> slots;
  for (const BlockHandle& handle : TableOf(1)) slots.push_back(handle.slot.value());
  EXPECT_THAT(slots, ElementsAre(0, 1, 2, 3));
}

TEST_F(BlockManagerTest, ABlockIsTakenOnlyWhenABoundaryIsCrossed) {
  Make(8, 4);
  ASSERT_TRUE(Add(1, Range(0, 2)).ok());
  EXPECT_EQ(core_->sequences().AppendTokens(session_, SequenceId{1}, {{3}}, 0, now_)->blocks, 0u);
  const auto growth = core_->sequences().AppendTokens(session_, SequenceId{1}, {{4}}, 0, now_);
  EXPECT_EQ(growth->first_block, 1u);
  EXPECT_EQ(growth->blocks, 1u);
  EXPECT_EQ(TableOf(1).size(), 2u);
}

TEST_F(BlockManagerTest, OnlyComputedFullBlocksMatchWhileTheSequenceRuns) {
  Make(16, 4);
  ASSERT_TRUE(Add(1, Range(0, 11)).ok());
  EXPECT_EQ(Match(Range(0, 20)), 0u);
  Commit(1, {}, 7);
  EXPECT_EQ(Match(Range(0, 20)), 4u);
  Commit(1, {}, 11);
  EXPECT_EQ(Match(Range(0, 20)), 8u);
  Free(1);
  EXPECT_EQ(Match(Range(0, 20)), 11u) << "at free, the tail too";
}

TEST_F(BlockManagerTest, AtMostAllTokensButTheLastMatch) {
  Make(16, 4);
  AddAndFree(1, Range(0, 7));
  EXPECT_EQ(Match(Range(0, 7)), 7u);
  EXPECT_EQ(Match(Range(0, 8)), 8u);
  EXPECT_EQ(Match({0}), 0u);
}

TEST_F(BlockManagerTest, SequencesShareTheBlocksTheyMatched) {
  Make(16, 4);
  ASSERT_TRUE(Add(1, Range(0, 9)).ok());
  Commit(1, {}, 10);
  EXPECT_EQ(*Add(2, Range(0, 12)), 8u);
  EXPECT_EQ(TableOf(1)[0], TableOf(2)[0]);
  EXPECT_EQ(TableOf(1)[1], TableOf(2)[1]);
  EXPECT_NE(TableOf(1)[2].slot, TableOf(2)[2].slot);
  EXPECT_EQ(Primary().active, 3u + 2u);
}

TEST_F(BlockManagerTest, ATailThatIsMatchedWholeIsTakenOver) {
  Make(8, 4);
  ASSERT_TRUE(Add(1, Range(0, 9)).ok());  // Two full blocks and a tail of two tokens.
  Commit(1, {}, 10);
  const BlockHandle tail = TableOf(1)[2];
  Free(1);
  core_->TakeEvents();
  EXPECT_EQ(*Add(2, Range(0, 14)), 10u);
  const EventBatch events = core_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  const auto& removed = std::get<RemovedEvent>(events[0].what);
  EXPECT_EQ(removed.reason, RemovalReason::kTakenOver);
  EXPECT_THAT(removed.blocks, ElementsAre(tail.id));
  EXPECT_EQ(TableOf(2)[2].id, tail.id);
  EXPECT_EQ(TableOf(2)[2].slot, tail.slot) << "its bytes stay where they are";
  EXPECT_GT(TableOf(2)[2].generation, tail.generation) << "it is a new life for old handles";
  EXPECT_EQ(*Add(3, Range(0, 14)), 8u) << "the tail is the second sequence's now";
}

TEST_F(BlockManagerTest, OfTwoEqualBlocksTheFirstIsCanonical) {
  Make(16, 4);
  ASSERT_TRUE(Add(1, Range(0, 8)).ok());
  ASSERT_TRUE(Add(2, Range(0, 8)).ok());
  Commit(1, {}, 8);
  const std::vector<BlockHandle> before = TableOf(2);
  core_->TakeEvents();
  Commit(2, {}, 8);
  EXPECT_TRUE(core_->TakeEvents().empty()) << "nothing new became reusable";
  EXPECT_EQ(TableOf(2), before) << "a block table in use never changes";
  EXPECT_EQ(*Add(3, Range(0, 8)), 8u);
  EXPECT_EQ(TableOf(3)[0], TableOf(1)[0]);

  // The second sequence continues, and its next blocks become children of the canonical block.
  Append(2, {9, 10, 11, 12}, 12);
  const auto stored = std::get<StoredEvent>(core_->TakeEvents().at(0).what);
  EXPECT_EQ(stored.parent, TableOf(1)[1].id);
  Free(2);
  EXPECT_EQ(core_->DumpTree(kFullAttention).size(), 3u);
  EXPECT_EQ(Primary().free, 16u - 3u - 2u) << "its copies are given back";
}

TEST_F(BlockManagerTest, NamespacesDoNotShare) {
  Make(16, 4);
  ASSERT_TRUE(Add(1, Range(0, 8), 0, {.cache_salt = "a"}).ok());
  Commit(1, {}, 8);
  EXPECT_EQ(Match(Range(0, 8)), 0u);
  EXPECT_EQ(Match(Range(0, 8), {.cache_salt = "b"}), 0u);
  EXPECT_EQ(Match(Range(0, 8), {.lora_id = 0, .cache_salt = "a"}), 0u);
  EXPECT_EQ(Match(Range(0, 8), {.cache_salt = "a"}), 8u);
}

TEST_F(BlockManagerTest, EvictsLeafBeforeParentAndOldestFirst) {
  Make(6, 4);
  AddAndFree(1, Range(0, 11));     // Three blocks.
  AddAndFree(2, Range(100, 111));  // Three more.
  core_->TakeEvents();
  ASSERT_TRUE(Add(3, Range(200, 207)).ok());  // Needs two.
  const auto removed = std::get<RemovedEvent>(core_->TakeEvents().at(0).what);
  EXPECT_EQ(removed.reason, RemovalReason::kEvicted);
  EXPECT_EQ(removed.blocks.size(), 2u) << "one event for the operation";
  EXPECT_EQ(Match(Range(0, 12)), 4u) << "the head of the older one is left";
  EXPECT_EQ(Match(Range(100, 112)), 12u);
}

TEST_F(BlockManagerTest, AMatchKeepsAPrefixFromBeingEvicted) {
  Make(6, 4);
  AddAndFree(1, Range(0, 11));
  AddAndFree(2, Range(100, 111));
  ASSERT_EQ(*Add(3, Range(0, 12), 12), 12u);  // Holds all of the first.
  ASSERT_TRUE(Add(4, Range(200, 211)).ok());  // Evicts the second.
  EXPECT_EQ(ReasonOf(Add(5, Range(300, 300)).status()), Reason::kBlocksExhausted);
  EXPECT_EQ(Match(Range(0, 12)), 12u);
}

TEST_F(BlockManagerTest, ARefusedSequenceLeavesNoTrace) {
  Make(4, 4);
  AddAndFree(1, Range(0, 7));
  ASSERT_TRUE(Add(2, Range(100, 107)).ok());
  core_->TakeEvents();
  const TierOccupancy before = Primary();
  // Matches two cached blocks and needs one more: evicting the matched blocks would not help.
  EXPECT_EQ(ReasonOf(Add(3, Range(0, 8)).status()), Reason::kBlocksExhausted);
  EXPECT_TRUE(core_->TakeEvents().empty());
  EXPECT_EQ(Primary().cached, before.cached);
  EXPECT_EQ(Primary().active, before.active);
  EXPECT_EQ(Match(Range(0, 8)), 8u);
}

TEST_F(BlockManagerTest, AnAppendThatDoesNotFitLeavesNoTrace) {
  Make(2, 4);
  ASSERT_TRUE(Add(1, Range(0, 3)).ok());
  ASSERT_TRUE(Add(2, Range(10, 13)).ok());
  EXPECT_EQ(
      ReasonOf(core_->sequences().AppendTokens(session_, SequenceId{1}, {{4}}, 4, now_).status()),
      Reason::kBlocksExhausted);
  EXPECT_EQ(Find(1).token_count, 4u);
  EXPECT_EQ(Find(1).computed_tokens, 0u);
  EXPECT_TRUE(core_->DumpTree(kFullAttention).empty());
}

TEST_F(BlockManagerTest, TheReservationGrowsWithTheChunks) {
  Make(8, 4);
  ASSERT_TRUE(Add(1, Range(0, 15), 6).ok());
  EXPECT_EQ(TableOf(1).size(), 2u);
  EXPECT_EQ(Find(1).token_count, 16u);
  EXPECT_EQ(
      ReasonOf(core_->sequences().CommitTokens(session_, SequenceId{1}, {}, 7, now_).status()),
      Reason::kReservationExceeded);
  Commit(1, {}, 6);
  ASSERT_TRUE(core_->sequences().ReserveTokens(session_, SequenceId{1}, 10, now_).ok());
  EXPECT_EQ(TableOf(1).size(), 4u);
  Commit(1, {}, 16);
  EXPECT_EQ(Match(Range(0, 20)), 16u) << "the late tokens reached their blocks";
}

TEST_F(BlockManagerTest, CapacityIsReservedBeforeTheTokensAreKnown) {
  Make(8, 4);
  ASSERT_TRUE(Add(1, Range(0, 3)).ok());
  EXPECT_EQ(
      ReasonOf(core_->sequences().CommitTokens(session_, SequenceId{1}, {{4}}, 0, now_).status()),
      Reason::kReservationExceeded);
  EXPECT_EQ(core_->sequences().ReserveTokens(session_, SequenceId{1}, 2, now_)->blocks, 1u);
  Commit(1, {4, 5}, 0);
  EXPECT_EQ(Find(1).token_count, 6u);
}

TEST_F(BlockManagerTest, ComputedTokensOnlyGrow) {
  Make(8, 4);
  ASSERT_TRUE(Add(1, Range(0, 7)).ok());
  Commit(1, {}, 5);
  EXPECT_EQ(
      ReasonOf(core_->sequences().CommitTokens(session_, SequenceId{1}, {}, 4, now_).status()),
      Reason::kComputedBackwards);
  EXPECT_EQ(
      ReasonOf(core_->sequences().CommitTokens(session_, SequenceId{1}, {}, 9, now_).status()),
      Reason::kComputedBeyondTokens);
  Commit(1, {}, 0);  // 0 leaves it.
  EXPECT_EQ(Find(1).computed_tokens, 5u);
}

TEST_F(BlockManagerTest, AbsurdCountsAreRefusedByName) {
  Make(4, 4);
  EXPECT_EQ(ReasonOf(Add(1, {}).status()), Reason::kInvalidCount);
  EXPECT_EQ(ReasonOf(Add(1, Range(0, 16)).status()), Reason::kInvalidCount);
  EXPECT_EQ(ReasonOf(Add(1, Range(0, 3), 4'000'000'000).status()), Reason::kInvalidCount);
  ASSERT_TRUE(Add(1, Range(0, 3)).ok());
  EXPECT_EQ(ReasonOf(Add(1, Range(0, 3)).status()), Reason::kSequenceExists);
  EXPECT_EQ(
      ReasonOf(
          core_->sequences().ReserveTokens(session_, SequenceId{1}, 4'294'967'295, now_).status()),
      Reason::kInvalidCount);
  const auto huge = core_->Execute(session_, AllocateBlocks{.count = 4'294'967'295}, now_);
  EXPECT_EQ(ReasonOf(huge.status()), Reason::kInvalidCount);
  EXPECT_EQ(ReasonOf(core_->Execute(session_, AllocateBlocks{.count = 0}, now_).status()),
            Reason::kInvalidCount);
  const auto window =
      core_->Execute(session_, AllocateBlocks{.window = WindowSize{7}, .count = 1}, now_);
  EXPECT_EQ(ReasonOf(window.status()), Reason::kUnknownWindow);
}

TEST_F(BlockManagerTest, RawBlocksAreFreedOnceAndByTheirOwner) {
  Make(4, 4);
  std::vector<BlockHandle> blocks(2);
  ASSERT_TRUE(core_->raw_blocks()
                  .AllocateBlocks(session_, kFullAttention, absl::MakeSpan(blocks), now_)
                  .ok());
  const BlockRef first = blocks[0].ref(), second = blocks[1].ref();
  const auto free = [&](SessionId session, std::vector<BlockRef> refs) {
    return ReasonOf(core_->raw_blocks().FreeBlocks(session, kFullAttention, refs, now_));
  };
  const SessionId other = core_->OpenSession("other", absl::InfiniteDuration(), now_)->ref.id;
  EXPECT_EQ(free(other, {first}), Reason::kForeignBlock);
  EXPECT_EQ(free(session_, {first, first}), Reason::kDoubleFree);
  EXPECT_EQ(free(session_, {first, {BlockId{99}, Generation{1}}}), Reason::kUnknownBlock);
  EXPECT_EQ(Primary().active, 2u) << "a refused call frees nothing";
  EXPECT_EQ(free(session_, {first, second}), Reason::kNone);
  EXPECT_EQ(free(session_, {first}), Reason::kDoubleFree);
  ASSERT_TRUE(Add(1, Range(0, 7)).ok());  // The blocks are used again.
  EXPECT_EQ(free(session_, {first}), Reason::kStaleHandle);
  EXPECT_EQ(free(session_, {TableOf(1)[0].ref()}), Reason::kForeignBlock);
}

TEST_F(BlockManagerTest, ResetForgetsPrefixesAndLeavesSequencesTheirBlocks) {
  Make(8, 4);
  AddAndFree(1, Range(100, 107));
  ASSERT_TRUE(Add(2, Range(0, 8)).ok());
  Commit(2, {}, 8);
  ASSERT_EQ(*Add(3, Range(0, 8)), 8u);
  core_->TakeEvents();
  EXPECT_EQ(core_->ResetPrefixCache(now_), 4u);
  const auto removed = std::get<RemovedEvent>(core_->TakeEvents().at(0).what);
  EXPECT_EQ(removed.reason, RemovalReason::kCleared);
  EXPECT_EQ(removed.scope, RemovedEvent::Scope::kWindow);
  EXPECT_EQ(Primary().cached, 0u);
  EXPECT_EQ(TableOf(2)[0], TableOf(3)[0]) << "they share as before";
  Append(2, {9, 10, 11}, 12);
  EXPECT_TRUE(core_->TakeEvents().empty()) << "what was computed before is not cached any more";
  Free(2);
  Free(3);
  EXPECT_EQ(Primary().free, 8u);
}

TEST_F(BlockManagerTest, TheFirstEventSaysWhatThereIs) {
  Make(8, 4);
  const EventBatch events = core_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].revision, Revision{1});
  EXPECT_THAT(std::get<CreatedEvent>(events[0].what).blocks_per_tier, ElementsAre(8));
}

TEST_F(BlockManagerTest, RawBlocksAreEventsById) {
  Make(8, 4);
  core_->TakeEvents();
  std::vector<BlockHandle> blocks(2);
  ASSERT_TRUE(core_->raw_blocks()
                  .AllocateBlocks(session_, kFullAttention, absl::MakeSpan(blocks), now_)
                  .ok());
  ASSERT_TRUE(
      core_->raw_blocks().FreeBlocks(session_, kFullAttention, {{blocks[0].ref()}}, now_).ok());
  const EventBatch events = core_->TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(std::get<CreatedEvent>(events[0].what).blocks,
              ElementsAre(blocks[0].id, blocks[1].id));
  const auto& released = std::get<RemovedEvent>(events[1].what);
  EXPECT_EQ(released.reason, RemovalReason::kReleased);
  EXPECT_THAT(released.blocks, ElementsAre(blocks[0].id));
}

TEST_F(BlockManagerTest, StoredBlocksOfOneCommitAreOneChain) {
  Make(8, 4);
  ASSERT_TRUE(Add(1, Range(0, 10)).ok());
  core_->TakeEvents();
  Commit(1, {}, 8);
  const EventBatch events = core_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  const auto& stored = std::get<StoredEvent>(events[0].what);
  EXPECT_FALSE(stored.parent_hash.has_value());
  ASSERT_EQ(stored.blocks.size(), 2u);
  EXPECT_THAT(stored.tokens, ::testing::ElementsAreArray(Range(0, 7)));
  EXPECT_EQ(stored.blocks[1].hash, HashBlock(stored.blocks[0].hash, {Range(4, 7), {}}));
}

TEST_F(BlockManagerTest, ATailThatIsComputedAgainIsRecentAgain) {
  Make(4, 4);
  const std::vector<TokenId> tail = {1, 2};
  ASSERT_TRUE(Add(1, tail).ok());
  // Added before the first one is cached, so it computes the same content.
  ASSERT_TRUE(Add(2, tail).ok());
  Commit(1, {}, 2);
  Free(1);
  AddAndFree(3, {7, 8});
  Commit(2, {}, 2);
  Free(2);  // The first one's tail is canonical, and now used after the third's.
  ASSERT_TRUE(Add(4, Range(50, 61)).ok());  // Needs three blocks; two are free.
  EXPECT_EQ(Match({1, 2, 3}), 2u);
  EXPECT_EQ(Match({7, 8, 9}), 0u);
}

TEST_F(BlockManagerTest, CountsLookupsHitsAndEvictions) {
  Make(4, 4);
  AddAndFree(1, Range(0, 7));
  AddAndFree(2, Range(0, 8));
  AddAndFree(3, Range(100, 111));
  const WindowCounters counters = core_->Stats().windows[0].counters;
  EXPECT_EQ(counters.prefix_lookup_tokens, 8u + 9u + 12u);
  EXPECT_EQ(counters.prefix_hit_tokens, 8u);
  EXPECT_EQ(counters.evicted_blocks, 2u);
  EXPECT_EQ(counters.allocated_blocks, 2u + 1u + 3u);
}

TEST(BlockManagerOptionsTest, WhatCannotBeServedIsRefused) {
  const auto refused = [](BlockManager::Options options) {
    return ReasonOf(BlockManager::Create(std::move(options)).status()) == Reason::kInvalidArgument;
  };
  const CacheLayout layout = TinyLayout(4);
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({0})}));
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({(1u << 28) + 1})}));
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({1}, {(1u << 28) + 1})}));
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({1}), .eviction_policy = "none"}));
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({1}), .pin_budget_permille = 1001}));
  for (const std::string_view policy : EvictionPolicyNames()) {
    EXPECT_FALSE(refused(
        {.layout = layout, .tiers = HostTiers({1}), .eviction_policy = std::string(policy)}));
  }
}

}  // namespace
}  // namespace pagoda
