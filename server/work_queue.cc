#include "server/work_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "pools/error.h"

namespace pagoda::server {

WorkQueue::WorkQueue(size_t max_waiting) : max_waiting_(max_waiting), thread_([this] { Run(); }) {}

WorkQueue::~WorkQueue() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

absl::Status WorkQueue::Push(std::function<void()> job) {
  absl::MutexLock lock(&mutex_);
  if (jobs_.size() >= max_waiting_) {
    return MakeError(Reason::kQueueFull,
                     absl::StrCat(jobs_.size(), " requests wait for the engine already"));
  }
  jobs_.push_back(std::move(job));
  return absl::OkStatus();
}

size_t WorkQueue::waiting() const {
  absl::MutexLock lock(&mutex_);
  return jobs_.size();
}

void WorkQueue::Run() {
  const auto ready = [this]()
                         ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !jobs_.empty(); };
  while (true) {
    std::function<void()> job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace pagoda::server
