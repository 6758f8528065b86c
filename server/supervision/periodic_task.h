#ifndef PAGODA_SERVER_SUPERVISION_PERIODIC_TASK_H_
#define PAGODA_SERVER_SUPERVISION_PERIODIC_TASK_H_

#include <functional>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/thread.h"

namespace pagoda::server {

// Calls a function repeatedly on a new thread. The first call comes one interval after the start.
// The calls end when the object is destroyed.
class PeriodicTask {
 public:
  PeriodicTask(absl::Duration interval, std::function<void()> task)
      : started_(thread_.Start("pagoda-timer", [this, interval, task = std::move(task)] {
          while (!stop_.WaitForNotificationWithTimeout(interval)) task();
        })) {}
  ~PeriodicTask() {
    stop_.Notify();
    thread_.Join();
  }

  // OK, or why its thread is missing (Thread::Start): nothing is called then.
  const absl::Status& started() const { return started_; }

 private:
  absl::Notification stop_;
  Thread thread_;
  const absl::Status started_;  // After the thread, which it starts.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_SUPERVISION_PERIODIC_TASK_H_
