// All pairs of rings of the daemon.
#ifndef PAGODA_SERVER_RING_RING_HUB_H_
#define PAGODA_SERVER_RING_RING_HUB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "manager/words/ids.h"
#include "server/batch/batch_run.h"
#include "server/callers/stream_slots.h"
#include "server/calls/rpc_metrics.h"
#include "server/directory/cache_directory.h"
#include "server/ring/ring_pair.h"
#include "server/ring/ring_poller.h"
#include "wire/ring/ring_memory.h"

namespace pagoda::server {

// Opens pairs and ends them. A cache whose sessions have pairs has one poller. Thread-safe.
//
// A pair does not hold its session's lease, unlike a Session stream: a forked child can keep the
// client's end open after its parent died. Batches and KeepAlive renew the lease.
//
// Invariant: a session has at most one pair that has not ended.
class RingHub {
 public:
  struct Limits {
    size_t pairs = 1024;
    // The memory of all pairs that have not ended. The tenants share it: see FairCount.
    uint64_t bytes = uint64_t{512} << 20;
  };
  // A pair takes one descriptor. All pairs take at most an eighth of those that this process can
  // have.
  static Limits DefaultLimits();

  // The pointers must outlive this.
  RingHub(Limits limits, const CacheDirectory* caches, size_t num_tenants, RpcMetrics* metrics);
  // Calls Stop.
  ~RingHub();

  // What the client gets. `bytes`: of each ring.
  struct Opened {
    FileDescriptor memory;
    FileDescriptor wake;
    uint32_t bytes;
  };
  // Opens a pair for the session, and ends the one that it had. `context` is that of the session's
  // owner. `wanted_bytes`: of each ring; 0 means the default. Errors: TOO_MANY_CALLS (the tenant
  // has its share of the pairs); RESOURCE_EXHAUSTED without a reason (it has its share of the
  // memory, or the system gives no more).
  absl::StatusOr<Opened> Open(const BatchRun::Context& context, SessionRef session,
                              uint32_t wanted_bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends each pair for which `check` returns an error. It is the reason. Does not wait for the
  // batches that run.
  void EndIf(const std::function<absl::Status(SessionRef)>& check) ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets pairs that have ended, and ends pollers without a pair. Call it periodically.
  void Sweep() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends every pair with `reason`, and the waits of their batches. Returns when no batch runs any
  // more. Afterwards no pair can be opened.
  void Stop(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // Open pairs.
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the session has an open pair.
  bool Has(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using PairPtr = std::shared_ptr<RingPair>;
  std::vector<PairPtr> All() const ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the tenant can have that much more memory.
  bool HasRoom(TenantId tenant, uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<RingPoller*> PollerOf(SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Limits limits_;
  const size_t num_tenants_;
  const CacheDirectory* const caches_;
  RpcMetrics* const metrics_;
  StreamSlots slots_;
  mutable absl::Mutex mutex_;  // Locked before a pair's mutex.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::btree_map<SessionId, PairPtr> pairs_ ABSL_GUARDED_BY(mutex_);
  // Pairs that others replaced, until they have ended.
  std::vector<PairPtr> replaced_ ABSL_GUARDED_BY(mutex_);
  // By the cache's number.
  absl::btree_map<uint32_t, std::unique_ptr<RingPoller>> pollers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RING_RING_HUB_H_
