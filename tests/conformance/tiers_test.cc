// Two tiers: which blocks are offloaded, how they are onboarded, and what happens to copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "manager/sequences/running_sequences.h"
#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Change<Tier> kDown{kPrimaryTier, Tier(1)};
constexpr Change<Tier> kUp{Tier(1), kPrimaryTier};

class TiersTest : public ConformanceTest {
 protected:
  uint32_t Offload(const Tokens& tokens) {
    const auto offloaded = Run(OffloadPrefix{.tokens = tokens});
    EXPECT_TRUE(offloaded.ok()) << offloaded.status();
    return offloaded->blocks;
  }
  uint32_t Prefetch(const Tokens& tokens) {
    const auto prefetched = Run(PrefetchPrefix{.tokens = tokens});
    EXPECT_TRUE(prefetched.ok()) << prefetched.status();
    return prefetched->blocks;
  }
  std::optional<Tier> TierOf(const Tokens& prefix) const {
    const std::optional<TreeEntry> entry = Cached(prefix);
    return entry.has_value() ? std::optional(entry->tier) : std::nullopt;
  }
  // The changes of tier since the last call, in order. There were no other events but changes of
  // lower copies.
  std::vector<std::pair<BlockId, Change<Tier>>> TakeMoves() {
    const std::vector<Event> events = TakeEvents();
    std::vector<std::pair<BlockId, Change<Tier>>> moves;
    const std::vector<UpdatedEvent> updates = OfType<UpdatedEvent>(events);
    for (const UpdatedEvent& updated : updates) {
      EXPECT_TRUE(updated.tier.has_value() || updated.lower.has_value());
      if (updated.tier.has_value()) moves.emplace_back(updated.id, *updated.tier);
    }
    EXPECT_EQ(updates.size(), events.size()) << "other events among them";
    return moves;
  }
};

SequenceRetention ByBlock(std::vector<uint8_t> priorities) {
  SequenceRetention retention;
  for (uint32_t i = 0; i < priorities.size(); ++i) {
    retention.ranges.push_back({4 * i, 4 * i + 4, {.priority = Priority{priorities[i]}}});
  }
  return retention;
}

// --- Down ---

TEST_F(TiersTest, AVictimMovesDownAndStaysReusable) {
  Make(4, 2, 2);
  Serve(1, Range(0, 7));
  TakeEvents();
  Add(2, Range(100, 107));
  EXPECT_THAT(TakeMoves(), ElementsAre(std::pair(RequireCached(Range(0, 7)).id, kDown),
                                       std::pair(RequireCached(Range(0, 3)).id, kDown)));
  EXPECT_EQ(Lower().cached, 2u);
  EXPECT_EQ(Primary().active, 2u);
  EXPECT_EQ(Match(Range(0, 8)), 8u);
}

// Peers disagree with their own documents on the default threshold, and on "at least" or "above".
TEST_F(TiersTest, AtLeastTheThresholdMovesDown) {
  Make({.windows = {{.primary = 2, .lower = 2}}, .offload_min_priority = Priority{30}});
  Serve(1, Range(0, 3), ByBlock({29}));
  Serve(2, Range(10, 13), ByBlock({30}));
  Add(3, Range(100, 107));
  EXPECT_EQ(TierOf(Range(0, 3)), std::nullopt);
  EXPECT_EQ(TierOf(Range(10, 13)), Tier(1));
}

TEST_F(TiersTest, AParentFollowsItsChildrenWhateverItsPriority) {
  Make(4, 2, 2);
  Serve(1, Range(0, 7), ByBlock({10, 80}));
  TakeEvents();
  Add(2, Range(100, 107));
  EXPECT_THAT(TakeMoves(), SizeIs(2));
  EXPECT_EQ(Match(Range(0, 8)), 8u) << "else the child could not be reached";
}

TEST_F(TiersTest, WhatComesDownDisplacesTheOldest) {
  Make(4, 1, 1);
  Serve(1, Range(0, 3));
  Serve(2, Range(10, 13));
  const TreeEntry first = RequireCached(Range(0, 3)), second = RequireCached(Range(10, 13));
  EXPECT_EQ(first.tier, Tier(1));
  TakeEvents();
  Serve(3, Range(20, 23));
  const std::vector<Event> events = TakeEvents();
  const auto removed = OfType<RemovedEvent>(events);
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].reason, RemovalReason::kDisplaced);
  EXPECT_THAT(removed[0].hashes, ElementsAre(first.hash));
  const auto updated = OfType<UpdatedEvent>(events);
  ASSERT_EQ(updated.size(), 1u);
  EXPECT_EQ(updated[0].id, second.id);
  EXPECT_EQ(updated[0].tier, kDown);
}

// A parent of low priority is offloaded only for its children. If its only child is the block that
// it would displace, both leave.
TEST_F(TiersTest, AParentDoesNotDisplaceItsOnlyChild) {
  Make(4, 2, 1);
  Serve(1, Range(0, 7), ByBlock({10, 80}));
  Add(2, Range(100, 103));
  ASSERT_EQ(TierOf(Range(0, 7)), Tier(1));
  TakeEvents();
  Add(3, Range(200, 203));
  std::vector<RemovalReason> reasons;
  for (const auto& removed : OfType<RemovedEvent>(TakeEvents())) {
    reasons.push_back(removed.reason);
  }
  EXPECT_THAT(reasons, ElementsAre(RemovalReason::kDisplaced, RemovalReason::kEvicted));
  EXPECT_EQ(CachedBlocks(), 0u);
}

// --- By name and ahead of need ---

TEST_F(TiersTest, AnOffloadGoesUpToTheFirstHeldBlock) {
  Make(4, 8, 8);
  Serve(1, Range(0, 11));
  Add(2, Range(0, 4));
  TakeEvents();
  EXPECT_EQ(Offload(Range(0, 11)), 2u);
  EXPECT_THAT(TakeMoves(), ElementsAre(std::pair(RequireCached(Range(0, 11)).id, kDown),
                                       std::pair(RequireCached(Range(0, 7)).id, kDown)));
  EXPECT_EQ(TierOf(Range(0, 3)), kPrimaryTier);
  EXPECT_EQ(Offload(Range(0, 11)), 0u) << "they are there";
}

TEST_F(TiersTest, APrefetchGoesAsFarAsSlotsCanBeFreed) {
  Make(4, 3, 4);
  Serve(1, Range(0, 11));
  ASSERT_EQ(Offload(Range(0, 11)), 3u);
  Add(2, Range(100, 107));
  const auto prefetched = Run(PrefetchPrefix{.tokens = Range(0, 11)});
  ASSERT_TRUE(prefetched.ok());
  EXPECT_EQ(prefetched->matched_tokens, 12u);
  EXPECT_EQ(prefetched->blocks, 1u);
  EXPECT_EQ(TierOf(Range(0, 3)), kPrimaryTier);
  EXPECT_EQ(TierOf(Range(0, 7)), Tier(1));
}

TEST_F(TiersTest, WithoutALowerTierNothingMoves) {
  Make(4, 4);
  Serve(1, Range(0, 7));
  EXPECT_EQ(Offload(Range(0, 7)), 0u);
  EXPECT_EQ(Prefetch(Range(0, 7)), 0u);
}

// Peers offload only during an allocation.
TEST_F(TiersTest, BelowTheWatermarkBlocksMoveDownAheadOfNeed) {
  Make({.windows = {{.primary = 8, .lower = 8}}, .offload_watermark_permille = 500});
  Serve(1, Range(0, 31));
  EXPECT_EQ(Primary().free, 0u);
  Maintain(/*max_blocks=*/1);
  EXPECT_EQ(Primary().free, 1u);
  Maintain(/*max_blocks=*/100);
  EXPECT_EQ(Primary().free, 4u);
  Maintain(/*max_blocks=*/100);
  EXPECT_EQ(Primary().free, 4u);
  EXPECT_EQ(Match(Range(0, 32)), 32u);
  const auto added = Run(AddSequence{.sequence = SequenceId{2}, .tokens = Range(100, 115)});
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->ready, Ticket{}) << "nothing to wait for";
  EXPECT_EQ(Match(Range(0, 32)), 32u);
}

TEST_F(TiersTest, AheadOfNeedNothingIsDropped) {
  Make({.windows = {{.primary = 4, .lower = 1}}, .offload_watermark_permille = 500});
  Serve(1, Range(100, 103));
  ASSERT_EQ(Offload(Range(100, 103)), 1u);
  ASSERT_TRUE(Run(PinPrefix{.tokens = Range(100, 103)}).ok());  // The tier below is full now.
  Serve(2, Range(0, 15));
  TakeEvents();
  Maintain(/*max_blocks=*/100);
  EXPECT_EQ(Primary().free, 0u);
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

TEST_F(TiersTest, AVictimDoesNotDisplaceWhatIsWorthMore) {
  Make(4, 2, 1);
  Serve(1, Range(100, 103), ByBlock({90}));
  ASSERT_EQ(Offload(Range(100, 103)), 1u);
  Serve(2, Range(0, 3), ByBlock({40}));
  Serve(3, Range(200, 203), ByBlock({40}));
  TakeEvents();
  Add(4, Range(300, 303));  // One of the two must leave, and cannot be offloaded.
  EXPECT_EQ(TakeOnly<RemovedEvent>().reason, RemovalReason::kEvicted);
  EXPECT_EQ(TierOf(Range(100, 103)), Tier(1));
}

// --- Up ---

TEST_F(TiersTest, AMatchBringsTheWholePrefixUp) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Offload(Range(0, 7)), 2u);
  TakeEvents();
  copies_ = Copies::kByHand;
  const auto added = Run(AddSequence{.sequence = SequenceId{2}, .tokens = Range(0, 8)});
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->matched_tokens, 8u);
  EXPECT_THAT(TakeMoves(), ElementsAre(std::pair(RequireCached(Range(0, 3)).id, kUp),
                                       std::pair(RequireCached(Range(0, 7)).id, kUp)));
  ASSERT_EQ(pending().size(), 2u);
  EXPECT_EQ(added->ready, pending().rbegin()->first);
  for (const auto& [ticket, order] : pending()) {
    EXPECT_EQ(order.source.tier, Tier(1));
    EXPECT_EQ(order.target.tier, kPrimaryTier);
    EXPECT_EQ(order.num_tokens, 4u);
  }
}

TEST_F(TiersTest, OfABlockBelowThatMatchesInPartItsFirstTokensAreCopied) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Offload(Range(0, 7)), 2u);
  EXPECT_EQ(Add(2, Range(0, 5) + Tokens{99}), 6u);
  EXPECT_EQ(TierOf(Range(0, 3)), kPrimaryTier);
  EXPECT_EQ(TierOf(Range(0, 7)), Tier(1)) << "it stays where it was";
}

// Nothing is lost when two full tiers swap: a match onboards its blocks, and its victims take their
// slots.
TEST_F(TiersTest, AMatchSwapsTwoFullTiers) {
  Make(4, 3, 2);
  const Tokens a = Range(0, 7), b = Range(100, 107);
  const auto raw = Run(AllocateBlocks{.count = 1});
  Serve(1, a);
  Serve(2, b);
  ASSERT_TRUE(Run(FreeBlocks{.blocks = {raw->blocks.at(0).ref()}}).ok());
  ASSERT_EQ(Lower().cached, 2u);
  TakeEvents();
  for (uint64_t id = 3; id < 9; ++id) {
    const bool turn = id % 2 == 1;
    EXPECT_EQ(Add(id, (turn ? a : b) + Tokens{99}), 8u);
    EXPECT_EQ(TierOf(turn ? b : a), Tier(1));
    EXPECT_THAT(TakeMoves(), SizeIs(4));
    EXPECT_EQ(CachedBlocks(), 4u);
    Free(id);
  }
}

TEST_F(TiersTest, APrefetchSwapsTwoFullTiers) {
  Make(4, 2, 2);
  Serve(1, Range(0, 7));
  Serve(2, Range(100, 107));
  ASSERT_EQ(Primary().cached + Lower().cached, 4u);
  TakeEvents();
  EXPECT_EQ(Prefetch(Range(0, 7)), 2u);
  EXPECT_THAT(TakeMoves(), SizeIs(4));
  EXPECT_EQ(TierOf(Range(0, 7)), kPrimaryTier);
  EXPECT_EQ(TierOf(Range(100, 107)), Tier(1));
  EXPECT_EQ(Add(3, Range(0, 4)), 4u) << "and the bytes went with the blocks";
}

// Rule 10: if the content is cached below, a new copy takes its place, and no bytes move.
TEST_F(TiersTest, ContentThatIsComputedAgainComesUpWithoutACopy) {
  Make(4, 4, 4);
  Add(1, Range(0, 7));
  Add(2, Range(0, 7));
  Compute(1, 8);
  Free(1);
  ASSERT_EQ(Offload(Range(0, 7)), 2u);
  TakeEvents();
  const Ticket before = core_->last_ticket();
  const std::vector<BlockHandle> table = Table(2);
  Compute(2, 8);
  EXPECT_THAT(TakeMoves(), ElementsAre(std::pair(RequireCached(Range(0, 3)).id, kUp),
                                       std::pair(RequireCached(Range(0, 7)).id, kUp)));
  EXPECT_EQ(core_->last_ticket(), before);
  EXPECT_EQ(Table(2), table);
  EXPECT_EQ(Used(), 2u);
  Free(2);
  EXPECT_EQ(Primary().cached, 2u);
  EXPECT_EQ(Lower().free, 2u);
  EXPECT_EQ(Lower().duplicates, 2u);
  EXPECT_EQ(Add(3, Range(0, 8)), 8u);
}

// --- Copies ---

TEST_F(TiersTest, ASlotPassesOnWithItsTicket) {
  Make(4, 1, 1);
  Serve(1, Range(0, 3));
  copies_ = Copies::kByHand;
  const auto added = Run(AddSequence{.sequence = SequenceId{2}, .tokens = Range(10, 13)});
  ASSERT_TRUE(added.ok());
  ASSERT_EQ(pending().size(), 1u);
  const Order order = pending().begin()->second;
  EXPECT_EQ(added->tables.at(0).blocks.at(0).slot, order.source.slot);
  EXPECT_EQ(added->ready, order.ticket) << "before that its new owner must not write";
  EXPECT_EQ(Primary().in_flight, 1u);
  EXPECT_EQ(Lower().in_flight, 1u);
  ExpectRefused(Reason::kWaitTimeout, WaitForTicket{.ticket = order.ticket});
  ExpectRefused(Reason::kUnknownTicket, WaitForTicket{.ticket = Ticket{order.ticket.value() + 1}});
  Complete(order.ticket);
  EXPECT_EQ(Run(WaitForTicket{.ticket = order.ticket})->completed, order.ticket);
  EXPECT_EQ(Primary().active, 1u);
  EXPECT_EQ(Lower().cached, 1u);
}

// Scenario 36. Copies can end in any order, as long as each waits for those that it names. The
// bytes are those of the last writer.
TEST_F(TiersTest, CopiesThatTouchOneSlotAreOrdered) {
  const Tokens a = Range(0, 11), b = Range(100, 111);
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const auto complete_one = [&] {
      std::vector<Ticket> startable;
      for (const auto& [ticket, order] : pending()) {
        if (!pending().contains(order.after[0]) && !pending().contains(order.after[1])) {
          startable.push_back(ticket);
        }
      }
      ASSERT_THAT(startable, ::testing::Not(IsEmpty()));
      Complete(startable[random() % startable.size()]);
    };
    copies_ = Copies::kAtOnce;
    Make(4, 6, 6);
    Serve(1, a);
    Serve(2, b);
    copies_ = Copies::kByHand;
    for (int i = 0; i < 30; ++i) {
      const Tokens& tokens = random() % 2 == 0 ? a : b;
      random() % 2 == 0 ? Offload(tokens) : Prefetch(tokens);
      while (!pending().empty() && random() % 3 == 0) complete_one();
    }
    EXPECT_NE(core_->last_ticket(), Ticket{});
    while (!pending().empty()) ASSERT_NO_FATAL_FAILURE(complete_one());
    copies_ = Copies::kAtOnce;
    EXPECT_EQ(Add(3, a + Tokens{99}), 12u);  // Compares the KV.
    Free(3);
    EXPECT_EQ(Add(4, b + Tokens{99}), 12u);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST_F(TiersTest, AFailedOffloadLosesTheCachedBlock) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  const TreeEntry leaf = RequireCached(Range(0, 7));
  TakeEvents();
  copies_ = Copies::kByHand;
  ASSERT_EQ(Offload(Range(0, 7)), 2u);
  TakeMoves();
  Complete(pending().begin()->first, absl::DataLossError("planted"));  // The leaf leaves first.
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kLost);
  EXPECT_THAT(removed.hashes, ElementsAre(leaf.hash));
  CompleteAll();
  EXPECT_EQ(Match(Range(0, 8)), 4u);
  EXPECT_EQ(Lower().free, 3u);
  EXPECT_EQ(Primary().free, 4u);
}

TEST_F(TiersTest, WhatIsBelowALostBlockIsLostToo) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  const BlockHash parent = RequireCached(Range(0, 3)).hash, leaf = RequireCached(Range(0, 7)).hash;
  copies_ = Copies::kByHand;
  ASSERT_EQ(Offload(Range(0, 7)), 2u);
  TakeEvents();
  Complete(pending().rbegin()->first, absl::DataLossError("planted"));
  EXPECT_THAT(TakeOnly<RemovedEvent>().hashes, ElementsAre(leaf, parent));
  CompleteAll();
  EXPECT_EQ(Lower().free, 4u);
}

TEST_F(TiersTest, AFailedOnboardShortensTheSequence) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Offload(Range(0, 7)), 2u);
  TakeEvents();
  copies_ = Copies::kByHand;
  EXPECT_EQ(Add(2, Range(0, 8)), 8u);
  ASSERT_EQ(pending().size(), 2u);
  Complete(pending().begin()->first);
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_EQ(Describe(2).computed_tokens, 4u);
  const auto removed = OfType<RemovedEvent>(TakeEvents());
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].reason, RemovalReason::kLost);

  // It must know of the loss before it continues.
  ExpectRefused(Reason::kKvLost, CommitTokens{.sequence = SequenceId{2}, .computed_tokens = 9});
  ExpectRefused(Reason::kKvLost,
                AppendTokens{.sequence = SequenceId{2}, .tokens = {9}, .computed_tokens = 9});
  EXPECT_THAT(ReadShortened(), ElementsAre(ShortenedSequence{SequenceId{2}, 4, 1}));
  EXPECT_THAT(ReadShortened(), SizeIs(1)) << "until a commit says that it is known";
  copies_ = Copies::kAtOnce;
  Compute(2, 9);
  EXPECT_THAT(ReadShortened(), IsEmpty());
  Free(2);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(Match(Range(0, 8)), 4u) << "what lost its place in the tree does not come back";
  Serve(3, Range(0, 8));
  EXPECT_EQ(Match(Range(0, 8)), 8u);
}

// Peers' engines are told once, or find out by wrong tokens. Here a commit is refused if it was
// sent before its client could learn of the loss, however many answers were given in between.
TEST_F(TiersTest, ACommitThatDoesNotKnowOfALossIsRefused) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  copies_ = Copies::kByHand;
  EXPECT_EQ(Add(2, Range(0, 5) + Tokens{99}), 6u);
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_THAT(core_->sequences().Shortened(session_), SizeIs(1))
      << "an answer that is lost on its way";
  const CommitTokens unaware{.sequence = SequenceId{2}, .computed_tokens = 7};
  ExpectRefused(Reason::kKvLost, unaware);
  ExpectRefused(Reason::kKvLost,
                AppendTokens{.sequence = SequenceId{2}, .tokens = {100}, .computed_tokens = 7});
  EXPECT_FALSE(Cached(Range(0, 5) + Tokens{99}).has_value()) << "nothing wrong is cached";
  ExpectRefused(Reason::kInvalidArgument,
                CommitTokens{.sequence = SequenceId{2}, .computed_tokens = 7, .known_losses = 2});
  EXPECT_TRUE(Run(CommitTokens{.sequence = SequenceId{2}, .tokens = {}}).ok())
      << "to name tokens it need not know";
  EXPECT_THAT(ReadShortened(), ElementsAre(ShortenedSequence{SequenceId{2}, 4, 1}));
  Compute(2, 7);
  EXPECT_THAT(ReadShortened(), IsEmpty());
}

TEST_F(TiersTest, AForkKnowsNoMoreOfLossesThanItsSource) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  copies_ = Copies::kByHand;
  EXPECT_EQ(Add(2, Range(0, 5) + Tokens{99}), 6u);
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  const auto forked = Run(ForkSequence{.sequence = SequenceId{2}, .new_sequence = SequenceId{3}});
  ASSERT_TRUE(forked.ok());
  EXPECT_EQ(forked->losses, 1u);
  EXPECT_EQ(forked->computed_tokens, 4u);
  EXPECT_THAT(core_->sequences().Shortened(session_), SizeIs(2));
  ExpectRefused(Reason::kKvLost,
                AppendTokens{.sequence = SequenceId{3}, .tokens = {100}, .computed_tokens = 7});
  Run(FreeSequence{SequenceId{3}}).IgnoreError();
}

TEST_F(TiersTest, AFailedPartialCopyShortensTheSequenceAlone) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  TakeEvents();
  copies_ = Copies::kByHand;
  EXPECT_EQ(Add(2, Range(0, 5) + Tokens{99}), 6u);
  ASSERT_EQ(pending().size(), 1u);
  EXPECT_EQ(pending().begin()->second.num_tokens, 2u);
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_THAT(TakeEvents(), IsEmpty()) << "the source is what it was";
  EXPECT_THAT(ReadShortened(), ElementsAre(ShortenedSequence{SequenceId{2}, 4, 1}));
  Compute(2, 7);
  Free(2);
  EXPECT_TRUE(Cached(Range(0, 5) + Tokens{99}).has_value());
}

// Bytes that never arrived below cannot be onboarded, whatever the second copy reports.
TEST_F(TiersTest, ACopyOfWhatDidNotArriveHasFailedToo) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  copies_ = Copies::kByHand;
  ASSERT_EQ(Offload(Range(0, 7)), 2u);
  EXPECT_EQ(Add(2, Range(0, 8)), 8u);
  ASSERT_THAT(pending(), SizeIs(4));
  Complete(pending().begin()->first, absl::DataLossError("planted"));  // The second block's.
  EXPECT_THAT(ReadShortened(), IsEmpty()) << "not yet";
  CompleteAll();
  EXPECT_THAT(ReadShortened(), ElementsAre(ShortenedSequence{SequenceId{2}, 4, 1}));
  EXPECT_FALSE(Cached(Range(0, 7)).has_value());
  Compute(2, 9);
}

TEST_F(TiersTest, ALostBlockEndsItsPinAndStaysItsSequences) {
  Make(4, 4, 4);
  Serve(1, Range(0, 3));
  ASSERT_EQ(Offload(Range(0, 3)), 1u);
  const auto pinned = Run(PinPrefix{.tokens = Range(0, 3)});
  copies_ = Copies::kByHand;
  EXPECT_EQ(Add(2, Range(0, 4)), 4u);
  ASSERT_THAT(pending(), SizeIs(1));
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_THAT(ReadShortened(), ElementsAre(ShortenedSequence{SequenceId{2}, 0, 1}));
  EXPECT_EQ(CachedBlocks(), 0u);
  ExpectRefused(Reason::kUnknownPin, UnpinPrefix{.pin = pinned->pin});
  EXPECT_EQ(Primary().active, 2u);
  Free(2);
  EXPECT_EQ(Primary().free, 4u);
}

TEST_F(TiersTest, AResetDoesNotWaitForCopies) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  Serve(2, Range(100, 103));
  const auto pinned = Run(PinPrefix{.tokens = Range(100, 103)});
  copies_ = Copies::kByHand;
  ASSERT_EQ(Offload(Range(0, 7)), 2u);
  core_->ResetPrefixCache(now_);
  Maintain();
  EXPECT_EQ(CachedBlocks(), 0u);
  EXPECT_EQ(Lower().in_flight, 2u) << "their slots are still being written";
  EXPECT_EQ(Primary().in_flight, 2u);
  CompleteAll();
  EXPECT_EQ(Lower().free, 4u);
  ExpectRefused(Reason::kUnknownPin, UnpinPrefix{.pin = pinned->pin});
  EXPECT_EQ(Primary().free, 4u);
}

TEST_F(TiersTest, AnInvalidatedPrefixLeavesBothTiers) {
  Make(4, 4, 4);
  Serve(1, Range(0, 11));
  ASSERT_EQ(Offload(Range(0, 11)), 3u);
  Add(2, Range(0, 4));  // Onboards the first one and holds it.
  EXPECT_EQ(Run(InvalidatePrefix{})->removed_blocks, 3u);
  EXPECT_EQ(CachedBlocks(), 0u);
  EXPECT_EQ(Lower().free, 4u);
  Append(2, {5, 6, 7, 8}, 9);
  Free(2);
  EXPECT_EQ(CachedBlocks(), 0u) << "what lost its place in the tree does not come back";
  EXPECT_EQ(Primary().free, 4u);
}

}  // namespace
}  // namespace pagoda
