// Threads that run work in the order in which it comes.
#ifndef PAGODA_SERVER_HTTP_WORK_THREADS_H_
#define PAGODA_SERVER_HTTP_WORK_THREADS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/thread.h"

namespace pagoda::server {

// Thread-safe, apart from Start.
class WorkThreads {
 public:
  ~WorkThreads() { Stop(); }

  // Errors: those of Thread::Start.
  absl::Status Start(std::string_view name, size_t count) {
    return StartThreads(
        name, count, [this] { Run(); }, &threads_);
  }
  void Add(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    work_.push_back(std::move(work));
  }
  // Work that no thread has begun.
  size_t waiting() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return work_.size();
  }
  // Runs what waits, and ends the threads.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    threads_.clear();
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto can_go_on = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !work_.empty();
    };
    while (true) {
      std::function<void()> work;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(&can_go_on));
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_WORK_THREADS_H_
