// Runs one batch of operations, from wire message to wire message. Occupies no thread while it
// waits for copies.
#ifndef PAGODA_SERVER_BATCH_BATCH_RUN_H_
#define PAGODA_SERVER_BATCH_BATCH_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "events/tenant_id.h"
#include "grpcpp/alarm.h"
#include "manager/api/operation.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/cache.pb.h"
#include "server/batch/answer_memory.h"
#include "server/callers/tenant_queues.h"
#include "server/calls/rpc_metrics.h"
#include "server/calls/stream_set.h"
#include "server/supervision/serving_state.h"
#include "wire/answer_writer.h"
#include "wire/bytes/batch_bytes.h"

namespace pagoda::server {

// The error of a batch whose client no longer waits for the answer.
inline absl::Status ClientGone() { return absl::CancelledError("the client has disconnected"); }

// Operations from which on a tenant's batch is long. 64 take about as long as a thread takes to
// begin. A decode step in packed arrays is one operation.
inline constexpr int kLongBatch = 64;

// Runs the operations in order. An operation that is empty, not supported or out of bounds gets its
// error in its own result; the others still run. Without a wait the batch runs on the caller's
// thread. At a WaitForTicket whose copies are not done, the batch is suspended. It continues on a
// gRPC thread when the copies are done or the wait ends for another reason. A wait concerns the
// copies of its lane.
//
// Thread-safe. Its call, the callbacks that wake it, and iterations over the set of waiting batches
// share ownership.
class BatchRun : public std::enable_shared_from_this<BatchRun> {
 public:
  // The batches that are waiting.
  using Set = StreamSet<BatchRun>;

  // What batches run with. Everything here must outlive them, except the manager, which `cache`
  // keeps alive.
  struct Context {
    SharedManager* manager = nullptr;
    std::shared_ptr<const void> cache;  // Keeps the manager alive while a batch runs.
    const ServingState* state = nullptr;
    Set* waiting = nullptr;
    AnswerMemory* answers = nullptr;
    TenantQueues* tenant_queues = nullptr;  // Null: there are no tenants.
    TenantId tenant = kDefaultTenant;       // The tenant of the batches.

    size_t max_message_bytes = 0;
    RpcMetrics* metrics = nullptr;  // Null: batches are not counted.

    // A copy for batches whose cache is found only when the batch is read.
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
                       absl::StrCat("the message has ", request_bytes, " bytes; at most ",
                                    max_message_bytes, " are allowed"));
    }
    // Errors: TOO_MANY_CALLS.
    absl::Status CheckCapacity() const {
      return tenant == kDefaultTenant ? absl::OkStatus() : tenant_queues->CheckCapacity(tenant);
    }
    // Calls `work`, now or later, through the tenant's queue. `bytes`: of the message that `work`
    // reads; it keeps them until then. A tenant's large message is not read on the caller's thread:
    // that is one of gRPC's few, and calls of others would wait for it.
    template <class Work>
    void InTurn(size_t bytes, Work work) const {
      if (tenant == kDefaultTenant) {
        work();
      } else if (bytes > kLargeRequestBytes) {
        tenant_queues->RunLater(tenant, bytes, std::move(work));
      } else {
        tenant_queues->Run(tenant, bytes, std::move(work));
      }
    }
    // Goes on with a batch that has waited, through the tenant's queue: here, or on a thread of the
    // queues if many operations are left.
    template <class Work>
    void RunOn(size_t num_operations, Work work) const {
      if (tenant == kDefaultTenant) {
        work();
      } else if (num_operations >= kLongBatch) {
        tenant_queues->RunLater(tenant, 0, std::move(work));
      } else {
        tenant_queues->Run(tenant, 0, std::move(work));
      }
    }
    // Runs a batch of a message that was read in the tenant's turn: at once, or if the batch is
    // long on a thread of the tenants' queues. There are only a few of gRPC's threads, and calls of
    // other tenants would wait for them. `bytes`: of the message. `work` runs the batch.
    template <class Work>
    void RunRead(int num_operations, size_t bytes, Work work) const {
      // A message that waits again is in memory as objects. On a thread of the queues it does not
      // wait, so a tenant has at most one such message.
      if (tenant == kDefaultTenant || num_operations < kLongBatch || TenantQueues::OnItsThread()) {
        return work();
      }
      tenant_queues->RunLater(tenant, bytes, std::move(work));
    }
  };

  // Called once, with the outcome of the batch as a whole. Errors: UNKNOWN_SESSION, STALE_SESSION,
  // BATCH_TOO_LARGE, STEP_BACKWARDS; then no operation has run. If such an error occurs after a
  // wait, each remaining operation gets it, and the batch as a whole is OK: operations that ran
  // keep their results.
  using Done = std::function<void(const absl::StatusOr<BatchAnswer>&)>;

  // REQUIRES: a shared_ptr owns this object.
  BatchRun(const Context& context, SessionRef session, Done done)
      : context_(context), session_(session), done_(std::move(done)) {}

  // Begins to run. Call it once, when the tenant's queue gives the turn. `done` can be called
  // before this returns. `batch` is not used after this returns or `done` is called.
  // `fingerprint`: its BatchFingerprint, if it has a retry_id. `on_read` is called when `batch` is
  // not used any more and the batch has not run yet: a batch that waits holds no message.
  void Start(const v1::Batch& batch, uint64_t fingerprint, absl::FunctionRef<void()> on_read);

  // Ends the current wait, if any, and every later one. Their operations fail with `error`.
  void EndWaits(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_);
  SessionId session() const { return session_.id; }

 private:
  // Whether the batch already ran under its retry_id. If so, it gets that run's answer, now or
  // later.
  bool RanBefore(uint64_t retry_id, uint64_t fingerprint);
  // Decodes the operations, and answers those that cannot run.
  absl::Status Read(const v1::Batch& batch);
  // Where the part that begins at next_ ends: behind the last operation. If the batch has waited,
  // behind the next WaitForTicket: the contents behind many waits are not checked at each of them.
  size_t EndOfPart() const;
  // Runs the remaining operations, up to the next wait or to the end.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // Remembers the answer for a retry, and answers with it; or with the error.
  void Finish(const absl::Status& status);
  absl::StatusOr<BatchAnswer> EndAnswer();
  void Answer(const absl::StatusOr<BatchAnswer>& outcome);
  // Writes the results of a part.
  void Take(BatchResult part);
  // Writes the next operation's result, behind those of the refused operations before it.
  void Add(const absl::StatusOr<OperationResult>& result);
  // Writes the errors of the refused operations before this place in the batch.
  void AddRefused(size_t before);
  // Answers every remaining operation with the error.
  void Refuse(const absl::Status& error);
  // Suspends the batch until WakeUp. Meanwhile the session's lease does not run. False if there is
  // nothing to wait for any more.
  bool Suspend(const WaitForTicket& wait) ABSL_LOCKS_EXCLUDED(mutex_);
  void WakeUp() ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes the batch from the waiting ones.
  void Resume();
  // Called when the copies for the wait at `operation` are done.
  void CopiesDone(size_t operation) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether EndWaits was called.
  bool HasEnded() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Why a wait ended although its copies are not done.
  absl::Status WaitError() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Context context_;
  const absl::Time begun_ = absl::Now();
  const SessionRef session_;
  // Used by one thread at a time: the caller's, then each thread that wakes the batch. No thread
  // uses them while the batch is suspended.
  Done done_;  // Reset before it is called, because it can own the owner of this object.
  std::vector<Operation> operations_;
  std::vector<size_t> places_;  // The place of each operation in the batch.
  // The operations that are not among operations_, because they cannot run.
  struct Refused {
    size_t place;
    absl::Status error;
  };
  std::vector<Refused> refused_;
  size_t next_refused_ = 0;  // The first one that is not in the answer.
  AnswerWriter answer_;
  BatchResult state_;  // The state after the last part, without its results.
  StepRange steps_;
  uint64_t retry_id_ = 0;  // Nonzero while other batches can wait for this batch's answer.
  size_t next_ = 0;        // The first operation without an answer.
  size_t waited_ = 0;   // The waits at operations before this index are over; 0 in the first part.
  size_t handles_ = 0;  // Block handles in the results.
  absl::Time deadline_ = absl::InfiniteFuture();  // For all waits together; set at the first.

  mutable absl::Mutex mutex_;                                // Only the alarm is called under it.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // Set by EndWaits.
  size_t copies_done_ ABSL_GUARDED_BY(mutex_) =
      0;  // The copies of the waits before this operation are done.
  // While the batch is suspended. Fires at the deadline; cancelled if the wait ends earlier.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BATCH_BATCH_RUN_H_
