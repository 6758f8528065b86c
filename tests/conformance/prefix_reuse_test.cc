// Which prefixes match, by how many tokens, and what that costs. The numbers of the scenarios are
// those of README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Scenarios 1 to 8 are one continuous script over 8 blocks of 4 tokens. Each test continues where
// the previous one ended.
class ScriptTest : public ConformanceTest {
 protected:
  void AfterScenario1() {
    Make(4, 8);
    Add(1, Range(0, 8));
    Append(1, {9, 10});
    FreeAsPeersDo(1);
    TakeEvents();
  }
  void AfterScenario2() {
    AfterScenario1();
    Add(2, Range(0, 8));
    Append(2, {9, 10});
    FreeAsPeersDo(2);
    TakeEvents();
  }
  void AfterScenario3() {
    AfterScenario2();
    Add(3, Range(0, 9));
    TakeEvents();
  }
  void AfterScenario4() {
    AfterScenario3();
    Add(4, Range(0, 10));
    FreeAsPeersDo(3);
    FreeAsPeersDo(4);
    TakeEvents();
  }
  void AfterScenario5() {
    AfterScenario4();
    Add(5, Range(0, 4));
    Add(6, Range(0, 9) + Tokens{11});
    Append(5, {5});
    Append(6, {12});
    FreeAsPeersDo(5);
    FreeAsPeersDo(6);
    TakeEvents();
  }
};

// Scenario 1.
TEST_F(ScriptTest, ASequencesBlocksAreAvailableAgainWhenItIsFreed) {
  Make(4, 8);
  EXPECT_EQ(Add(1, Range(0, 8)), 0u);
  EXPECT_EQ(Used(), 3u);
  EXPECT_EQ(Available(), 5u);
  Append(1, {9});
  Append(1, {10});
  EXPECT_EQ(Used(), 3u) << "eleven tokens fit into three blocks";
  FreeAsPeersDo(1);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(Available(), 8u);
  EXPECT_EQ(CachedBlocks(), 3u);
  EXPECT_EQ(RequireCached(Range(0, 9)).tokens, Range(8, 9));
}

// Scenario 2.
TEST_F(ScriptTest, ALastTokenAloneInItsBlockNeverMatches) {
  AfterScenario1();
  EXPECT_EQ(Add(2, Range(0, 8)), 8u);
  Append(2, {9, 10});
  FreeAsPeersDo(2);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(Available(), 8u);
  EXPECT_THAT(TakeEvents(), IsEmpty()) << "nothing new was stored";
}

// Scenario 3. Peers reuse any leaf that nothing holds, and report nothing. Here a block that
// matches in part is copied, so it stays available to all, and the cache keeps its size.
TEST_F(ScriptTest, ABlockThatMatchesInPartIsCopied) {
  AfterScenario2();
  const BlockId leaf = RequireCached(Range(0, 9)).id;
  EXPECT_EQ(Add(3, Range(0, 9)), 9u);
  EXPECT_EQ(Used(), 3u);
  EXPECT_EQ(Available(), 5u);
  EXPECT_NE(Table(3).at(2).id, leaf);
  EXPECT_TRUE(Cached(Range(0, 9)).has_value());
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

// Scenario 4. Peers match 8: scenario 3 has taken their leaf. Here it is still there. This time all
// of it matches, so it is taken over, with an event.
TEST_F(ScriptTest, ATailThatMatchesWholeIsTakenOver) {
  AfterScenario3();
  const TreeEntry leaf = RequireCached(Range(0, 9));
  EXPECT_EQ(Add(4, Range(0, 10)), 10u);
  EXPECT_EQ(Used(), 4u);
  EXPECT_EQ(Available(), 4u);
  EXPECT_EQ(Table(4).at(2).id, leaf.id);
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kTakenOver);
  EXPECT_THAT(removed.hashes, ElementsAre(leaf.hash));

  FreeAsPeersDo(3);
  EXPECT_EQ(Used(), 3u);
  FreeAsPeersDo(4);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(RequireCached(Range(0, 9)).tokens, Range(8, 9));
  EXPECT_FALSE(Cached(Range(0, 8)).has_value()) << "a longer tail begins with it";
}

// Scenario 5.
TEST_F(ScriptTest, SequencesThatPartLaterShareTheBlocksBefore) {
  AfterScenario4();
  EXPECT_EQ(Add(5, Range(0, 4)), 4u);
  EXPECT_EQ(Used(), 2u);
  EXPECT_EQ(Add(6, Range(0, 9) + Tokens{11}), 10u);
  Append(5, {5});
  Append(6, {12});
  EXPECT_EQ(Used(), 4u);
  EXPECT_EQ(Available(), 4u);
  EXPECT_EQ(Table(5).at(0), Table(6).at(0));
}

// Scenario 7. Peers match 1, the first token of a block that the same call evicts afterwards. Here
// a copy's source stays cached, or the copy is not made. This prompt needs all blocks, so its slots
// come before the reuse of one token.
TEST_F(ScriptTest, TheReservationComesBeforeAPartialMatch) {
  AfterScenario5();
  EXPECT_EQ(Add(7, Tokens(31, 0)), 0u);
  EXPECT_EQ(Used(), 8u);
  EXPECT_EQ(Available(), 0u);
  Free(7);
  EXPECT_EQ(Available(), 8u);
}

// Scenario 8.
TEST_F(ScriptTest, APromptOfOneTokenMatchesNothing) {
  AfterScenario5();
  EXPECT_EQ(Add(8, {0}), 0u);
  EXPECT_EQ(Used(), 1u);
}

class PrefixReuseTest : public ConformanceTest {};

// Scenario 7 with space for both: an incidental first token is reused.
TEST_F(PrefixReuseTest, OneTokenOfABlockCanMatch) {
  Make(4, 16);
  Serve(1, Range(0, 7));
  EXPECT_EQ(Add(2, Tokens(31, 0)), 1u);
  EXPECT_EQ(Used(), 8u);
  EXPECT_EQ(CachedBlocks(), 2u);
}

TEST_F(PrefixReuseTest, WholeBlocksAloneMatchWhereTheClientWantsThat) {
  Make(4, 16);
  Serve(1, Range(0, 9));
  const auto matched = [&](uint64_t id, const Tokens& tokens, bool whole_blocks_only) {
    const auto added = Run(AddSequence{
        .sequence = SequenceId{id}, .tokens = tokens, .whole_blocks_only = whole_blocks_only});
    EXPECT_TRUE(added.ok()) << added.status();
    return added->matched_tokens;
  };
  EXPECT_EQ(matched(2, Range(0, 12), true), 8u);
  EXPECT_EQ(matched(3, Range(0, 12), false), 10u);
  // If a prompt ends with a cached block, its last token is still computed, so its block does not
  // match whole.
  EXPECT_EQ(matched(4, Range(0, 7), true), 4u);
  EXPECT_EQ(matched(5, Range(0, 2), true), 0u);
}

// Scenario 13.
TEST_F(PrefixReuseTest, ACachedPrefixIsAChainFromTheRootOn) {
  Make(8, 8);
  Serve(1, Range(0, 15));
  const auto matched = Run(MatchPrefix{.tokens = Range(0, 16)});
  ASSERT_TRUE(matched.ok());
  EXPECT_EQ(matched->matched_tokens, 16u);
  ASSERT_EQ(matched->blocks.size(), 2u);
  const TreeEntry first = RequireCached(Range(0, 7)), second = RequireCached(Range(0, 15));
  EXPECT_EQ(matched->blocks.at(0).id, first.id);
  EXPECT_EQ(matched->blocks.at(1).id, second.id);
  EXPECT_EQ(second.tokens, Range(8, 15));
  EXPECT_EQ(second.parent, first.id);
  EXPECT_EQ(first.parent, kNoBlock) << "below the root";
}

// Peers never count a sequence's last token as computed. Here the client says what it computed, so
// a prompt of whole blocks is cached whole.
TEST_F(PrefixReuseTest, TheClientSaysWhatIsComputed) {
  Make(4, 8);
  Add(1, Range(0, 7));
  FreeAsPeersDo(1);
  EXPECT_EQ(Match(Range(0, 8)), 7u);
  Serve(2, Range(0, 7));
  EXPECT_EQ(Match(Range(0, 8)), 8u);
}

TEST_F(PrefixReuseTest, ARunningSequencesComputedBlocksMatch) {
  Make(4, 8);
  Add(1, Range(0, 9));
  EXPECT_EQ(Match(Range(0, 20)), 0u) << "nothing is computed";
  Compute(1, 6);
  EXPECT_EQ(Match(Range(0, 20)), 4u) << "after a chunk";
  Compute(1, 10);
  EXPECT_EQ(Match(Range(0, 20)), 8u) << "the tail may still grow";
  EXPECT_EQ(Add(2, Range(0, 20)), 8u);
  EXPECT_EQ(Used(), 3u + 4u);
}

TEST_F(PrefixReuseTest, OfSiblingsTheOneWithMostCommonTokensMatches) {
  Make(8, 16);
  const Tokens stem = Range(0, 7);
  Serve(1, stem + Tokens{10, 11, 20, 21, 22, 23, 24, 25});
  Serve(2, stem + Tokens{10, 11, 12, 13, 30, 31, 32, 33});
  Serve(3, stem + Tokens{10, 40, 41, 42, 43, 44, 45, 46});
  EXPECT_EQ(Match(stem + Tokens{10, 11, 12, 13, 14, 15}), 12u);
  EXPECT_EQ(Match(stem + Tokens{10, 11, 12, 50, 51}), 11u);
  EXPECT_EQ(Match(stem + Tokens{10, 40, 41, 60}), 11u);
  EXPECT_EQ(Match(stem + Tokens{50, 51}), 8u);
}

TEST_F(PrefixReuseTest, AMatchEndsAtTheFirstBlockThatMatchesInPart) {
  Make(4, 16);
  Serve(1, Range(0, 11));
  EXPECT_EQ(Match(Tokens{0, 1, 2, 3, 4, 5, 99, 7, 8, 9, 10, 11, 12}), 6u);
}

// There is no space for a copy next to its source. So the leaf itself is reused, although only a
// part of it matches.
TEST_F(PrefixReuseTest, WithoutABlockForACopyALeafIsTakenOver) {
  Make(4, 3);
  Serve(1, Range(0, 7));
  const TreeEntry leaf = RequireCached(Range(0, 7));
  TakeEvents();
  EXPECT_EQ(Add(2, Range(0, 5) + Range(90, 95)), 6u);
  EXPECT_EQ(Table(2).at(1).id, leaf.id);
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kTakenOver);
  EXPECT_THAT(removed.blocks, ElementsAre(leaf.id));
}

TEST_F(PrefixReuseTest, WithoutABlockForACopyABlockWithChildrenDoesNotMatchInPart) {
  Make(4, 4);
  Serve(1, Range(0, 11));
  EXPECT_EQ(Add(2, Range(0, 5) + Range(90, 99)), 4u);
  EXPECT_EQ(Used(), 4u);
}

TEST_F(PrefixReuseTest, AHeldBlockThatMatchesInPartIsCopied) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  ASSERT_EQ(Add(2, Range(0, 8)), 8u);
  EXPECT_EQ(Add(3, Range(0, 6)), 6u);
  EXPECT_EQ(Table(3).at(0), Table(2).at(0));
  EXPECT_NE(Table(3).at(1).slot, Table(2).at(1).slot);
  EXPECT_EQ(Used(), 3u + 1u);
}

// Peers let one request of a batch take a leaf in place and the others copy it. Here requests come
// one after another: the second one meets the tree that the first one left.
TEST_F(PrefixReuseTest, OneSequenceTakesATailOver) {
  Make(4, 8);
  Serve(1, Range(0, 5));
  EXPECT_EQ(Add(2, Range(0, 9)), 6u);
  EXPECT_EQ(Add(3, Range(0, 9)), 4u);
  Compute(2, 10);
  EXPECT_EQ(Add(4, Range(0, 9)), 8u);
}

// A match is a use, even of a block that is only the source of a copy.
TEST_F(PrefixReuseTest, ACopiedBlockIsRecentAgain) {
  Make(4, 4);
  Serve(1, Range(0, 3));
  Serve(2, Range(100, 103));
  Serve(3, Tokens{0, 1, 50});  // Copies two tokens of the first one.
  ASSERT_EQ(CachedBlocks(), 3u);
  Add(4, Range(200, 207));  // One block is free; one more must leave.
  EXPECT_TRUE(Cached(Range(0, 3)).has_value());
  EXPECT_FALSE(Cached(Range(100, 103)).has_value());
}

TEST_F(PrefixReuseTest, ATailThatIsComputedAgainIsRecentAgain) {
  Make(4, 4);
  Add(1, {1, 2});
  Add(2, {1, 2});  // Added before the first one is cached, so it computes the same content.
  Compute(1, 2);
  Free(1);
  Serve(3, {7, 8});
  Compute(2, 2);
  Free(2);                // The first one's tail is canonical, and now used after the third's.
  Add(4, Range(50, 61));  // Needs three blocks; two are free.
  EXPECT_EQ(Match({1, 2, 3}), 2u);
  EXPECT_EQ(Match({7, 8, 9}), 0u);
}

// If two sequences compute the same content, the first one's is cached; the second one keeps its
// own copy.
TEST_F(PrefixReuseTest, EqualContentIsCachedOnce) {
  Make(4, 8);
  Add(1, Range(0, 8));
  Add(2, Range(0, 8));
  Compute(1, 8);
  TakeEvents();
  const std::vector<BlockHandle> table = Table(2);
  Compute(2, 8);
  EXPECT_THAT(TakeEvents(), IsEmpty());
  EXPECT_EQ(Table(2), table) << "a table in use does not change";
  EXPECT_EQ(CachedBlocks(), 2u);
  Free(1);
  Append(2, {9, 10, 11}, 12);
  EXPECT_EQ(TakeOnly<StoredEvent>().parent, RequireCached(Range(0, 7)).id)
      << "its children hang under the cached block";
  Free(2);
  EXPECT_EQ(CachedBlocks(), 3u);
  EXPECT_EQ(Primary().free, 5u) << "its copies are given back";
}

TEST_F(PrefixReuseTest, AResetForgetsEveryPrefix) {
  Make(4, 8);
  Serve(1, Range(0, 8));
  Add(2, Range(0, 8));
  TakeEvents();
  core_->ResetPrefixCache(now_);
  Maintain();
  // Peers replace their tree without an event.
  const auto removed = TakeOnly<RemovedEvent>();
  EXPECT_EQ(removed.reason, RemovalReason::kCleared);
  EXPECT_EQ(removed.scope, RemovedEvent::Scope::kWindow);
  EXPECT_EQ(Match(Range(0, 8)), 0u);
  EXPECT_EQ(Used(), 3u) << "who runs keeps its blocks";
  Free(2);
  EXPECT_EQ(Primary().free, 8u);
}

}  // namespace
}  // namespace pagoda
