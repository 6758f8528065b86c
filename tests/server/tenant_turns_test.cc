#include "server/tenant_turns.h"

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "pools/error.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;

constexpr TenantId kAlice{1};
constexpr TenantId kBob{2};
constexpr size_t kRoom = 3;

// A daemon's server keeps gRPC up: see batch_run_test.cc.
[[maybe_unused]] const bool kGrpcIsUp = (grpc_init(), true);

TEST(TenantTurnsTest, WhatWaitsForNobodyRunsAtOnce) {
  TenantTurns turns(kRoom);
  int ran = 0;
  turns.Run(kAlice, [&] { ++ran; });
  turns.Run(kAlice, [&] { ++ran; });
  EXPECT_EQ(ran, 2);
}

TEST(TenantTurnsTest, ATenantWaitsForItsOwnInOrderAndForNobodyElses) {
  TenantTurns turns(kRoom);
  absl::Notification begun, go_on;
  std::thread long_work([&] {
    turns.Run(kAlice, [&] {
      begun.Notify();
      go_on.WaitForNotification();
    });
  });
  begun.WaitForNotification();
  std::vector<int> order;
  absl::BlockingCounter left(3);
  for (int number = 0; number < 3; ++number) {
    turns.Run(kAlice, [&, number] {
      order.push_back(number);
      left.DecrementCount();
    });
  }
  bool others = false;
  turns.Run(kBob, [&] { others = true; });
  EXPECT_TRUE(others);
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(ReasonOf(turns.CheckRoom(kAlice)), Reason::kTooManyCalls);
  EXPECT_TRUE(turns.CheckRoom(kBob).ok());
  go_on.Notify();
  left.Wait();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  EXPECT_TRUE(turns.CheckRoom(kAlice).ok());
  long_work.join();
}

TEST(TenantTurnsTest, OneOfATenantRunsAtATimeWhateverComes) {
  constexpr int kThreads = 4;
  constexpr int kWorks = 200;
  TenantTurns turns(kRoom);
  std::atomic<int> running[2] = {0, 0};
  std::atomic<bool> two_at_once = false;
  absl::BlockingCounter left(kThreads * kWorks);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const int tenant = thread % 2;
      for (int work = 0; work < kWorks; ++work) {
        turns.Run(tenant == 0 ? kAlice : kBob, [&, tenant] {
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
