// One batch, or one text to tokenise, of a tenant at a time.
#ifndef PAGODA_SERVER_CALLERS_TENANT_QUEUES_H_
#define PAGODA_SERVER_CALLERS_TENANT_QUEUES_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "events/tenant_id.h"

namespace pagoda::server {

// Of a tenant that sends many batches at once one runs, and the others wait here without a thread:
// so it has one turn at the core's lock where every other tenant has one. What had to wait runs on
// a few threads of this object's own, tenant after tenant, so gRPC's threads are free for those who
// send less; and these threads give up their processors now and then, to whoever wants them.
// Thread-safe.
class TenantQueues {
 public:
  struct Limits {
    // Of each tenant: calls that wait, and the bytes of their requests.
    size_t waiting_calls = 2048;
    size_t waiting_bytes = size_t{64} << 20;
  };

  explicit TenantQueues(Limits limits);
  // Runs what waits, and ends the threads. REQUIRES: nobody calls Run any more.
  ~TenantQueues();
  TenantQueues(const TenantQueues&) = delete;
  TenantQueues& operator=(const TenantQueues&) = delete;

  // Errors: TOO_MANY_CALLS, where as much of the tenant's waits as may.
  absl::Status CheckCapacity(TenantId tenant) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `work` when nothing else of the tenant runs: before this returns where that is so now,
  // else later, in the order of the calls, also where there is no room. `bytes`: of memory that it
  // keeps while it waits.
  void Run(TenantId tenant, size_t bytes, std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);

  // The same, but never before this returns: for work that is too long for the caller's thread.
  void RunLater(TenantId tenant, size_t bytes, std::function<void()> work)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Works that wait now, of all tenants.
  size_t waiting() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Work {
    std::function<void()> run;
    size_t bytes = 0;
  };
  struct Queue {
    bool running = false;  // Or in ready_.
    std::deque<Work> waiting;
    size_t bytes = 0;  // Of those that wait.
  };

  // The tenant's turn is over.
  void End(TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunReady() ABSL_LOCKS_EXCLUDED(mutex_);

  const Limits limits_;
  mutable absl::Mutex mutex_;  // Nothing is called under it.
  // Of every tenant that has ever run something.
  absl::node_hash_map<TenantId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  std::deque<TenantId> ready_ ABSL_GUARDED_BY(mutex_);  // Whose next work may run.
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_TENANT_QUEUES_H_
