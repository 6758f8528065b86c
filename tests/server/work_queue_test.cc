#include "server/work_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/notification.h"

namespace pagoda::server {
namespace {

TEST(WorkQueueTest, RunsJobsInTheOrderOfArrivalAndAllBeforeItEnds) {
  std::vector<int> order;
  {
    WorkQueue queue(100);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(queue.Push([&order, i] { order.push_back(i); }).ok());
    }
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkQueueTest, AFullQueueRefusesAndCountsOnlyWhatWaits) {
  absl::Notification begun;
  absl::Notification go_on;
  int ran = 0;
  {
    WorkQueue queue(2);
    ASSERT_TRUE(queue
                    .Push([&] {
                      begun.Notify();
                      go_on.WaitForNotification();
                    })
                    .ok());
    begun.WaitForNotification();
    EXPECT_EQ(queue.waiting(), 0u);
    EXPECT_TRUE(queue.Push([&] { ++ran; }).ok());
    EXPECT_TRUE(queue.Push([&] { ++ran; }).ok());
    EXPECT_EQ(queue.waiting(), 2u);
    const absl::Status refused = queue.Push([&] { ran += 100; });
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    go_on.Notify();
  }
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace pagoda::server
