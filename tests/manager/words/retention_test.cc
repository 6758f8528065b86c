#include "manager/words/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RetentionRange Range(uint32_t start, std::optional<uint32_t> end, uint8_t priority) {
  return {.token_start = start, .token_end = end, .retention = {.priority = Priority{priority}}};
}

std::string WhatIsWrong(const SequenceRetention& retention) {
  const absl::Status status = CheckRetention(retention);
  if (status.ok()) return "";
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  return std::string(status.message());
}

// Scenario 20 of TensorRT-LLM.
TEST(CheckRetentionTest, RefusesRangesThatAreOpenEmptyOrOverlapping) {
  EXPECT_THAT(WhatIsWrong({.ranges = {Range(0, std::nullopt, 80), Range(64, 128, 50)}}),
              HasSubstr("range 1, tokens [64, 128), follows an open range"));
  EXPECT_THAT(WhatIsWrong({.ranges = {Range(64, 32, 80)}}),
              HasSubstr("range 0, tokens [64, 32), is empty"));
  EXPECT_THAT(WhatIsWrong({.ranges = {Range(64, 64, 80)}}), HasSubstr("is empty"));
  EXPECT_THAT(WhatIsWrong({.ranges = {Range(0, 64, 80), Range(63, 128, 50)}}),
              HasSubstr("range 1, tokens [63, 128), begins before the previous range ends, at 64"));
  EXPECT_THAT(WhatIsWrong({.ranges = {Range(64, 128, 50), Range(0, 64, 80)}}),
              HasSubstr("begins before"));
}

TEST(CheckRetentionTest, AcceptsWhatIsInOrder) {
  EXPECT_EQ(WhatIsWrong({}), "");
  EXPECT_EQ(WhatIsWrong({.ranges = {Range(0, 1, 0), Range(1, 7, 100), Range(9, std::nullopt, 35)}}),
            "");
  EXPECT_EQ(WhatIsWrong({.generated = BlockRetention{Priority{100}, absl::Nanoseconds(1)}}), "");
}

TEST(CheckRetentionTest, RefusesPrioritiesAbove100AndDurationsThatAreNotPositive) {
  EXPECT_THAT(WhatIsWrong({.ranges = {Range(0, 8, 101)}}), HasSubstr("priority 101"));
  EXPECT_THAT(WhatIsWrong({.generated = BlockRetention{.priority = Priority{255}}}),
              HasSubstr("generated tokens has priority 255"));
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Seconds(-1), -absl::InfiniteDuration()}) {
    EXPECT_THAT(WhatIsWrong({.generated = BlockRetention{.duration = duration}}),
                HasSubstr("duration"));
    SequenceRetention retention = {.ranges = {Range(0, 4, 1), Range(4, 8, 1)}};
    retention.ranges[1].retention.duration = duration;
    EXPECT_THAT(WhatIsWrong(retention), HasSubstr("range 1"));
  }
}

// The priorities of a prompt's blocks; -1 if none is given.
std::vector<int> Priorities(const SequenceRetention& retention, uint32_t tokens_per_block,
                            uint32_t prompt_tokens) {
  EXPECT_EQ(WhatIsWrong(retention), "");
  std::vector<int> priorities;
  for (uint32_t first = 0; first < prompt_tokens; first += tokens_per_block) {
    const std::optional<BlockRetention> of = RetentionOf(retention, prompt_tokens, first);
    priorities.push_back(of.has_value() ? of->priority.value() : -1);
  }
  return priorities;
}

// Scenario 21 of TensorRT-LLM: a block has the range of its first token.
TEST(RetentionOfTest, ABlockTakesTheRangeWithItsFirstToken) {
  const std::optional<uint32_t> open;
  EXPECT_THAT(Priorities({{Range(0, 64, 80), Range(64, 128, 50)}, {}}, 64, 256),
              ElementsAre(80, 50, -1, -1));
  EXPECT_THAT(Priorities({{Range(0, 63, 80), Range(63, 127, 30)}, {}}, 32, 127),
              ElementsAre(80, 80, 30, 30));
  EXPECT_THAT(Priorities({{Range(0, 1, 80), Range(1, 2, 5)}, {}}, 32, 128),
              ElementsAre(80, -1, -1, -1));
  EXPECT_THAT(Priorities({{Range(0, 65, 80), Range(65, 129, 30)}, {}}, 64, 192),
              ElementsAre(80, 80, 30));
  EXPECT_THAT(Priorities({{Range(127, 193, 80)}, {}}, 64, 256), ElementsAre(-1, -1, 80, 80));
  EXPECT_THAT(Priorities({{Range(1, open, 80)}, {}}, 64, 128), ElementsAre(-1, 80));
  EXPECT_THAT(Priorities({{Range(0, 64, 80), Range(129, open, 50)}, {}}, 64, 256),
              ElementsAre(80, -1, -1, 50));
}

TEST(RetentionOfTest, BlocksBehindThePromptTakeWhatIsSaidOfGeneratedTokens) {
  const SequenceRetention retention = {.ranges = {Range(0, std::nullopt, 80)},
                                       .generated = BlockRetention{Priority{20}, absl::Seconds(3)}};
  EXPECT_EQ(RetentionOf(retention, 100, 99), (BlockRetention{.priority = Priority{80}}));
  EXPECT_EQ(RetentionOf(retention, 100, 100), (BlockRetention{Priority{20}, absl::Seconds(3)}));
  EXPECT_EQ(RetentionOf({.ranges = retention.ranges}, 100, 100), std::nullopt)
      << "an open range ends with the prompt";
}

constexpr BlockId kA{1};
constexpr BlockId kB{2};
constexpr BlockId kC{3};

class ExpiryQueueTest : public ::testing::Test {
 protected:
  static absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }
  ExpiryQueue queue_;
};

TEST_F(ExpiryQueueTest, TakesWhatIsOverTheEarliestFirst) {
  queue_.SetDuration(kA, absl::Milliseconds(30));
  queue_.SetDuration(kB, absl::Milliseconds(10));
  queue_.SetDuration(kC, absl::Milliseconds(20));
  for (const BlockId id : {kA, kB, kC}) queue_.Start(id, At(100));
  EXPECT_EQ(queue_.next(), At(110));
  EXPECT_THAT(queue_.TakeExpired(At(109)), IsEmpty());
  EXPECT_THAT(queue_.TakeExpired(At(110)), ElementsAre(kB)) << "over at its time, not after";
  EXPECT_FALSE(queue_.has_duration(kB));
  EXPECT_EQ(queue_.next(), At(120));
  EXPECT_THAT(queue_.TakeExpired(At(1000)), ElementsAre(kC, kA));
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.next(), absl::InfiniteFuture());
}

TEST_F(ExpiryQueueTest, EqualTimesGoById) {
  for (const BlockId id : {kC, kA, kB}) {
    queue_.SetDuration(id, absl::Milliseconds(5));
    queue_.Start(id, At(0));
  }
  EXPECT_THAT(queue_.TakeExpired(At(5)), ElementsAre(kA, kB, kC));
}

TEST_F(ExpiryQueueTest, TheClockOfAHeldBlockStandsAndStartsAnewWithAllItsDuration) {
  queue_.SetDuration(kA, absl::Milliseconds(10));
  EXPECT_TRUE(queue_.has_duration(kA));
  EXPECT_EQ(queue_.next(), absl::InfiniteFuture()) << "held from the start";
  queue_.Start(kA, At(0));
  queue_.Stop(kA);
  EXPECT_TRUE(queue_.has_duration(kA));
  EXPECT_THAT(queue_.TakeExpired(At(100)), IsEmpty());
  queue_.Start(kA, At(200));
  EXPECT_THAT(queue_.TakeExpired(At(209)), IsEmpty());
  EXPECT_THAT(queue_.TakeExpired(At(210)), ElementsAre(kA));
}

TEST_F(ExpiryQueueTest, StartingAgainMovesTheEnd) {
  queue_.SetDuration(kA, absl::Milliseconds(10));
  queue_.Start(kA, At(0));
  queue_.Start(kA, At(5));
  EXPECT_THAT(queue_.TakeExpired(At(10)), IsEmpty());
  EXPECT_THAT(queue_.TakeExpired(At(15)), ElementsAre(kA));
}

TEST_F(ExpiryQueueTest, ANewDurationStopsTheClockAndAnInfiniteOneEndsIt) {
  queue_.SetDuration(kA, absl::Milliseconds(10));
  queue_.Start(kA, At(0));
  queue_.SetDuration(kA, absl::Milliseconds(50));
  EXPECT_EQ(queue_.next(), absl::InfiniteFuture());
  queue_.Start(kA, At(1));
  EXPECT_EQ(queue_.next(), At(51));
  queue_.SetDuration(kA, absl::InfiniteDuration());
  EXPECT_FALSE(queue_.has_duration(kA));
  EXPECT_TRUE(queue_.empty());
  EXPECT_THAT(queue_.TakeExpired(At(1000)), IsEmpty());
}

TEST_F(ExpiryQueueTest, AForgottenBlockDoesNotExpire) {
  queue_.SetDuration(kA, absl::Milliseconds(10));
  queue_.Start(kA, At(0));
  queue_.Forget(kA);
  EXPECT_TRUE(queue_.empty());
  EXPECT_THAT(queue_.TakeExpired(At(1000)), IsEmpty());
  // A block without a duration has no clock.
  queue_.Start(kB, At(0));
  queue_.Stop(kB);
  queue_.Forget(kB);
  EXPECT_EQ(queue_.next(), absl::InfiniteFuture());
}

TEST_F(ExpiryQueueTest, AnEndOutOfTimeNeverComes) {
  queue_.SetDuration(kA, absl::Hours(1));
  queue_.Start(kA, absl::InfiniteFuture());
  EXPECT_EQ(queue_.next(), absl::InfiniteFuture());
  EXPECT_THAT(queue_.TakeExpired(At(1'000'000)), IsEmpty());
  EXPECT_TRUE(queue_.has_duration(kA));
}

TEST_F(ExpiryQueueTest, EqualsAListOfDeadlinesOnRandomOperations) {
  struct Timer {
    absl::Duration duration;
    std::optional<absl::Time> deadline;
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    ExpiryQueue queue;
    std::map<BlockId, Timer> naive;
    absl::Time now = At(0);
    for (int step = 0; step < 2'000; ++step) {
      const BlockId id{static_cast<uint32_t>(random() % 30)};
      switch (random() % 6) {
        case 0: {
          const bool ends = random() % 8 != 0;
          const absl::Duration duration =
              ends ? absl::Milliseconds(1 + random() % 40) : absl::InfiniteDuration();
          queue.SetDuration(id, duration);
          naive.erase(id);
          if (ends) naive[id] = {.duration = duration, .deadline = std::nullopt};
          break;
        }
        case 1:
        case 2:
          queue.Start(id, now);
          if (naive.contains(id)) naive[id].deadline = now + naive[id].duration;
          break;
        case 3:
          queue.Stop(id);
          if (naive.contains(id)) naive[id].deadline.reset();
          break;
        case 4:
          if (random() % 4 == 0) {
            queue.Forget(id);
            naive.erase(id);
          }
          break;
        default: {
          now += absl::Milliseconds(random() % 8);
          std::vector<std::pair<absl::Time, BlockId>> over;
          for (const auto& [block, timer] : naive) {
            if (timer.deadline.has_value() && *timer.deadline <= now) {
              over.emplace_back(*timer.deadline, block);
            }
          }
          std::sort(over.begin(), over.end());
          const size_t limit = random() % 3 == 0 ? random() % 4 : naive.size();
          over.resize(std::min(over.size(), limit));
          std::vector<BlockId> expected;
          for (const auto& [deadline, block] : over) {
            expected.push_back(block);
            naive.erase(block);
          }
          ASSERT_EQ(queue.TakeExpired(now, limit), expected) << "seed " << seed << " step " << step;
        }
      }
      absl::Time next = absl::InfiniteFuture();
      for (const auto& [block, timer] : naive) {
        ASSERT_TRUE(queue.has_duration(block));
        next = std::min(next, timer.deadline.value_or(absl::InfiniteFuture()));
      }
      ASSERT_EQ(queue.next(), next) << "seed " << seed << " step " << step;
      ASSERT_EQ(queue.empty(), naive.empty());
      ASSERT_EQ(queue.has_duration(id), naive.contains(id));
    }
  }
}

}  // namespace
}  // namespace pagoda
