// A queue of work for each tenant, which runs one piece of work at a time.
#ifndef PAGODA_SERVER_CALLERS_TENANT_QUEUES_H_
#define PAGODA_SERVER_CALLERS_TENANT_QUEUES_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/thread.h"
#include "events/tenant_id.h"

namespace pagoda::server {

// A request of more bytes is read on a thread of these queues. A decode step of 256 sequences has a
// few KiB, and a prompt of 7,000 tokens has 21 KiB: to read these takes less time than another
// thread takes to begin.
inline constexpr size_t kLargeRequestBytes = size_t{32} << 10;

// Each tenant runs one batch, or one text to tokenise, at a time. Further work of the tenant queues
// here without a thread, so a tenant with many batches competes for the core's lock once, as every
// other tenant does. Queued work runs on a few threads of this object, which serve the tenants one
// after another; gRPC's threads stay free for tenants that send less. So long batches are moved to
// these threads too (BatchRun::Context::RunRead). The threads yield their processors now and then.
// Thread-safe.
class TenantQueues {
 public:
  struct Limits {
    // For each tenant: the calls that wait, and the bytes of their requests.
    size_t waiting_calls = 2048;
    size_t waiting_bytes = size_t{64} << 20;
  };

  explicit TenantQueues(Limits limits);
  // Runs the waiting work, then ends the threads. REQUIRES: no further call of Run or RunLater.
  ~TenantQueues();
  // OK, or why a thread is missing (Thread::Start). It may not be used then.
  const absl::Status& started() const { return started_; }
  TenantQueues(const TenantQueues&) = delete;
  TenantQueues& operator=(const TenantQueues&) = delete;

  // Errors: TOO_MANY_CALLS if the tenant's queue is at its limits.
  absl::Status CheckCapacity(TenantId tenant) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `work` when no other work of the tenant runs. If none runs now, `work` runs before this
  // returns; else later, in the order of the calls. Does not check the limits (see CheckCapacity).
  // `bytes`: the memory that `work` holds while it waits.
  void Run(TenantId tenant, size_t bytes, std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);

  // Does what Run does, but `work` always runs on a thread of this object: for work that is too
  // long for the caller's thread.
  void RunLater(TenantId tenant, size_t bytes, std::function<void()> work)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The pieces of work that can run at the same time on this object's threads.
  size_t num_threads() const { return threads_.size(); }
  // Whether this thread belongs to an object of this class.
  static bool OnItsThread();

  // The pieces of work that wait now, of all tenants.
  size_t waiting() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Work {
    std::function<void()> run;
    size_t bytes = 0;
  };
  struct Queue {
    bool running = false;  // Running, or in ready_.
    std::deque<Work> waiting;
    size_t bytes = 0;  // The bytes of the waiting work.
  };

  // The tenant's work has ended: makes its next work ready, if it has any.
  void End(TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunReady() ABSL_LOCKS_EXCLUDED(mutex_);

  const Limits limits_;
  mutable absl::Mutex mutex_;  // No work runs under it.
  // One queue for every tenant that has ever run work.
  absl::node_hash_map<TenantId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  std::deque<TenantId> ready_ ABSL_GUARDED_BY(mutex_);  // Tenants whose next work can run.
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status started_;
  std::vector<Thread> threads_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_TENANT_QUEUES_H_
