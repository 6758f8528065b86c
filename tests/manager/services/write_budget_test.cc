#include "manager/services/write_budget.h"

#include "gtest/gtest.h"
#include "manager/services/order_lanes.h"
#include "manager/tiers/backup_queue.h"

namespace pagoda {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(WriteBudgetTest, HoldsOneSecondAndFillsWithTime) {
  WriteBudget budget(1000, kStart);
  EXPECT_TRUE(budget.Take(600, kStart));
  EXPECT_FALSE(budget.Take(600, kStart));
  EXPECT_TRUE(budget.Take(400, kStart));
  EXPECT_FALSE(budget.Take(100, kStart + absl::Milliseconds(99)));
  EXPECT_TRUE(budget.Take(100, kStart + absl::Milliseconds(100)));
  EXPECT_TRUE(budget.Take(1000, kStart + absl::Seconds(1000))) << "and no more than that";
  EXPECT_FALSE(budget.Take(1, kStart + absl::Seconds(1000)));
}

TEST(WriteBudgetTest, ManyShortLooksGiveNoMoreAndNoLessThanOneLongOne) {
  WriteBudget budget(7, kStart);
  ASSERT_TRUE(budget.Take(7, kStart));
  uint64_t taken = 0;
  for (int i = 1; i <= 100'010; ++i) {
    if (budget.Take(1, kStart + absl::Microseconds(100) * i)) ++taken;
  }
  EXPECT_EQ(taken, 70u);
}

TEST(WriteBudgetTest, ABlockLargerThanASecondsWorthIsPaidOffAfterwards) {
  WriteBudget budget(100, kStart);
  EXPECT_TRUE(budget.Take(350, kStart));
  EXPECT_FALSE(budget.Take(10, kStart + absl::Milliseconds(2500)));
  EXPECT_TRUE(budget.Take(10, kStart + absl::Milliseconds(2600)) ||
              budget.Take(10, kStart + absl::Milliseconds(2700)));
}

TEST(WriteBudgetTest, WithoutALimitEverythingGoes) {
  WriteBudget budget(0, kStart);
  EXPECT_TRUE(budget.Take(uint64_t{1} << 60, kStart));
}

TEST(BackupQueueTest, UsesComeFirstThenPriorityThenAge) {
  BackupQueue queue;
  const auto block = [](uint32_t id) { return BlockRef{BlockId{id}, Generation{1}}; };
  queue.Push(block(1), 0, Priority{90});
  queue.Push(block(2), 1, Priority{10});
  queue.Push(block(3), 1, Priority{40});
  queue.Push(block(4), 1, Priority{40});
  queue.PushFirst(block(5));
  for (const uint32_t id : {5u, 3u, 4u, 2u, 1u}) EXPECT_EQ(queue.Pop()->id, BlockId{id});
  EXPECT_FALSE(queue.Pop().has_value());
}

TEST(BackupQueueTest, AFullQueueForgetsTheOldestOfItsLowestClass) {
  BackupQueue queue;
  for (uint32_t i = 0; i < BackupQueue::kMaxBlocks; ++i) {
    EXPECT_FALSE(
        queue.Push({BlockId{i}, Generation{1}}, i % 2 == 0 ? 1 : 0, kDefaultPriority).has_value());
  }
  const auto forgotten = queue.Push({BlockId{99'999}, Generation{1}}, 3, kDefaultPriority);
  ASSERT_TRUE(forgotten.has_value());
  EXPECT_EQ(forgotten->id, BlockId{1});
  EXPECT_EQ(queue.size(), BackupQueue::kMaxBlocks);
}

TEST(OrderLanesTest, ALaneIsCompleteUpToItsFirstOpenTicket) {
  OrderLanes lanes;
  const Ticket first = lanes.Add({.lane = Lane::kFetch, .window_index = 0});
  const Ticket second = lanes.Add({.lane = Lane::kFetch, .window_index = 1});
  EXPECT_EQ(lanes.Add({.lane = Lane::kBackup}), Ticket{1}) << "each lane counts by itself";
  EXPECT_EQ(lanes.Report(Lane::kFetch, second), 1u);
  lanes.Close(Lane::kFetch, second);
  EXPECT_EQ(lanes.completed(Lane::kFetch), Ticket{0});
  lanes.Close(Lane::kFetch, first);  // Given up: the carrier has not reported it.
  EXPECT_EQ(lanes.completed(Lane::kFetch), second);
  EXPECT_EQ(lanes.Report(Lane::kFetch, first), 0u);
  EXPECT_FALSE(lanes.Report(Lane::kFetch, first).has_value());
}

}  // namespace
}  // namespace pagoda
