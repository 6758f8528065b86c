// Work that is too long for a thread of gRPC's.
#ifndef PAGODA_SERVER_TASK_THREAD_H_
#define PAGODA_SERVER_TASK_THREAD_H_

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pagoda::server {

// Runs tasks one after the other, on a thread of its own. Whoever adds them bounds how many there
// are. Its end waits until all have run. Thread-safe.
class TaskThread {
 public:
  TaskThread() : thread_([this] { Run(); }) {}
  ~TaskThread() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void Add(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto something = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !tasks_.empty();
    };
    while (true) {
      std::function<void()> task;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(&something));
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TASK_THREAD_H_
