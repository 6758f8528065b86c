#include "server/supervision/heartbeat.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "tests/manager/fixtures/testing.h"
#include "tests/server/notify_socket.h"

namespace pagoda::server {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(2);
// A waiting beat lasts at least as long as this many beats.
constexpr int kMissedBeats = 50;
// Only a broken heartbeat takes this long.
constexpr absl::Duration kPatience = absl::Seconds(20);

// Whether the waiting time of the current beat fulfils `condition` in time.
template <class Condition>
bool WaitingComesTo(const Heartbeat& heartbeat, Condition condition) {
  for (absl::Duration slept; slept < kPatience; slept += kInterval) {
    if (condition(heartbeat.waiting())) return true;
    absl::SleepFor(kInterval);
  }
  return false;
}

// A core whose lock a thread takes and does not release: the clock blocks, which the core reads
// under the lock.
class HeartbeatTest : public ::testing::Test {
 protected:
  ~HeartbeatTest() override {
    if (holder_.joinable()) LetGo();
  }

  void HoldTheCoresLock() {
    holder_ = std::thread([this] {
      hold_ = true;
      ASSERT_TRUE(manager_.OpenSession("stuck", absl::InfiniteDuration()).ok());
    });
    held_.WaitForNotification();
  }

  void LetGo() {
    let_go_.Notify();
    holder_.join();
  }

  absl::Time StoppingClock() {
    if (hold_.exchange(false)) {
      held_.Notify();
      let_go_.WaitForNotification();
    }
    return SharedManager::Now();
  }

  std::atomic<bool> hold_ = false;
  absl::Notification held_;
  absl::Notification let_go_;
  std::thread holder_;
  NotifySocket socket_{absl::StrCat(::testing::TempDir(), "/heartbeat-", getpid(), ".sock")};
  Supervisor supervisor_;
  EventLog log_{{}};
  SharedManager manager_{MakeCore(4, 4), &log_, [this] { return StoppingClock(); }};
};

TEST_F(HeartbeatTest, TheWatchdogHearsOfEachBeat) {
  const Heartbeat heartbeat(
      kInterval, [this] { manager_.Read(&BlockManager::revision); }, &supervisor_);
  for (int beat = 0; beat < 3; ++beat) EXPECT_EQ(socket_.Receive(), "WATCHDOG=1");
}

TEST_F(HeartbeatTest, TheWatchdogHearsNothingWhileTheCoreIsStuckAndAgainAfterwards) {
  HoldTheCoresLock();
  const Heartbeat heartbeat(
      kInterval, [this] { manager_.Read(&BlockManager::revision); }, &supervisor_);
  EXPECT_TRUE(WaitingComesTo(
      heartbeat, [](absl::Duration waiting) { return waiting > kMissedBeats * kInterval; }));
  EXPECT_EQ(socket_.TryReceive(), "");
  LetGo();
  EXPECT_EQ(socket_.Receive(), "WATCHDOG=1");
  EXPECT_TRUE(WaitingComesTo(
      heartbeat, [](absl::Duration waiting) { return waiting == absl::ZeroDuration(); }));
}

TEST(HeartbeatIntervalTest, IsHalfOfTheWatchdogsTime) {
  EXPECT_EQ(HeartbeatInterval(absl::Seconds(30)), absl::Seconds(15));
  EXPECT_EQ(HeartbeatInterval(absl::ZeroDuration()), absl::Seconds(1)) << "for the probes";
}

}  // namespace
}  // namespace pagoda::server
