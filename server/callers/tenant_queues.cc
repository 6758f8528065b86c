#include "server/callers/tenant_queues.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "engine/schedule/stopwatch.h"
#include "server/rpc/processor_share.h"

namespace pagoda::server {
namespace {

// One of two processors: the other one is for calls that need not wait.
size_t NumThreads() { return std::max(1u, std::thread::hardware_concurrency() / 2); }

// A thread that has gone on for so long gives up its processor when it has done the work in hand.
// Otherwise it keeps it for its time slice, which is up to four milliseconds where the kernel looks
// at the time 250 times a second, and a call that need not wait its turn waits for that. More
// often, and a tenant with a backlog gets next to nothing where other processes want all
// processors.
constexpr absl::Duration kProcessorTurn = absl::Microseconds(500);

}  // namespace

TenantQueues::TenantQueues(Limits limits) : limits_(limits) {
  for (size_t i = 0; i < NumThreads(); ++i) threads_.emplace_back([this] { RunReady(); });
}

TenantQueues::~TenantQueues() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status TenantQueues::CheckCapacity(TenantId tenant) const {
  absl::MutexLock lock(&mutex_);
  const auto found = queues_.find(tenant);
  if (found == queues_.end()) return absl::OkStatus();
  const Queue& queue = found->second;
  if (queue.waiting.size() < limits_.waiting_calls && queue.bytes < limits_.waiting_bytes) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kTooManyCalls,
                   absl::StrCat(queue.waiting.size(), " calls of this tenant, with ", queue.bytes,
                                " bytes, wait for their turn"));
}

void TenantQueues::Run(TenantId tenant, size_t bytes, std::function<void()> work) {
  {
    absl::MutexLock lock(&mutex_);
    Queue& queue = queues_[tenant];
    if (queue.running) {
      queue.waiting.push_back({std::move(work), bytes});
      queue.bytes += bytes;
      ++waiting_;
      return;
    }
    queue.running = true;
  }
  work();
  End(tenant);
}

void TenantQueues::RunLater(TenantId tenant, size_t bytes, std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  Queue& queue = queues_[tenant];
  queue.waiting.push_back({std::move(work), bytes});
  queue.bytes += bytes;
  ++waiting_;
  if (!std::exchange(queue.running, true)) ready_.push_back(tenant);
}

void TenantQueues::End(TenantId tenant) {
  absl::MutexLock lock(&mutex_);
  Queue& queue = queues_[tenant];
  if (queue.waiting.empty()) {
    queue.running = false;
  } else {
    ready_.push_back(tenant);
  }
}

void TenantQueues::RunReady() {
  const auto something = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !ready_.empty() || (stopping_ && waiting_ == 0);
  };
  // Calls that need not wait run on other threads.
  GiveWay();
  SteadyTime began = SteadyNow();
  while (true) {
    TenantId tenant;
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      if (!something()) {
        mutex_.Await(absl::Condition(&something));
        began = SteadyNow();
      }
      if (ready_.empty()) return;
      tenant = ready_.front();
      ready_.pop_front();
      Queue& queue = queues_[tenant];
      work = std::move(queue.waiting.front());
      queue.waiting.pop_front();
      queue.bytes -= work.bytes;
      --waiting_;
    }
    work.run();
    work = {};  // What it owns goes before the tenant's turn is over.
    End(tenant);
    if (Since(began) >= kProcessorTurn) {
      std::this_thread::yield();
      began = SteadyNow();
    }
  }
}

size_t TenantQueues::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_;
}

}  // namespace pagoda::server
