#ifndef PAGODA_SERVER_PERIODIC_TASK_H_
#define PAGODA_SERVER_PERIODIC_TASK_H_

#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace pagoda::server {

// Calls a function repeatedly on a new thread. The first call comes one interval after the start.
// The calls end when the object is destroyed.
class PeriodicTask {
 public:
  PeriodicTask(absl::Duration interval, std::function<void()> task)
      : thread_([this, interval, task = std::move(task)] {
          while (!stop_.WaitForNotificationWithTimeout(interval)) task();
        }) {}
  ~PeriodicTask() {
    stop_.Notify();
    thread_.join();
  }

 private:
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PERIODIC_TASK_H_
