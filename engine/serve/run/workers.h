#ifndef PAGODA_ENGINE_SERVE_RUN_WORKERS_H_
#define PAGODA_ENGINE_SERVE_RUN_WORKERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/thread.h"

namespace pagoda {

// A pool of threads that each run one job at a time. Push waits for a free thread, so jobs do not
// pile up. Only one thread may call Push.
class Workers {
 public:
  using Job = std::function<void()>;

  explicit Workers(uint32_t count) {
    started_ = StartThreads(
        "pagoda-worker", count, [this] { Run(); }, &threads_);
  }
  ~Workers() { Finish(); }

  // OK, or why a thread is missing (Thread::Start). Push may not be called then.
  const absl::Status& started() const { return started_; }

  // Waits for the running jobs and ends the threads.
  void Finish() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (Thread& thread : threads_) thread.Join();
    threads_.clear();
  }

  // Waits until a thread has taken the job.
  void Push(Job job) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    job_ = std::move(job);
    const auto taken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !job_.has_value(); };
    mutex_.Await(absl::Condition(&taken));
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_) {
    for (;;) {
      Job job;
      {
        absl::MutexLock lock(&mutex_);
        const auto something = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
          return stopping_ || job_.has_value();
        };
        mutex_.Await(absl::Condition(&something));
        if (!job_.has_value()) return;
        job = *std::move(job_);
        job_.reset();
      }
      job();
    }
  }

  absl::Mutex mutex_;
  std::optional<Job> job_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status started_;
  std::vector<Thread> threads_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_RUN_WORKERS_H_
