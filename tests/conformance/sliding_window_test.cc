// Attention windows: which blocks a sequence releases, which stay cached, and on what lengths
// several windows agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class SlidingWindowTest : public ConformanceTest {
 protected:
  // For each entry of the table, whether it has a block.
  std::vector<bool> Filled(uint64_t id, WindowSize window) {
    std::vector<bool> filled;
    for (const BlockHandle& block : Table(id, window)) filled.push_back(block.id != kNoBlock);
    return filled;
  }
};

// Scenario 37. Peers release a block when the window of the next token has passed it by a whole
// block (here at 7 tokens). By rule 9 it is released when its last token is outside the window of
// the first token that is not computed. But the last published block stays, because the next one
// becomes its child: it is released at 9 tokens, of which 8 are computed.
TEST_F(SlidingWindowTest, ABlockGoesWhenTheWindowHasPassedIt) {
  const WindowSize window{3};
  Make({.windows = {{window, 8}}});
  Add(1, {0, 1});
  EXPECT_THAT(Table(1, window), SizeIs(1));
  const auto generate = [this](uint32_t token_count) {
    for (uint32_t tokens = Describe(1).token_count; tokens < token_count; ++tokens) {
      Append(1, {tokens}, tokens);  // The last token's KV is declared with the next step.
    }
  };
  generate(4);
  EXPECT_THAT(Table(1, window), SizeIs(1));
  generate(5);
  EXPECT_THAT(Table(1, window), SizeIs(2));
  generate(8);
  EXPECT_THAT(Filled(1, window), ElementsAre(true, true));
  EXPECT_EQ(Used(window), 2u);
  generate(9);
  EXPECT_THAT(Filled(1, window), ElementsAre(false, true, true)) << "the table keeps its length";
  EXPECT_EQ(Used(window), 2u);
  EXPECT_EQ(Primary(window).cached, 1u) << "it stays cached until somebody needs the room";
  generate(40);
  EXPECT_EQ(Used(window), 2u) << "however long the sequence gets";
  Free(1);
  EXPECT_EQ(Used(window), 0u);
  EXPECT_EQ(Available(window), 8u);
}

// Token 8 still needs token 3, the last one of the first block; token 9 does not.
TEST_F(SlidingWindowTest, ABlockStaysAsLongAsTheWindowHasItsLastToken) {
  const WindowSize window{6};
  Make({.windows = {{window, 4}}});
  Add(1, Range(0, 12));
  Compute(1, 8);
  EXPECT_THAT(Filled(1, window), ElementsAre(true, true, true, true));
  Compute(1, 9);
  EXPECT_THAT(Filled(1, window), ElementsAre(false, true, true, true));
}

TEST_F(SlidingWindowTest, LettingGoIsNoEvent) {
  const WindowSize window{4};
  Make({.windows = {{window, 8}}});
  Add(1, Range(0, 15));
  TakeEvents();
  Compute(1, 16);
  EXPECT_THAT(TakeOnly<StoredEvent>().blocks, SizeIs(4));
  EXPECT_EQ(Primary(window).cached, 3u);
}

// Scenario 40. With peers' older versions a sequence whose first block another request has taken
// must not publish its chain any more. Here the place of the evicted block stays in the tree as a
// hole. Both sequences publish, and both match, as far as their windows reach.
TEST_F(SlidingWindowTest, AHoleKeepsWhatIsBelowReachable) {
  const WindowSize window{8};
  Make({.windows = {{window, 4}}});
  Add(1, Range(0, 10));
  Compute(1, 11);
  Append(1, {11});
  EXPECT_THAT(Filled(1, window), ElementsAre(false, true, true));
  const BlockId first = RequireCached(Range(0, 3), {}, window).id;
  TakeEvents();
  EXPECT_EQ(Add(2, Range(100, 107)), 0u);
  EXPECT_EQ(Used(window), 4u);
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kEvicted);
  EXPECT_THAT(removed.blocks, ElementsAre(first)) << "what is below stays";
  Compute(1, 12);
  EXPECT_THAT(TakeOnly<StoredEvent>().blocks, SizeIs(1));
  Compute(2, 8);
  EXPECT_THAT(TakeOnly<StoredEvent>().blocks, SizeIs(2));
  Free(1);
  Free(2);
  EXPECT_EQ(Match(Range(0, 11) + Tokens{99}), 12u) << "tokens 5 to 11 are there";
  EXPECT_EQ(Match(Range(0, 7) + Tokens{99}), 0u) << "of tokens 1 to 7 only the last four";
  EXPECT_EQ(Match(Range(100, 107) + Tokens{99}), 8u);
  // A sequence that continues from there needs nothing before it.
  EXPECT_EQ(Add(3, Range(0, 11) + Tokens{99}), 12u);
  EXPECT_THAT(Filled(3, window), ElementsAre(false, true, true, true));
}

// The window of the next token begins in the evicted block, or just behind it.
TEST_F(SlidingWindowTest, AMatchReachesBackToTheWindowsFirstToken) {
  const WindowSize window{6};
  Make({.windows = {{window, 4}}});
  Serve(1, Range(0, 11));
  Serve(2, Range(100, 107));  // One block is free; the oldest is evicted.
  ASSERT_FALSE(Cached(Range(0, 3), {}, window).has_value());
  EXPECT_EQ(Match(Range(0, 8)), 0u) << "token 8 needs tokens 3 to 7";
  EXPECT_EQ(Match(Range(0, 9)), 9u) << "token 9 needs tokens 4 to 8";
  EXPECT_EQ(Add(3, Range(0, 9)), 9u);
}

// Content that is computed again fills its hole: the block returns with the id that it had.
TEST_F(SlidingWindowTest, AHoleIsFilledByTheSameContent) {
  const WindowSize window{8};
  Make({.windows = {{window, 4}}});
  Serve(1, Range(0, 11));
  const BlockId first = RequireCached(Range(0, 3), {}, window).id;
  Add(2, Range(100, 107));  // One block is free; the oldest is evicted.
  Free(2);
  ASSERT_FALSE(Cached(Range(0, 3), {}, window).has_value());
  TakeEvents();
  EXPECT_EQ(Add(3, Range(0, 7)), 0u);
  Compute(3, 4);
  const auto stored = OfType<StoredEvent>(TakeEvents());
  ASSERT_EQ(stored.size(), 1u);
  ASSERT_THAT(stored[0].blocks, SizeIs(1));
  EXPECT_EQ(stored[0].blocks.at(0).id, first);
  EXPECT_EQ(Match(Range(0, 4)), 4u);
}

// Holes are bounded. If there is no place for another one, all blocks below leave too. Their
// holders keep them as private blocks.
TEST_F(SlidingWindowTest, WithoutPlaceForAHoleTheSubtreeGoes) {
  const WindowSize window{8};
  Make({.windows = {{window, 8}}, .max_holes = 1});
  for (const uint64_t id : {1, 2}) {
    const TokenId first = static_cast<TokenId>(100 * id);
    Add(id, Range(first, first + 11));
    Compute(id, 12);  // Releases the first of three blocks.
  }
  // Two blocks are free. The third is the second one's: of two passed blocks the last goes first.
  Add(3, Range(0, 11));
  EXPECT_EQ(core_->Stats().windows.at(0).holes, 1u);
  TakeEvents();
  Add(4, {7});
  EXPECT_EQ(core_->Stats().windows.at(0).holes, 1u);
  EXPECT_THAT(TakeOnly<RemovedEvent>().blocks, SizeIs(3));
  EXPECT_EQ(CachedBlocks(window), 2u);
  Free(2);
  EXPECT_EQ(Match(Range(200, 212)), 12u);
  EXPECT_EQ(Match(Range(100, 112)), 0u);
}

// Only the blocks of a lower prefix that the window needs are onboarded.
TEST_F(SlidingWindowTest, AMatchBringsUpWhatTheWindowReaches) {
  const WindowSize window{8};
  Make({.windows = {{window, 4, 8}}});
  Serve(1, Range(0, 15));
  Serve(2, Range(100, 115));
  const auto tier_of = [&](const Tokens& prefix) { return RequireCached(prefix, {}, window).tier; };
  EXPECT_EQ(tier_of(Range(0, 15)), Tier(1));
  EXPECT_EQ(Add(3, Range(0, 16)), 16u);
  EXPECT_THAT(Filled(3, window), ElementsAre(false, false, true, true, true));
  EXPECT_EQ(tier_of(Range(0, 3)), Tier(1));
  EXPECT_EQ(tier_of(Range(0, 7)), Tier(1));
  EXPECT_EQ(tier_of(Range(0, 11)), kPrimaryTier);
  EXPECT_EQ(tier_of(Range(0, 15)), kPrimaryTier);
}

TEST_F(SlidingWindowTest, APinHoldsWhatItsEndNeeds) {
  const WindowSize window{8};
  Make({.windows = {{window, 8}}});
  Serve(1, Range(0, 15));
  const auto pinned = Run(PinPrefix{.tokens = Range(0, 15)});
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(pinned->pinned_tokens, 16u);
  EXPECT_EQ(pinned->blocks, 2u);
  Serve(2, Range(100, 123));  // Takes the place of everything else.
  EXPECT_EQ(Match(Range(0, 16)), 16u);
  EXPECT_EQ(Match(Range(0, 12)), 0u);
}

// A failed copy loses tokens whose window the sequence has released. They cannot be computed again,
// so it can only be freed.
TEST_F(SlidingWindowTest, ASequenceThatCannotGoOnIsToldSo) {
  const WindowSize window{8};
  Make({.windows = {{window, 8, 8}}});
  Serve(1, Range(0, 11));
  ASSERT_EQ(Run(OffloadPrefix{.tokens = Range(0, 11)})->blocks, 3u);
  copies_ = Copies::kByHand;
  EXPECT_EQ(Add(2, Range(0, 12)), 12u);
  EXPECT_THAT(Filled(2, window), ElementsAre(false, true, true, true));
  ASSERT_THAT(pending(), SizeIs(2));
  Complete(pending().begin()->first);
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_THAT(ReadShortened(), ElementsAre(ShortenedSequence{SequenceId{2}, 0, 1, true}));
  ExpectRefused(Reason::kKvLost, CommitTokens{.sequence = SequenceId{2}, .computed_tokens = 13});
  ExpectRefused(Reason::kKvLost, CommitTokens{.sequence = SequenceId{2}, .computed_tokens = 1});
  ExpectRefused(Reason::kKvLost,
                AppendTokens{.sequence = SequenceId{2}, .tokens = {13}, .computed_tokens = 13});
  ExpectRefused(Reason::kKvLost, ReserveTokens{.sequence = SequenceId{2}, .count = 1});
  ExpectRefused(Reason::kKvLost,
                ForkSequence{.sequence = SequenceId{2}, .new_sequence = SequenceId{3}});
  Free(2);
  EXPECT_EQ(Used(window), 0u);
  copies_ = Copies::kAtOnce;
  EXPECT_EQ(Serve(3, Range(0, 12)), 8u) << "what is left of it";
}

class WindowsTest : public ConformanceTest {
 protected:
  static constexpr WindowSize kSliding{8};
  void MakeTwo(uint32_t sliding_blocks, uint32_t full_blocks) {
    Make({.windows = {{kSliding, sliding_blocks}, {kFullAttention, full_blocks}}});
  }
};

// The matched length of a prompt is one number, valid in every window. Peers do the same.
TEST_F(WindowsTest, AMatchIsValidInEveryWindow) {
  MakeTwo(4, 16);
  Serve(1, Range(0, 15));
  EXPECT_EQ(Match(Range(0, 16)), 16u);
  Serve(2, Range(100, 107));  // The sliding window drops tokens 0 to 7 of the first.
  EXPECT_EQ(Match(Range(0, 16)), 16u) << "the window of token 16 does not reach them";
  EXPECT_EQ(Match(Range(0, 11)), 0u) << "that of token 11 does";
  EXPECT_TRUE(Cached(Range(0, 15)).has_value()) << "although full attention has all";
  Serve(3, Range(200, 207));
  EXPECT_EQ(Match(Range(0, 16)), 0u);
}

TEST_F(WindowsTest, TheLargestLengthThatIsValidInAllIsTaken) {
  MakeTwo(16, 5);
  Serve(1, Range(0, 15));
  Add(2, Range(100, 107));  // Full attention has one block free, and drops the last one.
  ASSERT_FALSE(Cached(Range(0, 15)).has_value());
  ASSERT_TRUE(Cached(Range(0, 15), {}, kSliding).has_value());
  EXPECT_EQ(Match(Range(0, 16)), 12u);
}

TEST_F(WindowsTest, ASequenceIsAddedInAllWindowsOrInNone) {
  const std::pair<uint32_t, uint32_t> sizes[] = {{3, 16}, {16, 3}};
  for (const auto& [sliding_blocks, full_blocks] : sizes) {
    MakeTwo(sliding_blocks, full_blocks);
    Add(1, Range(0, 7));
    ExpectRefused(Reason::kBlocksExhausted,
                  AddSequence{.sequence = SequenceId{2}, .tokens = Range(50, 57)});
    EXPECT_EQ(Used(kSliding), 2u);
    EXPECT_EQ(Used(kFullAttention), 2u);
    Add(2, {50});
    ExpectRefused(Reason::kBlocksExhausted, AppendTokens{.sequence = SequenceId{1}, .tokens = {8}});
  }
}

TEST_F(WindowsTest, EachWindowHasItsOwnAnswers) {
  MakeTwo(8, 16);
  Add(1, Range(0, 15));
  Compute(1, 16);
  EXPECT_EQ(Used(kSliding), 2u);
  EXPECT_EQ(Used(kFullAttention), 4u);
  const auto answer = Run(QueryCapacity{.tokens = Range(100, 115), .max_new_tokens = 8});
  ASSERT_TRUE(answer.ok());
  ASSERT_THAT(answer->windows, SizeIs(2));
  EXPECT_EQ(answer->windows.at(0).window, kSliding);
  EXPECT_EQ(answer->windows.at(0).blocks_now, 4u);
  EXPECT_EQ(answer->windows.at(0).available_blocks, 6u);
  EXPECT_EQ(answer->windows.at(1).window, kFullAttention);
  EXPECT_EQ(answer->windows.at(1).blocks_to_completion, 6u);
  EXPECT_EQ(answer->windows.at(1).available_blocks, 12u);
}

// Ids have a meaning in their window only: both begin at 0.
TEST_F(WindowsTest, IdsBelongToAWindow) {
  MakeTwo(8, 8);
  Add(1, Range(0, 3));
  EXPECT_EQ(Table(1, kSliding).at(0).id, BlockId{0});
  EXPECT_EQ(Table(1, kFullAttention).at(0).id, BlockId{0});
  const auto raw = Run(AllocateBlocks{.window = kSliding, .count = 1});
  ASSERT_TRUE(raw.ok());
  EXPECT_FALSE(Run(FreeBlocks{.window = kFullAttention, .blocks = {raw->blocks.at(0).ref()}}).ok());
  EXPECT_TRUE(Run(FreeBlocks{.window = kSliding, .blocks = {raw->blocks.at(0).ref()}}).ok());
}

// A window smaller than a block: peers' single request deadlocked.
TEST_F(SlidingWindowTest, AWindowMayBeSmallerThanABlock) {
  const WindowSize window{1};
  Make({.windows = {{window, 3}}});
  Add(1, {0});
  for (TokenId token = 1; token < 40; ++token) Append(1, {token}, token);
  EXPECT_LE(Used(window), 2u);
  Free(1);
  EXPECT_EQ(Available(window), 3u);
}

TEST_F(SlidingWindowTest, BlocksThatWentAreNeverHandedBack) {
  const WindowSize window{8};
  Make({.windows = {{window, 8}}});
  Add(1, Range(0, 15));
  Compute(1, 16);
  ExpectRefused(Reason::kWindowPassed,
                TruncateSequence{.sequence = SequenceId{1}, .token_count = 9});
  EXPECT_EQ(Truncate(1, 15).token_count, 15u);
}

}  // namespace
}  // namespace pagoda
