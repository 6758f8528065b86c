#include "server/callers/tenant_queues.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/processor_turn.h"
#include "server/supervision/processor_share.h"

namespace pagoda::server {
namespace {

// Half of the processors: the others serve calls that need not wait. Four at least: a long piece of
// one tenant's work, such as a text of megabytes, leaves threads to the others, and the kernel
// shares the processors out among them.
size_t NumThreads() { return std::max(4u, std::thread::hardware_concurrency() / 2); }

thread_local bool on_its_thread = false;

}  // namespace

TenantQueues::TenantQueues(Limits limits) : limits_(limits) {
  started_ = StartThreads(
      "pagoda-tenants", NumThreads(), [this] { RunReady(); }, &threads_);
}

TenantQueues::~TenantQueues() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (Thread& thread : threads_) thread.Join();
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
                   absl::StrCat("already waiting: ", Counted(queue.waiting.size(), "call"),
                                " of this tenant, with ", queue.bytes, " bytes"));
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
  on_its_thread = true;
  // Calls that need not wait run on other threads, which have precedence.
  GiveWay();
  BeginProcessorTurn();
  while (true) {
    TenantId tenant;
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      if (!something()) {
        mutex_.Await(absl::Condition(&something));
        BeginProcessorTurn();
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
    work = {};  // Frees what the work owns before the tenant's next work can run.
    End(tenant);
    EndProcessorTurnIfOver();
  }
}

bool TenantQueues::OnItsThread() { return on_its_thread; }

size_t TenantQueues::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_;
}

}  // namespace pagoda::server
