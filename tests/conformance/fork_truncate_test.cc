// Sequences that fork (beams, parallel samples) and that are truncated (rejected draft tokens).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ForkTest : public ConformanceTest {};

TEST_F(ForkTest, AForkSharesAllBlocksUntilItGrows) {
  Make(4, 8);
  Add(1, Range(0, 9));
  Compute(1, 10);
  const std::vector<BlockHandle> table = Table(1);
  Fork(1, 2);
  EXPECT_EQ(Used(), 3u);
  EXPECT_EQ(Table(2), table);
  // The first sequence with the tail continues in it; the other one copies it.
  EXPECT_THAT(Append(1, {60}).added.at(0).blocks, IsEmpty());
  const AppendedTokens appended = Append(2, {50});
  EXPECT_EQ(appended.added.at(0).first_block, 2u);
  EXPECT_THAT(appended.added.at(0).blocks, SizeIs(1));
  EXPECT_EQ(Table(1), table);
  EXPECT_EQ(Table(2).at(1), table[1]);
  EXPECT_NE(Table(2).at(2).slot, table[2].slot);
  EXPECT_EQ(Used(), 4u);
  Compute(1, 11);
  Compute(2, 11);  // Both read tokens 8 and 9 in their own tails.
  Free(1);
  Free(2);
  EXPECT_EQ(Used(), 0u);
  EXPECT_TRUE(Cached(Range(0, 9) + Tokens{60}).has_value());
  EXPECT_TRUE(Cached(Range(0, 9) + Tokens{50}).has_value());
}

TEST_F(ForkTest, AtABlocksEndNothingIsCopied) {
  Make(4, 8);
  Add(1, Range(0, 7));
  Compute(1, 8);
  Fork(1, 2);
  Append(1, {60}, 9);
  Append(2, {50}, 9);
  EXPECT_EQ(core_->last_ticket(), Ticket{});
  EXPECT_EQ(Used(), 2u + 2u);
}

TEST_F(ForkTest, TokensThatAreNotComputedWaitForCapacity) {
  Make(4, 8);
  Add(1, Range(0, 9));
  Compute(1, 6);
  Fork(1, 2);
  const DescribedSequence fork = Describe(2);
  EXPECT_EQ(fork.token_count, 10u);
  EXPECT_EQ(fork.computed_tokens, 6u);
  EXPECT_EQ(fork.reserved_tokens, 6u);
  EXPECT_THAT(fork.tables.at(0).blocks, SizeIs(2));
  ExpectRefused(Reason::kReservationExceeded,
                CommitTokens{.sequence = SequenceId{2}, .computed_tokens = 10});
  const auto reserved = Run(ReserveTokens{.sequence = SequenceId{2}, .count = 4});
  ASSERT_TRUE(reserved.ok());
  EXPECT_EQ(reserved->added.at(0).first_block, 1u) << "the tail was copied";
  EXPECT_THAT(reserved->added.at(0).blocks, SizeIs(2));
  Compute(2, 10);
  Compute(1, 10);
  Free(1);
  Free(2);
  EXPECT_EQ(CachedBlocks(), 3u) << "the same content, once";
}

// A sequence that is left alone with a tail that another one copied waits for that copy before it
// writes: it could have computed fewer of the tail's tokens than were copied.
TEST_F(ForkTest, WhoGoesOnInATailWaitsForItsCopies) {
  copies_ = Copies::kByHand;
  Make(4, 8);
  Add(1, Range(0, 6));
  Compute(1, 5);
  Fork(1, 2);  // It shares one token of the tail.
  Compute(1, 6);
  Fork(1, 3);  // It shares two.
  EXPECT_EQ(Append(3, {50}).ready, Ticket{1});
  Free(1);
  Run(InvalidatePrefix{}).IgnoreError();  // Otherwise the cache would have the tail.
  const AppendedTokens appended = Append(2, {60});
  EXPECT_THAT(appended.added.at(0).blocks, IsEmpty()) << "it goes on in place";
  EXPECT_EQ(appended.ready, Ticket{1});
}

TEST_F(ForkTest, AForkOutlivesItsSource) {
  Make(4, 8);
  Add(1, Range(0, 9));
  Compute(1, 10);
  Fork(1, 2);
  Free(1);
  EXPECT_TRUE(Cached(Range(0, 9)).has_value()) << "its tail is everyone's now";
  EXPECT_EQ(Used(), 3u);
  Append(2, {50, 51});
  EXPECT_TRUE(Cached(Range(0, 9)).has_value()) << "so the fork goes on in a copy";
  Compute(2, 12);
  EXPECT_FALSE(Cached(Range(0, 9)).has_value()) << "the fork's block begins with it";
  EXPECT_TRUE(Cached(Range(0, 9) + Tokens{50, 51}).has_value());
  Free(2);
  EXPECT_EQ(Used(), 0u);
}

TEST_F(ForkTest, ABorrowedTailIsItsOwnersToPublish) {
  Make(4, 8);
  Add(1, Range(0, 9));
  Compute(1, 10);
  Fork(1, 2);
  TakeEvents();
  Free(2);
  EXPECT_THAT(TakeEvents(), IsEmpty());
  EXPECT_EQ(Used(), 3u);
  Append(1, {60, 61}, 12);
  EXPECT_EQ(core_->last_ticket(), Ticket{}) << "nothing was copied";
  EXPECT_THAT(TakeOnly<StoredEvent>().tokens, ElementsAre(8, 9, 60, 61));
}

TEST_F(ForkTest, WhoeverIsLeftAloneWithATailGoesOnInIt) {
  Make(4, 8);
  Add(1, Range(0, 9));
  Compute(1, 10);
  Fork(1, 2);
  const std::vector<BlockHandle> table = Table(2);
  Truncate(1, 8);
  Append(2, {50}, 11);
  EXPECT_EQ(Table(2), table);
  EXPECT_EQ(core_->last_ticket(), Ticket{});
}

TEST_F(ForkTest, ASharedTailIsWritableForItsOwner) {
  for (const uint64_t owner : {1, 2}) {
    Make(4, 8);
    const uint64_t fork = 3 - owner;
    Add(owner, Range(0, 9));
    Compute(owner, 10);
    Fork(owner, fork);
    EXPECT_THAT(Append(owner, {60}).added.at(0).blocks, IsEmpty()) << "owner " << owner;
    EXPECT_THAT(Append(fork, {50}).added.at(0).blocks, SizeIs(1)) << "owner " << owner;
  }
}

TEST_F(ForkTest, AForkOfATailThatWasLostStartsItAnew) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  copies_ = Copies::kByHand;
  EXPECT_EQ(Add(2, Range(0, 5) + Tokens{99}), 6u);
  Fork(2, 3);
  ASSERT_THAT(pending(), SizeIs(1));
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_THAT(ReadShortened(), ElementsAre(ShortenedSequence{SequenceId{2}, 4, 1},
                                           ShortenedSequence{SequenceId{3}, 4, 1}));
  EXPECT_EQ(Append(3, {50}).added.at(0).first_block, 1u);
  EXPECT_THAT(pending(), IsEmpty()) << "there is nothing to copy";
  Compute(3, 8);
  Compute(2, 7);
  Free(3);
  Free(2);
  EXPECT_TRUE(Cached(Range(0, 5) + Tokens{99, 50}).has_value());
  EXPECT_FALSE(Cached(Range(0, 5) + Tokens{99}).has_value()) << "the fork's block begins with it";
}

// Tokens that the sequence computes again in a shared tail are included when an append copies the
// tail.
TEST_F(ForkTest, AnAppendCopiesWhatItDeclaresComputed) {
  copies_ = Copies::kByHand;
  Make(4, 8);
  Serve(1, Range(0, 7));
  EXPECT_EQ(Add(2, Range(0, 5) + Tokens{99}), 6u);
  Fork(2, 3);
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_THAT(ReadShortened(), SizeIs(2));
  ComputeAndAppend(3, 6, {50});
  ASSERT_THAT(pending(), SizeIs(1));
  EXPECT_EQ(pending().begin()->second.num_tokens, 2u);
}

TEST_F(ForkTest, ForksOfForksShareToo) {
  Make(4, 16);
  Add(1, Range(0, 9));
  Compute(1, 10);
  Fork(1, 2);
  Append(2, {50}, 11);
  Fork(2, 3);
  Fork(3, 4);
  EXPECT_EQ(Used(), 4u);
  for (const uint64_t id : {1, 2, 3, 4}) {
    Append(id, {static_cast<TokenId>(100 + id)}, id == 1 ? 11 : 12);
  }
  EXPECT_EQ(Used(), 2u + 4u);
  for (const uint64_t id : {3, 1, 4, 2}) Free(id);
  EXPECT_EQ(Used(), 0u);
  for (const TokenId last : {102u, 103u, 104u}) {
    EXPECT_TRUE(Cached(Range(0, 9) + Tokens{50, last}).has_value());
  }
}

TEST_F(ForkTest, AForkThatCannotCopyItsTailDoesNotGrow) {
  Make(4, 3);
  Add(1, Range(0, 9));
  Compute(1, 10);
  Fork(1, 2);
  ExpectRefused(Reason::kBlocksExhausted, AppendTokens{.sequence = SequenceId{2}, .tokens = {50}});
  ExpectRefused(Reason::kBlocksExhausted, ReserveTokens{.sequence = SequenceId{2}, .count = 1});
  EXPECT_EQ(Append(1, {60}).token_count, 11u);
}

TEST_F(ForkTest, ForksHaveNamesOfTheirOwn) {
  Make(4, 8);
  Add(1, Range(0, 9));
  Add(2, Range(50, 51));
  ExpectRefused(Reason::kSequenceExists,
                ForkSequence{.sequence = SequenceId{1}, .new_sequence = SequenceId{2}});
  ExpectRefused(Reason::kSequenceExists,
                ForkSequence{.sequence = SequenceId{1}, .new_sequence = SequenceId{1}});
  ExpectRefused(Reason::kUnknownSequence,
                ForkSequence{.sequence = SequenceId{7}, .new_sequence = SequenceId{3}});
}

class TruncateTest : public ConformanceTest {};

TEST_F(TruncateTest, TokensAndTheReservationBehindThemGo) {
  Make(4, 8);
  Add(1, Range(0, 9));
  Compute(1, 10);
  Run(ReserveTokens{.sequence = SequenceId{1}, .count = 8}).IgnoreError();
  ASSERT_EQ(Used(), 5u);
  Commit(1, {10, 11, 12}, 0);
  Truncate(1, 11);
  const DescribedSequence cut = Describe(1);
  EXPECT_EQ(cut.token_count, 11u);
  EXPECT_EQ(cut.computed_tokens, 10u);
  EXPECT_EQ(cut.reserved_tokens, 11u);
  EXPECT_EQ(Used(), 3u);
  EXPECT_EQ(Primary().free, 5u) << "what holds nothing is free at once";
  Append(1, {50}, 12);
  Free(1);
  EXPECT_TRUE(Cached(Range(0, 10) + Tokens{50}).has_value());
}

TEST_F(TruncateTest, CutToAllItsTokensASequenceGivesBackItsReservation) {
  Make(4, 8);
  Add(1, Range(0, 7));
  Run(ReserveTokens{.sequence = SequenceId{1}, .count = 9}).IgnoreError();
  ASSERT_EQ(Used(), 5u);
  const TruncatedSequence truncated = Truncate(1, 8);
  EXPECT_EQ(truncated.tables.at(0).first_block, 2u);
  EXPECT_THAT(truncated.tables.at(0).blocks, IsEmpty());
  EXPECT_EQ(Used(), 2u);
}

TEST_F(TruncateTest, AtABlocksEndWhatIsBehindStaysCached) {
  Make(4, 8);
  Add(1, Range(0, 11));
  Compute(1, 12);
  TakeEvents();
  Truncate(1, 4);
  EXPECT_EQ(Used(), 1u);
  EXPECT_EQ(Describe(1).computed_tokens, 4u);
  EXPECT_THAT(TakeEvents(), IsEmpty());
  EXPECT_EQ(Match(Range(0, 12)), 12u);
  Append(1, {50, 51, 52, 53}, 8);
  EXPECT_EQ(TakeOnly<StoredEvent>().parent, RequireCached(Range(0, 3)).id) << "another branch";
}

TEST_F(TruncateTest, ABlockThatIsItsAloneGoesOnInPlace) {
  Make(4, 8);
  Add(1, Range(0, 7));
  Compute(1, 8);
  const std::vector<BlockHandle> table = Table(1);
  const BlockHash hash = RequireCached(Range(0, 7)).hash;
  TakeEvents();
  Truncate(1, 6);
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kTruncated);
  EXPECT_THAT(removed.hashes, ElementsAre(hash));
  EXPECT_EQ(Table(1), table);
  EXPECT_EQ(core_->last_ticket(), Ticket{});
  Append(1, {50, 51}, 8);
  EXPECT_THAT(TakeOnly<StoredEvent>().tokens, ElementsAre(4, 5, 50, 51));
}

TEST_F(TruncateTest, ABlockWithChildrenIsCopied) {
  Make(4, 8);
  Add(1, Range(0, 11));
  Compute(1, 12);
  const std::vector<BlockHandle> table = Table(1);
  TakeEvents();
  const TruncatedSequence truncated = Truncate(1, 6);
  EXPECT_EQ(truncated.tables.at(0).first_block, 1u);
  EXPECT_THAT(truncated.tables.at(0).blocks, SizeIs(1));
  EXPECT_EQ(Table(1).at(0), table[0]);
  EXPECT_NE(Table(1).at(1).slot, table[1].slot);
  EXPECT_THAT(TakeEvents(), IsEmpty());
  EXPECT_EQ(Match(Range(0, 12)), 12u);
  // The rejected tokens are accepted after all: the content is there already.
  Append(1, {6, 7}, 8);
  EXPECT_THAT(TakeEvents(), IsEmpty());
  Free(1);
  EXPECT_EQ(CachedBlocks(), 3u);
}

TEST_F(TruncateTest, ABlockThatAnotherUsesIsCopied) {
  Make(4, 8);
  Add(1, Range(0, 7));
  Compute(1, 8);
  ASSERT_EQ(Add(2, Range(0, 8)), 8u);
  const std::vector<BlockHandle> table = Table(2);
  Truncate(1, 6);
  EXPECT_EQ(Table(2), table);
  EXPECT_NE(Table(1).at(1).slot, table[1].slot);
  Append(1, {50, 51}, 8);
  Compute(2, 9);
  EXPECT_EQ(Match(Range(0, 8)), 8u);
}

TEST_F(TruncateTest, ACopyOfItsOwnGoesOnInPlace) {
  Make(4, 8);
  Add(1, Range(0, 7));
  Add(2, Range(0, 7));
  Compute(1, 8);
  Compute(2, 8);  // The first one's blocks are canonical.
  const std::vector<BlockHandle> table = Table(2);
  TakeEvents();
  Truncate(2, 6);
  EXPECT_EQ(Table(2), table);
  EXPECT_EQ(core_->last_ticket(), Ticket{});
  EXPECT_THAT(TakeEvents(), IsEmpty());
  Append(2, {50, 51}, 8);
  Free(2);
  Free(1);
  EXPECT_EQ(CachedBlocks(), 3u);
  EXPECT_EQ(Used(), 0u);
}

TEST_F(TruncateTest, ASharedTailIsCopied) {
  Make(4, 8);
  Add(1, Range(0, 10));
  Compute(1, 11);
  Fork(1, 2);
  const std::vector<BlockHandle> table = Table(2);
  Truncate(1, 9);
  EXPECT_NE(Table(1).at(2).slot, table[2].slot);
  EXPECT_EQ(Table(2), table);
  Append(1, {50}, 10);
  Append(2, {60}, 12);
}

TEST_F(TruncateTest, ACutInPlaceWaitsForTheCopiesOfItsBlock) {
  copies_ = Copies::kByHand;
  Make(4, 8);
  Add(1, Range(0, 5));
  Compute(1, 6);
  Fork(1, 2);
  EXPECT_EQ(Append(2, {50}).ready, Ticket{1});
  const TruncatedSequence cut = Truncate(1, 5);
  EXPECT_EQ(cut.tables.at(0).first_block, 2u) << "it goes on in place";
  EXPECT_EQ(cut.ready, Ticket{1});
}

// A failed copy loses the KV, not the token ids: the fork still has those.
TEST_F(TruncateTest, WhatAForkHasIsCopiedThoughItsKvWasLost) {
  copies_ = Copies::kByHand;
  Make(4, 8, 4);
  Serve(1, Range(0, 7));
  CompleteAll();
  EXPECT_EQ(Add(2, Range(0, 5) + Tokens{98, 99}), 6u);  // Two tokens of a block are copied.
  Fork(2, 3);
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_THAT(ReadShortened(), SizeIs(2));
  copies_ = Copies::kAtOnce;
  Truncate(2, 5);
  Append(2, {77}, 6);
  Compute(3, 6);
  // Otherwise the tail would not be cached: the copied block begins with it.
  ASSERT_TRUE(Run(InvalidatePrefix{.tokens = Range(0, 7)}).ok());
  Free(2);
  Free(3);
  EXPECT_TRUE(Cached(Range(0, 5)).has_value());
  EXPECT_TRUE(Cached(Range(0, 4) + Tokens{77}).has_value());
}

TEST_F(TruncateTest, ACutThatNeedsACopyNeedsABlock) {
  Make(4, 3);
  Add(1, Range(0, 11));
  Compute(1, 12);
  ExpectRefused(Reason::kBlocksExhausted,
                TruncateSequence{.sequence = SequenceId{1}, .token_count = 6});
  EXPECT_EQ(Truncate(1, 8).token_count, 8u);
  EXPECT_EQ(Truncate(1, 6).token_count, 6u);
}

TEST_F(TruncateTest, WhatCannotBeDroppedIsRefused) {
  Make(4, 8);
  Add(1, Range(0, 9));
  ExpectRefused(Reason::kInvalidCount,
                TruncateSequence{.sequence = SequenceId{1}, .token_count = 0});
  ExpectRefused(Reason::kInvalidCount,
                TruncateSequence{.sequence = SequenceId{1}, .token_count = 11});
  ExpectRefused(Reason::kUnknownSequence,
                TruncateSequence{.sequence = SequenceId{2}, .token_count = 1});
}

// Peers' truncation cuts a conversation's dead branch out of the tree. Here this is another
// operation, which needs no sequence: it names the first tokens of the dead branch.
TEST_F(TruncateTest, ADeadBranchCanBeForgotten) {
  Make(4, 16);
  Serve(1, Range(0, 15));
  Serve(2, Range(0, 7) + Range(50, 57));
  TakeEvents();
  EXPECT_EQ(Run(InvalidatePrefix{.tokens = Range(0, 8)})->removed_blocks, 2u);
  EXPECT_EQ(TakeOnly<RemovedEvent>().reason, RemovalReason::kInvalidated);
  EXPECT_EQ(Primary().free, 12u);
  EXPECT_EQ(Match(Range(0, 16)), 8u);
  EXPECT_EQ(Match(Range(0, 7) + Range(50, 58)), 16u);
}

}  // namespace
}  // namespace pagoda
