// How long cached blocks stay: priorities, durations, and the order of evictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::IsEmpty;

BlockRetention Keep(uint8_t priority, absl::Duration duration = absl::InfiniteDuration()) {
  return {Priority{priority}, duration};
}
RetentionRange From(uint32_t start, std::optional<uint32_t> end, uint8_t priority) {
  return {start, end, Keep(priority)};
}
// Puts all of a prompt at one priority.
SequenceRetention All(uint8_t priority, absl::Duration duration = absl::InfiniteDuration()) {
  return {.ranges = {{0, std::nullopt, Keep(priority, duration)}}};
}

class RetentionTest : public ConformanceTest {
 protected:
  Priority PriorityOf(const Tokens& prefix) const { return RequireCached(prefix).priority; }
  bool IsCached(const Tokens& prefix) const { return Cached(prefix).has_value(); }
};

// Scenario 15.
TEST_F(RetentionTest, LowestPriorityGoesFirstThenTheLongestUnused) {
  Make(4, 4);
  const Tokens a = Range(0, 7), b = Range(8, 15), c = Range(16, 23);
  Serve(1, a, {.ranges = {From(0, 4, 90), From(4, 8, 10)}});
  Serve(2, b);
  Serve(3, c, All(20));  // Takes the place of a's second block and of b's.
  EXPECT_EQ(Serve(4, b), 4u);
  EXPECT_EQ(Available(), 4u);
  EXPECT_EQ(Add(5, a), 4u);
  EXPECT_EQ(Add(6, c), 0u);
}

// Scenario 17. Peers notice an expiry when they refresh, and do not report it. Here every call
// applies expiries, and each is an event.
TEST_F(RetentionTest, AnExpiredPriorityIsTheDefault) {
  Make(4, 8);
  const Tokens a = Range(0, 11), b = Range(100, 111);
  Serve(1, a, All(80, absl::Milliseconds(10)));
  Serve(2, b, All(50));
  Advance(absl::Milliseconds(50));
  TakeEvents();
  Maintain();
  const std::vector<Event> events = TakeEvents();
  EXPECT_EQ(events.size(), 3u);
  for (const UpdatedEvent& updated : OfType<UpdatedEvent>(events)) {
    EXPECT_EQ(updated.priority, (Change<Priority>{Priority{80}, kDefaultPriority}));
  }
  Serve(3, Range(200, 211));  // Two blocks are free; the third comes from a.
  EXPECT_EQ(Match(a + Tokens{99}), 8u);
  EXPECT_EQ(Add(4, b), 11u);
}

// Scenario 19, on blocks of one prompt each.
class QueueTest : public RetentionTest {
 protected:
  static Tokens Prompt(uint64_t id) {
    const TokenId first = static_cast<TokenId>(10 * id);
    return Range(first, first + 3);
  }
  // Takes the slot of the block that is evicted first.
  void TakeOne(uint64_t id) {
    Add(id, Prompt(id));
    Compute(id, 4);
  }
};

TEST_F(QueueTest, OfOnePriorityTheFirstReleasedGoesFirst) {
  Make(4, 4);
  for (const uint64_t id : {1, 2, 3, 4}) TakeOne(id);
  for (const uint64_t id : {2, 4, 1, 3}) Free(id);
  std::vector<BlockHash> expected;
  for (const uint64_t id : {2, 4, 1, 3}) expected.push_back(RequireCached(Prompt(id)).hash);
  std::vector<BlockHash> gone;
  for (const uint64_t id : {5, 6, 7, 8}) {
    TakeEvents();
    TakeOne(id);
    for (const auto& removed : OfType<RemovedEvent>(TakeEvents())) {
      gone.insert(gone.end(), removed.hashes.begin(), removed.hashes.end());
    }
  }
  EXPECT_EQ(gone, expected);
}

// Peers evict a block without content first.
TEST_F(QueueTest, ABlockWithoutContentIsUsedBeforeAnyThatIsCached) {
  Make(4, 2);
  TakeOne(1);
  Free(1);
  Add(2, Prompt(2));
  const SlotIndex slot = Table(2).at(0).slot;
  Free(2);  // None of it was computed.
  Add(3, Prompt(3));
  EXPECT_EQ(Table(3).at(0).slot, slot);
  EXPECT_TRUE(IsCached(Prompt(1)));
}

// "Do not offload" is a priority below the threshold here.
TEST_F(QueueTest, ALowPriorityGoesFirstAndIsNotOffloaded) {
  Make(4, 2, 4);
  Serve(1, Prompt(1), All(80));
  Serve(2, Prompt(2), All(5));
  TakeEvents();
  TakeOne(3);
  EXPECT_FALSE(IsCached(Prompt(2)));
  EXPECT_THAT(OfType<UpdatedEvent>(TakeEvents()), IsEmpty());
  TakeOne(4);
  EXPECT_EQ(RequireCached(Prompt(1)).tier, Tier(1));
}

TEST_F(QueueTest, ADurationRunsFromTheReleaseOn) {
  Make(4, 4);
  Add({.sequence = SequenceId{1},
       .tokens = Prompt(1),
       .retention = All(80, absl::Milliseconds(1))});
  Compute(1, 4);
  Advance(absl::Milliseconds(50));
  Maintain();
  EXPECT_EQ(PriorityOf(Prompt(1)), Priority{80}) << "it is held";
  Free(1);
  Maintain();
  EXPECT_EQ(PriorityOf(Prompt(1)), Priority{80});
  Advance(absl::Milliseconds(2));
  Maintain();
  EXPECT_EQ(PriorityOf(Prompt(1)), kDefaultPriority);
}

TEST_F(QueueTest, TheVictimChangesWhenAPriorityExpires) {
  for (const int milliseconds : {0, 4}) {
    Make(4, 2);
    Serve(1, Prompt(1), All(80, absl::Milliseconds(3)));
    Serve(2, Prompt(2), All(50, absl::Milliseconds(8)));
    Advance(absl::Milliseconds(milliseconds));
    TakeOne(3);
    EXPECT_EQ(IsCached(Prompt(1)), milliseconds == 0);
    EXPECT_EQ(IsCached(Prompt(2)), milliseconds != 0);
    Free(3);
  }
}

// It joins the most recent end of the default priority's list. Peers do the same.
TEST_F(QueueTest, AnExpiredBlockGoesAfterThoseOfTheDefaultPriority) {
  Make(4, 2);
  Serve(1, Prompt(1), All(80, absl::Milliseconds(3)));
  Serve(2, Prompt(2));
  Advance(absl::Milliseconds(4));
  TakeOne(3);
  EXPECT_TRUE(IsCached(Prompt(1)));
  EXPECT_FALSE(IsCached(Prompt(2)));
}

// Scenario 20.
TEST_F(RetentionTest, RangesThatMakeNoSenseAreRefused) {
  Make(4, 8);
  const auto refused = [this](SequenceRetention retention) {
    ExpectRefused(
        Reason::kInvalidArgument,
        AddSequence{.sequence = SequenceId{1}, .tokens = Range(0, 9), .retention = retention});
    ExpectRefused(Reason::kInvalidArgument,
                  SetRetention{.tokens = Range(0, 9), .retention = std::move(retention)});
  };
  refused({.ranges = {From(0, std::nullopt, 50), From(8, 10, 50)}});  // Open, not the last.
  refused({.ranges = {From(8, 4, 50)}});
  refused({.ranges = {From(4, 4, 50)}});
  refused({.ranges = {From(0, 5, 50), From(4, 8, 50)}});
  refused({.ranges = {From(4, 8, 50), From(0, 4, 50)}});
  refused(All(101));
  refused(All(50, absl::ZeroDuration()));
  refused({.generated = Keep(101)});
}

// Scenario 21. A block has the range of its first token; without a range it has the default.
TEST_F(RetentionTest, ABlocksFirstTokenChoosesItsRange) {
  struct Case {
    uint32_t tokens_per_block, prompt_tokens;
    std::vector<RetentionRange> ranges;
    std::vector<int> priorities;
  };
  const Case cases[] = {
      {64, 256, {From(0, 64, 80), From(64, 128, 50)}, {80, 50, 35, 35}},
      {32, 127, {From(0, 63, 80), From(63, 127, 30)}, {80, 80, 30, 30}},
      {32, 128, {From(0, 1, 80), From(1, 2, 5)}, {80, 35, 35, 35}},
      {64, 192, {From(0, 65, 80), From(65, 129, 30)}, {80, 80, 30}},
      {64, 256, {From(127, 193, 80)}, {35, 35, 80, 80}},
      {64, 128, {From(1, std::nullopt, 80)}, {35, 80}},
      {64, 256, {From(0, 64, 80), From(129, std::nullopt, 50)}, {80, 35, 35, 50}},
  };
  for (const Case& c : cases) {
    Make(c.tokens_per_block, 8);
    TakeEvents();
    Serve(1, Range(0, c.prompt_tokens - 1), {.ranges = c.ranges});
    std::vector<int> priorities;
    for (const auto& stored : OfType<StoredEvent>(TakeEvents())) {
      for (const StoredBlock& block : stored.blocks) priorities.push_back(block.priority.value());
    }
    EXPECT_EQ(priorities, c.priorities);
  }
}

// Scenario 22. Peers answer a query by block id, with 35 for unknown ids. Here the events and the
// tree tell a cached block's priority; a block that is not cached has none.
TEST_F(RetentionTest, TheTreeTellsPriorities) {
  Make(4, 8);
  Serve(1, Range(0, 7), All(80));
  EXPECT_EQ(PriorityOf(Range(0, 3)), Priority{80});
  EXPECT_EQ(PriorityOf(Range(0, 7)), Priority{80});
  EXPECT_FALSE(IsCached(Range(100, 103)));
}

TEST_F(RetentionTest, AMatchWithAWishChangesThePriority) {
  Make(4, 8);
  Serve(1, Range(0, 7), All(80));
  TakeEvents();
  Serve(2, Range(0, 8));  // Without a retention its priority stays.
  EXPECT_THAT(OfType<UpdatedEvent>(TakeEvents()), IsEmpty());
  Serve(3, Range(0, 8), {.ranges = {From(4, 8, 20)}});
  const auto updated = OfType<UpdatedEvent>(TakeEvents());
  ASSERT_EQ(updated.size(), 1u);
  EXPECT_EQ(updated[0].id, RequireCached(Range(0, 7)).id);
  EXPECT_EQ(updated[0].priority, (Change<Priority>{Priority{80}, Priority{20}}));
  EXPECT_FALSE(updated[0].tier.has_value());
  EXPECT_EQ(PriorityOf(Range(0, 3)), Priority{80});
}

TEST_F(RetentionTest, AMatchWithAWishEndsAnEarlierDuration) {
  Make(4, 8);
  Serve(1, Range(0, 7), All(80, absl::Milliseconds(10)));
  Serve(2, Range(0, 8), All(80));
  Advance(absl::Hours(1));
  Maintain();
  EXPECT_EQ(PriorityOf(Range(0, 7)), Priority{80});
}

TEST_F(RetentionTest, ADurationStartsAnewWithEachRelease) {
  Make(4, 8);
  Serve(1, Range(0, 7), All(80, absl::Milliseconds(10)));
  Advance(absl::Milliseconds(8));
  ASSERT_EQ(Add(2, Range(0, 8)), 8u);
  Advance(absl::Milliseconds(8));
  Free(2);
  Advance(absl::Milliseconds(8));
  Maintain();
  EXPECT_EQ(PriorityOf(Range(0, 7)), Priority{80});
  Advance(absl::Milliseconds(2));
  Maintain();
  EXPECT_EQ(PriorityOf(Range(0, 7)), kDefaultPriority);
}

TEST_F(RetentionTest, GeneratedTokensHaveTheirOwnPriority) {
  Make(4, 8);
  SequenceRetention retention = All(80);
  retention.generated = Keep(20);
  Add({.sequence = SequenceId{1}, .tokens = Range(0, 5), .retention = retention});
  Append(1, Range(6, 12), 13);
  Free(1);
  EXPECT_EQ(PriorityOf(Range(0, 7)), Priority{80}) << "its first token is the prompt's";
  EXPECT_EQ(PriorityOf(Range(0, 11)), Priority{20});
  EXPECT_EQ(PriorityOf(Range(0, 12)), Priority{20});
}

// Peers give the copy its source's priority and duration. Here a block is kept by the retention of
// its own sequence.
TEST_F(RetentionTest, ACopyIsKeptAsItsOwnSequenceWishes) {
  Make(4, 8);
  Serve(1, Range(0, 7), All(80));
  EXPECT_EQ(Serve(2, Tokens{0, 1, 2, 3, 4, 5, 99}), 6u);
  EXPECT_EQ(PriorityOf(Tokens{0, 1, 2, 3, 4, 5, 99}), kDefaultPriority);
  EXPECT_EQ(PriorityOf(Range(0, 7)), Priority{80});
}

// Peers cannot do this: renew a priority alone.
TEST_F(RetentionTest, ARetentionCanBeSetAndRenewed) {
  Make(4, 8);
  Serve(1, Range(0, 9));
  TakeEvents();
  const SetRetention renewal{.tokens = Range(0, 9), .retention = All(70, absl::Milliseconds(10))};
  EXPECT_EQ(Run(renewal)->blocks, 3u);
  EXPECT_EQ(OfType<UpdatedEvent>(TakeEvents()).size(), 3u);
  Advance(absl::Milliseconds(8));
  EXPECT_EQ(Run(renewal)->blocks, 3u);
  EXPECT_THAT(TakeEvents(), IsEmpty()) << "only the clock starts again";
  Advance(absl::Milliseconds(8));
  Maintain();
  EXPECT_EQ(PriorityOf(Range(0, 9)), Priority{70});
  Advance(absl::Milliseconds(2));
  Maintain();
  EXPECT_EQ(PriorityOf(Range(0, 9)), kDefaultPriority);
}

TEST_F(RetentionTest, OnlyBlocksThatARangeNamesAreSet) {
  Make(4, 8);
  Serve(1, Range(0, 11));
  EXPECT_EQ(
      Run(SetRetention{.tokens = Range(0, 11), .retention = {.ranges = {From(4, 8, 70)}}})->blocks,
      1u);
  EXPECT_EQ(PriorityOf(Range(0, 3)), kDefaultPriority);
  EXPECT_EQ(PriorityOf(Range(0, 7)), Priority{70});
  EXPECT_EQ(PriorityOf(Range(0, 11)), kDefaultPriority);
  EXPECT_EQ(Run(SetRetention{.tokens = Range(50, 60), .retention = All(70)})->blocks, 0u);
}

TEST_F(RetentionTest, AWholeTailIsNamedBesideALongerSibling) {
  Make(4, 8);
  Serve(1, Range(0, 9));
  // Otherwise the tail would leave when a block that begins with it enters.
  ASSERT_TRUE(Run(PinPrefix{.tokens = Range(0, 9)}).ok());
  Serve(2, Range(0, 11));
  ASSERT_TRUE(IsCached(Range(0, 9)));
  EXPECT_EQ(Run(SetRetention{.tokens = Range(0, 10), .retention = All(70)})->blocks, 3u);
  EXPECT_EQ(PriorityOf(Range(0, 9)), Priority{70});
  EXPECT_EQ(PriorityOf(Range(0, 11)), kDefaultPriority);
}

// A parent is evicted after its children, whatever its priority, so no cached block becomes
// unreachable. Peers' newer versions evict the parent first, and its children stay where no match
// can find them.
TEST_F(RetentionTest, AParentOfLowPriorityGoesAfterItsChildren) {
  Make(4, 3);
  Serve(1, Range(0, 7), {.ranges = {From(0, 4, 1), From(4, 8, 90)}});
  Serve(2, Range(100, 103), All(50));
  Add(3, Range(200, 203));
  EXPECT_FALSE(IsCached(Range(100, 103))) << "the only other candidate was the child";
  Free(3);
  Add(4, Range(300, 307));
  EXPECT_TRUE(IsCached(Range(0, 3)));
  EXPECT_FALSE(IsCached(Range(0, 7)));
  Add(5, Range(400, 403));
  EXPECT_THAT(core_->DumpTree(kFullAttention), IsEmpty());
}

}  // namespace
}  // namespace pagoda
