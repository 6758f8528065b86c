#include "server/supervision/processor_share.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <thread>

#include "absl/synchronization/notification.h"
#include "server/callers/tenant_queues.h"

namespace pagoda::server {
namespace {

// The calling thread's time slice: the field `runtime` of sched_getattr(2), at byte 24.
absl::Duration Slice() {
  std::array<char, 48> attributes = {};
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, attributes.data(), attributes.size(), 0), 0);
  uint64_t nanoseconds = 0;
  std::memcpy(&nanoseconds, attributes.data() + 24, sizeof(nanoseconds));
  return absl::Nanoseconds(nanoseconds);
}

int Nice() { return getpriority(PRIO_PROCESS, 0); }

template <class Work>
void OnAThread(Work work) {
  std::thread thread(work);
  thread.join();
}

TEST(ProcessorShareTest, ShortSlicesAreOfAThreadAndOfThoseThatItStarts) {
  OnAThread([] {
    if (Slice() == absl::ZeroDuration()) GTEST_SKIP() << "before Linux 6.12 slices are not told";
    EXPECT_GT(Slice(), kShortSlice);
    AskForShortSlices();
    EXPECT_EQ(Slice(), kShortSlice);
    OnAThread([] { EXPECT_EQ(Slice(), kShortSlice); });
  });
}

TEST(ProcessorShareTest, ShortSlicesLeaveNicenessAndOtherPoliciesAlone) {
  OnAThread([] {
    GiveWay();
    const int nice = Nice();
    AskForShortSlices();
    EXPECT_EQ(Nice(), nice);
    const sched_param none = {};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    AskForShortSlices();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  });
}

TEST(ProcessorShareTest, WhatWaitsForItsTurnRunsOnThreadsThatGiveWay) {
  const int nice = Nice();
  TenantQueues tenant_queues({});
  absl::Notification done;
  int turns_nice = nice;
  tenant_queues.RunLater(TenantId{1}, 0, [&] {
    turns_nice = Nice();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(turns_nice, std::min(nice + kGivesWayNice, 19));
  EXPECT_EQ(Nice(), nice) << "this thread does not";
}

}  // namespace
}  // namespace pagoda::server
