#include "base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/error.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// No system has the address space for it, so the thread is refused.
constexpr size_t kTooLargeStack = size_t{1} << 60;

TEST(ThreadTest, RunsItsBodyUnderItsName) {
  std::array<char, 16> name = {};
  Thread thread;
  ASSERT_TRUE(thread
                  .Start("pagoda-longer-than-15",
                         [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); })
                  .ok());
  EXPECT_TRUE(thread.joinable());
  thread.Join();
  EXPECT_FALSE(thread.joinable());
  EXPECT_EQ(std::string(name.data()), "pagoda-longer-t");
}

TEST(ThreadTest, ARefusedThreadIsAnErrorWithTheNumberAndTheLimits) {
  Thread thread;
  const absl::Status refused = thread.Start(
      "pagoda-large", [] {}, kTooLargeStack);
  EXPECT_EQ(ReasonOf(refused), Reason::kThreadsExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("pagoda-large"), ContainsRegex("this process has [0-9]+ threads"),
                    HasSubstr("ulimit -u"), HasSubstr("pids.max")));
  EXPECT_FALSE(thread.joinable());
  thread.Join();  // There is nothing to wait for.
}

TEST(ThreadTest, TheDestructorAndAnAssignmentWaitForTheThread) {
  std::atomic<int> ended = 0;
  absl::Notification go;
  {
    Thread first, second;
    ASSERT_TRUE(first
                    .Start("first",
                           [&] {
                             go.WaitForNotification();
                             ++ended;
                           })
                    .ok());
    ASSERT_TRUE(second.Start("second", [&] { ++ended; }).ok());
    go.Notify();
    first = std::move(second);
    EXPECT_GE(ended, 1);
    EXPECT_FALSE(second.joinable());  // NOLINT(bugprone-use-after-move): what a move leaves.
  }
  EXPECT_EQ(ended, 2);
}

TEST(ThreadTest, ADetachedThreadRunsOn) {
  static auto& ran = *new absl::Notification;
  Thread thread;
  ASSERT_TRUE(thread.Start("detached", [] { ran.Notify(); }).ok());
  thread.Detach();
  EXPECT_FALSE(thread.joinable());
  ran.WaitForNotification();
}

TEST(ThreadTest, StartsSeveralThreads) {
  std::atomic<int> ended = 0;
  std::vector<Thread> threads;
  ASSERT_TRUE(StartThreads(
                  "several", 3, [&] { ++ended; }, &threads)
                  .ok());
  EXPECT_EQ(threads.size(), 3u);
  threads.clear();
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace pagoda
