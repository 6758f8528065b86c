// Rule 11: a block that a client's kernels can still read is not handed out again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager/sequences/session_endings.h"
#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

// Peers have no such rule: they rely on the order of one device's stream. There is no such order
// between processes, so a client counts its steps.
class DeferredReleaseTest : public ConformanceTest {
 protected:
  // The following operations belong to this step.
  void Step(uint64_t step, uint64_t completed_step) {
    const absl::Status begun =
        core_->BeginBatch(session_, {.step = step, .completed_step = completed_step}, now_);
    EXPECT_TRUE(begun.ok()) << begun;
    Maintain();
  }
  void ExpectBackwards(uint64_t step, uint64_t completed_step) {
    const std::string before = Picture();
    EXPECT_EQ(ReasonOf(core_->BeginBatch(session_, {.step = step, .completed_step = completed_step},
                                         now_)),
              Reason::kStepBackwards);
    EXPECT_EQ(Picture(), before);
  }
};

TEST_F(DeferredReleaseTest, ABlockIsHandedOutWhenTheStepThatReleasedItIsCompleted) {
  Make(4, 2);
  Step(1, 0);
  Add(1, Range(0, 7));
  Step(2, 0);
  Free(1);  // Nothing computed, nothing cached.
  EXPECT_EQ(Primary().in_flight, 2u);
  EXPECT_EQ(Primary().free, 0u);
  ExpectRefused(Reason::kBlocksExhausted, AddSequence{.sequence = SequenceId{2}, .tokens = {1}});
  Step(3, 1);
  ExpectRefused(Reason::kBlocksExhausted, AddSequence{.sequence = SequenceId{2}, .tokens = {1}});
  Step(3, 2);
  EXPECT_EQ(Primary().in_flight, 0u);
  EXPECT_EQ(Primary().free, 2u);
  EXPECT_EQ(Add(2, {1}), 0u);
}

TEST_F(DeferredReleaseTest, WhoCountsNoStepsReadsNothingAnyMore) {
  Make(4, 2);
  Step(0, 0);
  Add(1, Range(0, 7));
  Free(1);
  EXPECT_EQ(Primary().in_flight, 0u);
  EXPECT_EQ(Primary().free, 2u);
}

TEST_F(DeferredReleaseTest, ADeferredCachedBlockMatchesAndIsNoVictim) {
  Make(4, 4);
  Step(1, 0);
  Serve(1, Range(0, 7));
  EXPECT_EQ(Primary().in_flight, 2u);
  EXPECT_EQ(Match(Range(0, 8)), 8u);
  ExpectRefused(Reason::kBlocksExhausted,
                AddSequence{.sequence = SequenceId{2}, .tokens = Range(100, 111)});
  EXPECT_EQ(Add(2, Range(0, 8)), 8u);
  EXPECT_EQ(Primary().in_flight, 2u) << "in flight before active";
  EXPECT_EQ(Primary().active, 1u);
  Step(2, 1);
  EXPECT_EQ(Primary().in_flight, 0u);
  EXPECT_EQ(Primary().active, 3u);
  Free(2);
}

TEST_F(DeferredReleaseTest, StepsEndInTheirOrder) {
  Make(4, 4);
  for (uint64_t step = 1; step <= 4; ++step) {
    Step(step, 0);
    Add(step, {static_cast<TokenId>(step)});
    Free(step);
  }
  EXPECT_EQ(Primary().in_flight, 4u);
  for (uint64_t completed = 1; completed <= 4; ++completed) {
    Step(5, completed);
    EXPECT_EQ(Primary().free, completed);
  }
}

TEST_F(DeferredReleaseTest, TruncatedAndRawBlocksAreDeferredToo) {
  Make(4, 8);
  Step(1, 0);
  Add(1, Range(0, 15));
  const auto raw = Run(AllocateBlocks{.count = 2});
  Step(2, 0);
  Truncate(1, 7);
  EXPECT_EQ(Primary().in_flight, 2u);
  ASSERT_TRUE(Run(FreeBlocks{.blocks = {raw->blocks.at(0).ref()}}).ok());
  EXPECT_EQ(Primary().in_flight, 3u);
  Step(3, 2);
  EXPECT_EQ(Primary().in_flight, 0u);
  EXPECT_EQ(Primary().free, 8u - 2u - 1u);
}

TEST_F(DeferredReleaseTest, BlocksThatAWindowPassesAreDeferredToo) {
  const WindowSize window{4};
  Make({.windows = {{window, 4}}});
  Step(1, 0);
  Add(1, Range(0, 15));
  Compute(1, 16);
  EXPECT_EQ(Primary(window).in_flight, 3u);
  ExpectRefused(Reason::kBlocksExhausted, AddSequence{.sequence = SequenceId{2}, .tokens = {9}});
  Step(2, 1);
  EXPECT_EQ(Primary(window).cached, 3u);
  EXPECT_EQ(Add(2, {99}), 0u);
}

TEST_F(DeferredReleaseTest, ADeferredTailIsNotTakenOver) {
  Make(4, 8);
  Step(1, 0);
  Serve(1, Range(0, 5));
  EXPECT_EQ(Add(2, Range(0, 9)), 6u);
  EXPECT_TRUE(Cached(Range(0, 5)).has_value()) << "it was copied";
  Free(2);
}

TEST_F(DeferredReleaseTest, TheSessionsEndEndsItsDeferredReleases) {
  Make(4, 4);
  const auto other = core_->OpenSession("other", absl::InfiniteDuration(), now_);
  ASSERT_TRUE(core_->BeginBatch(other->ref.id, {.step = 7}, now_).ok());
  ASSERT_TRUE(
      Run(other->ref.id, AddSequence{.sequence = SequenceId{1}, .tokens = Range(0, 7)}).ok());
  ASSERT_TRUE(Run(other->ref.id, FreeSequence{.sequence = SequenceId{1}}).ok());
  EXPECT_EQ(Primary().in_flight, 2u);
  ASSERT_TRUE(core_->endings().CloseSession(other->ref, now_).ok());
  EXPECT_EQ(Primary().in_flight, 0u);
  EXPECT_EQ(Primary().free, 4u);
}

TEST_F(DeferredReleaseTest, StepsOfSessionsAreTheirOwn) {
  Make(4, 4);
  Step(10, 9);
  Add(1, Range(0, 3));
  Add(2, Range(10, 13));
  Free(1);
  const auto other = core_->OpenSession("other", absl::InfiniteDuration(), now_);
  ASSERT_TRUE(core_->BeginBatch(other->ref.id, {.step = 20, .completed_step = 20}, now_).ok());
  EXPECT_EQ(Primary().in_flight, 1u);
  Free(2);
  EXPECT_EQ(Primary().in_flight, 2u) << "the other session's batch does not end this one's";
  Step(10, 10);
  EXPECT_EQ(Primary().in_flight, 0u);
}

// A batch is its session's current one until its next one, whatever other sessions do meanwhile.
TEST_F(DeferredReleaseTest, OtherSessionsComeAndGoWithinABatch) {
  Make(4, 4);
  Step(1, 0);
  Add(1, Range(0, 3));
  Add(2, Range(10, 13));
  const auto other = core_->OpenSession("other", absl::InfiniteDuration(), now_);
  Free(1);
  EXPECT_EQ(Primary().in_flight, 1u);
  ASSERT_TRUE(core_->endings().CloseSession(other->ref, now_).ok());
  Free(2);
  EXPECT_EQ(Primary().in_flight, 2u);
}

// Deferred blocks can lie below the blocks that the second batch releases, and must not be held
// longer than those.
TEST_F(DeferredReleaseTest, ABatchWithoutAStepReleasesBehindDeferredReleases) {
  Make(4, 4);
  Step(1, 0);
  Add(1, Range(0, 3));
  Add(2, Range(10, 13));
  Free(1);
  Step(0, 0);
  Free(2);
  EXPECT_EQ(Primary().in_flight, 2u);
  EXPECT_EQ(Primary().free, 2u);
  ExpectBackwards(0, 1);
  Step(1, 1);
  EXPECT_EQ(Primary().free, 4u);
}

TEST_F(DeferredReleaseTest, StepsDoNotGoBackwards) {
  Make(4, 4);
  Step(5, 3);
  Add(1, Range(0, 3));
  Free(1);
  ExpectBackwards(4, 3);
  ExpectBackwards(5, 2);
  ExpectBackwards(6, 7);
  EXPECT_EQ(Primary().in_flight, 1u);
  Step(5, 3);
  Step(6, 6);
  EXPECT_EQ(Primary().in_flight, 0u);
}

// A block with a deferred release is in flight, and a second call cannot free it again.
TEST_F(DeferredReleaseTest, ADeferredRawBlockIsFreeAlready) {
  Make(4, 4);
  Step(1, 0);
  const auto raw = Run(AllocateBlocks{.count = 1});
  ASSERT_TRUE(Run(FreeBlocks{.blocks = {raw->blocks.at(0).ref()}}).ok());
  ExpectRefused(Reason::kDoubleFree, FreeBlocks{.blocks = {raw->blocks.at(0).ref()}});
}

}  // namespace
}  // namespace pagoda
