// One batch of operations, from the wire and back, without holding up a thread while it waits for
// copies.
#ifndef PAGODA_SERVER_RPC_BATCH_RUN_H_
#define PAGODA_SERVER_RPC_BATCH_RUN_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "events/tenant_id.h"
#include "grpcpp/alarm.h"
#include "manager/operation.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/cache.pb.h"
#include "server/callers/tenant_queues.h"
#include "server/metrics/rpc_metrics.h"
#include "server/rpc/answer_memory.h"
#include "server/rpc/stream_set.h"
#include "server/serving_state.h"

namespace pagoda::server {

// Runs the operations that can be, in order; one that asks for nothing, or for what is not served
// or out of bounds, has its error in its own result and the others run. Without a wait the batch
// runs on the caller's thread. At a WaitForTicket whose copies are not done it is put down, and
// goes on from there on a thread of gRPC's when they are done, or when the wait is over otherwise.
// The copies of a wait are those of its lane.
//
// Thread-safe. Shared by its call, by what wakes it up, and by whoever walks over the set of those
// that wait.
class BatchRun : public std::enable_shared_from_this<BatchRun> {
 public:
  // The batches that wait.
  using Set = StreamSet<BatchRun>;

  // Where batches run; all outlive them, but for the manager, which `cache` keeps.
  struct Context {
    SharedManager* manager = nullptr;
    std::shared_ptr<const void> cache;  // Keeps the manager while a batch runs.
    const ServingState* state = nullptr;
    Set* waiting = nullptr;
    AnswerMemory* answers = nullptr;
    TenantQueues* tenant_queues = nullptr;  // None: there are no tenants.
    TenantId tenant = kDefaultTenant;       // Whose the batches are.

    size_t max_message_bytes = 0;
    RpcMetrics* metrics = nullptr;  // None: nobody counts.

    // The same for batches of a cache that is found only when the batch is read.
    Context Of(SharedManager* its_manager, std::shared_ptr<const void> its_cache) const {
      Context context = *this;
      context.manager = its_manager;
      context.cache = std::move(its_cache);
      return context;
    }
    // Errors: MESSAGE_TOO_LARGE.
    absl::Status CheckSize(size_t request_bytes) const {
      if (request_bytes <= max_message_bytes) return absl::OkStatus();
      return MakeError(Reason::kMessageTooLarge,
                       absl::StrCat("a message of ", request_bytes, " bytes; at most ",
                                    max_message_bytes, " are allowed"));
    }
    // Errors: TOO_MANY_CALLS.
    absl::Status CheckCapacity() const {
      return tenant == kDefaultTenant ? absl::OkStatus() : tenant_queues->CheckCapacity(tenant);
    }
    // Calls `work`, now or later, in the tenant's turn. `bytes`: of memory that it keeps till then.
    template <class Work>
    void InTurn(size_t bytes, Work work) const {
      tenant == kDefaultTenant ? work() : tenant_queues->Run(tenant, bytes, std::move(work));
    }
  };

  // Called once, with the outcome of the batch as a whole. Errors: UNKNOWN_SESSION, STALE_SESSION,
  // BATCH_TOO_LARGE, STEP_BACKWARDS; nothing has run then. Such an error behind a wait is that of
  // each operation that is left, and the batch as a whole is OK: what ran keeps its results.
  using Done = std::function<void(const absl::Status&)>;

  // `out` is written from Start until `done` is called. REQUIRES: made as a shared_ptr.
  BatchRun(const Context& context, SessionRef session, v1::BatchResult* out, Done done)
      : context_(context), session_(session), out_(out), done_(std::move(done)) {}

  // Begins to run; once, in the tenant's turn. `done` may be called before this returns. `batch` is
  // not read after either of them.
  void Start(const v1::Batch& batch);

  // Ends the wait that is going on, if any, and those that would follow: their operations fail with
  // `error`.
  void EndWaits(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_);
  SessionId session() const { return session_.id; }

 private:
  // Whether the batch was run before, under its retry_id: then it is answered by that, now or
  // later.
  absl::StatusOr<bool> RanBefore(const v1::Batch& batch);
  // Decodes the operations, and answers those that cannot run.
  absl::Status Read(const v1::Batch& batch);
  // Runs what is left, up to the next wait or to the end.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish(const absl::Status& status);
  // Takes the results of a part.
  void Take(const BatchResult& part);
  // Answers every operation that is left with the error.
  void Refuse(const absl::Status& error);
  // Puts the batch down until WakeUp; the session's lease does not run meanwhile. False where there
  // is nothing to wait for any more.
  bool PutDown(const WaitForTicket& wait) ABSL_LOCKS_EXCLUDED(mutex_);
  void WakeUp() ABSL_LOCKS_EXCLUDED(mutex_);
  // The batch is no longer down.
  void TakeUp();
  // The copies that the wait at `operation` is for are done.
  void CopiesDone(size_t operation) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why a wait is over although its copies are not done.
  absl::Status WaitError() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Context context_;
  const absl::Time begun_ = absl::Now();
  const SessionRef session_;
  v1::BatchResult* const out_;
  // Touched by one thread at a time: the caller's, then those that wake the batch up; not while the
  // batch is down.
  Done done_;  // Until it is called: it may own whoever holds this.
  std::vector<Operation> operations_;
  std::vector<v1::OperationResult*> results_;  // Where each of them answers.
  StepRange steps_;
  uint64_t retry_id_ = 0;  // While others may wait for this batch's answer.
  size_t next_ = 0;        // The first operation that is not answered.
  size_t waited_ = 0;      // A wait before this operation has had its time; 0: in the first part.
  size_t handles_ = 0;     // Block handles in the results.
  absl::Time deadline_ = absl::InfiniteFuture();  // Of all waits; from the first one on.

  mutable absl::Mutex mutex_;  // Nothing is called under it but the alarm.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // Of EndWaits.
  size_t copies_done_ ABSL_GUARDED_BY(mutex_) =
      0;  // Those that waits before this operation are for.
  // While the batch is down: rings at the deadline, or is cancelled when the wait is over before.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_BATCH_RUN_H_
