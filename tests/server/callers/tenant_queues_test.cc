#include "server/callers/tenant_queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;

constexpr TenantId kAlice{1};
constexpr TenantId kBob{2};
constexpr TenantQueues::Limits kLimits = {.waiting_calls = 3, .waiting_bytes = 1000};
constexpr size_t kBytes = 100;

TEST(TenantQueuesTest, WhatWaitsForNobodyRunsAtOnce) {
  TenantQueues tenant_queues(kLimits);
  int ran = 0;
  tenant_queues.Run(kAlice, kBytes, [&] { ++ran; });
  tenant_queues.Run(kAlice, kBytes, [&] { ++ran; });
  EXPECT_EQ(ran, 2);
}

TEST(TenantQueuesTest, WhatIsForLaterTakesTurnsWithOtherTenants) {
  std::vector<int> order;
  absl::Mutex mutex;
  absl::Notification go_on, all_done;
  {
    TenantQueues tenant_queues(kLimits);
    // Occupies every thread of the queues. Only one of them is then free: several would finish in
    // any order.
    absl::BlockingCounter begun(static_cast<int>(tenant_queues.num_threads()));
    for (size_t i = 0; i < tenant_queues.num_threads(); ++i) {
      tenant_queues.RunLater(TenantId{static_cast<uint16_t>(10 + i)}, kBytes, [&, i] {
        begun.DecrementCount();
        (i == 0 ? go_on : all_done).WaitForNotification();
      });
    }
    begun.Wait();
    const auto later = [&](TenantId tenant, int number) {
      tenant_queues.RunLater(tenant, kBytes, [&, number] {
        absl::MutexLock lock(&mutex);
        order.push_back(number);
        if (order.size() == 5) all_done.Notify();
      });
    };
    for (int number = 0; number < 4; ++number) later(kAlice, number);
    EXPECT_EQ(ReasonOf(tenant_queues.CheckCapacity(kAlice)), Reason::kTooManyCalls);
    later(kBob, 100);
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(order.empty());
    go_on.Notify();
  }
  // Bob's is behind one of Alice's, not behind all.
  EXPECT_THAT(order, ElementsAre(0, 100, 1, 2, 3));
}

TEST(TenantQueuesTest, LongWorkOfThreeTenantsHoldsUpNoOther) {
  TenantQueues tenant_queues(kLimits);
  absl::Notification go_on, bobs;
  absl::BlockingCounter begun(3);
  for (uint16_t tenant = 10; tenant < 13; ++tenant) {
    tenant_queues.RunLater(TenantId{tenant}, kBytes, [&] {
      begun.DecrementCount();
      go_on.WaitForNotification();
    });
  }
  tenant_queues.RunLater(kBob, kBytes, [&] { bobs.Notify(); });
  bobs.WaitForNotification();
  begun.Wait();
  go_on.Notify();
}

TEST(TenantQueuesTest, ATenantWaitsForItsOwnInOrderAndForNobodyElses) {
  TenantQueues tenant_queues(kLimits);
  absl::Notification begun, go_on;
  std::thread long_work([&] {
    tenant_queues.Run(kAlice, kBytes, [&] {
      begun.Notify();
      go_on.WaitForNotification();
    });
  });
  begun.WaitForNotification();
  std::vector<int> order;
  absl::BlockingCounter left(3);
  for (int number = 0; number < 3; ++number) {
    tenant_queues.Run(kAlice, kBytes, [&, number] {
      order.push_back(number);
      left.DecrementCount();
    });
  }
  bool others = false;
  tenant_queues.Run(kBob, kBytes, [&] { others = true; });
  EXPECT_TRUE(others);
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(ReasonOf(tenant_queues.CheckCapacity(kAlice)), Reason::kTooManyCalls);
  EXPECT_TRUE(tenant_queues.CheckCapacity(kBob).ok());
  go_on.Notify();
  left.Wait();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  EXPECT_TRUE(tenant_queues.CheckCapacity(kAlice).ok());
  long_work.join();
}

TEST(TenantQueuesTest, WhatWaitsIsBoundedInBytesToo) {
  TenantQueues tenant_queues(kLimits);
  absl::Notification begun, go_on;
  std::thread long_work([&] {
    tenant_queues.Run(kAlice, kBytes, [&] {
      begun.Notify();
      go_on.WaitForNotification();
    });
  });
  begun.WaitForNotification();
  tenant_queues.Run(kAlice, 999, [] {});
  EXPECT_TRUE(tenant_queues.CheckCapacity(kAlice).ok());
  tenant_queues.Run(kAlice, 1, [] {});
  EXPECT_EQ(ReasonOf(tenant_queues.CheckCapacity(kAlice)), Reason::kTooManyCalls);
  EXPECT_EQ(tenant_queues.waiting(), 2u);
  go_on.Notify();
  long_work.join();
}

// If each turn waited for a timer's tick, this would take 10 s or more.
TEST(TenantQueuesTest, ATurnComesWhenTheOneBeforeIsOver) {
  constexpr int kWorks = 10'000;
  TenantQueues tenant_queues({.waiting_calls = kWorks});
  absl::Notification begun, go_on;
  std::thread long_work([&] {
    tenant_queues.Run(kAlice, kBytes, [&] {
      begun.Notify();
      go_on.WaitForNotification();
    });
  });
  begun.WaitForNotification();
  absl::BlockingCounter left(kWorks);
  for (int i = 0; i < kWorks; ++i)
    tenant_queues.Run(kAlice, kBytes, [&] { left.DecrementCount(); });
  const absl::Time before = absl::Now();
  go_on.Notify();
  left.Wait();
  EXPECT_LT(absl::Now() - before, absl::Seconds(3));
  long_work.join();
}

TEST(TenantQueuesTest, OneOfATenantRunsAtATimeWhateverComes) {
  constexpr int kThreads = 4;
  constexpr int kWorks = 200;
  TenantQueues tenant_queues(kLimits);
  std::atomic<int> running[2] = {0, 0};
  std::atomic<bool> two_at_once = false;
  absl::BlockingCounter left(kThreads * kWorks);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const int tenant = thread % 2;
      for (int work = 0; work < kWorks; ++work) {
        tenant_queues.Run(tenant == 0 ? kAlice : kBob, kBytes, [&, tenant] {
          if (++running[tenant] > 1) two_at_once = true;
          std::this_thread::yield();
          --running[tenant];
          left.DecrementCount();
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  left.Wait();
  EXPECT_FALSE(two_at_once);
}

}  // namespace
}  // namespace pagoda::server
