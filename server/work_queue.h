#ifndef PAGODA_SERVER_WORK_QUEUE_H_
#define PAGODA_SERVER_WORK_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace pagoda::server {

// One thread that runs long jobs in the order of arrival, so that no gRPC thread does. Thread-safe.
class WorkQueue {
 public:
  // At most `max_waiting` jobs wait behind the one that runs.
  explicit WorkQueue(size_t max_waiting);
  // Runs what waits, then ends the thread.
  ~WorkQueue();

  // QUEUE_FULL where too many jobs wait; the job is dropped.
  absl::Status Push(std::function<void()> job) ABSL_LOCKS_EXCLUDED(mutex_);

  // Jobs that have not begun.
  size_t waiting() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t max_waiting_;
  mutable absl::Mutex mutex_;  // Not held while a job runs.
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WORK_QUEUE_H_
