#include "server/supervision/processor_share.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace pagoda::server {
namespace {

// The arguments of sched_setattr(2). This glibc has neither the function nor the type.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // For the normal policy: the time slice.
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};

}  // namespace

void AskForShortSlices() {
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(kShortSlice));
  // If the kernel refuses, the daemon still works, with longer waits on a busy machine.
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

void GiveWay() {
  // Linux has a niceness per thread; 0 means the calling thread.
  const int nice = getpriority(PRIO_PROCESS, 0);
  static_cast<void>(setpriority(PRIO_PROCESS, 0, nice + kGivesWayNice));
}

}  // namespace pagoda::server
