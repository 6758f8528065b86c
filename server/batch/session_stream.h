// One call of CacheService.Session: batches in, results out.
#ifndef PAGODA_SERVER_BATCH_SESSION_STREAM_H_
#define PAGODA_SERVER_BATCH_SESSION_STREAM_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/batch/batch_run.h"
#include "server/batch/session_batches.h"
#include "server/batch/session_owners.h"
#include "server/callers/identity.h"
#include "server/callers/stream_slots.h"
#include "server/callers/untaken_answers.h"
#include "server/calls/rpc_metrics.h"
#include "server/calls/stream_set.h"
#include "server/directory/cache_directory.h"

namespace pagoda::server {

// Reads a batch, runs it, writes its result, and reads the next. Only one read or one write is
// outstanding, so the stream does not read further batches from a client that does not read its
// results. Attached to its session from the first message to the end of the call. Thread-safe. It
// is alive as long as its call or another owner.
class SessionStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Set = StreamSet<SessionStream>;

  // Begins to read the messages of `caller`. The stream is in `streams` until its call is over.
  // `streams` must outlive it; for the other pointers see SessionBatches.
  static SessionStream* Start(const BatchRun::Context& context, const CacheDirectory* caches,
                              SessionOwners* owners, const Identity& caller,
                              RpcMetrics::Call counted, UntakenAnswers::Call untaken,
                              StreamSlots::Slot slot, Set* streams);

  // Ends the call with `reason` as soon as the current batch is answered: DRAINING, or
  // UNAUTHENTICATED if the caller's token was revoked.
  void EndSoon(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  const Identity& caller() const { return caller_; }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { batches_.Cancel(); }
  void OnDone() override;

 private:
  enum class Step { kReading, kRunning, kWriting, kFinished };

  SessionStream(const BatchRun::Context& context, const CacheDirectory* caches,
                SessionOwners* owners, const Identity& caller, RpcMetrics::Call counted,
                UntakenAnswers::Call untaken, StreamSlots::Slot slot, Set* streams)
      : context_(context),
        caller_(caller),
        counted_(std::move(counted)),
        untaken_(std::move(untaken)),
        slot_(std::move(slot)),
        streams_(streams),
        batches_(context, caches, owners, caller) {}

  void ReadNext();
  // Parses the message that was read, and runs its batch now or later. The tenant's queue calls it.
  void Run();
  // Called when the batch is answered or refused as a whole, not always from a gRPC reaction.
  void OnBatchDone(const absl::StatusOr<BatchAnswer>& outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  // Finishes the call. REQUIRES: the call is not finished yet, and the step is not kReading.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Call this when the step is kFinished. This object must not be used afterwards.
  void FinishCall(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  const BatchRun::Context context_;
  const Identity caller_;
  std::optional<RpcMetrics::Call> counted_;      // Until the call is over.
  std::optional<UntakenAnswers::Call> untaken_;  // Until the call is over.
  std::optional<StreamSlots::Slot> slot_;        // Until the call is over.
  Set* const streams_;
  std::shared_ptr<SessionStream>
      self_;  // The call's ownership; given up in OnDone. Batches hold their own references.

  // Used by one reaction at a time. A batch is freed when it is answered: a client that does not
  // read its results keeps only their bytes here.
  SessionBatches batches_;
  grpc::ByteBuffer request_bytes_;
  grpc::ByteBuffer response_bytes_;

  absl::Mutex mutex_;  // Locked before gRPC's own locks.
  Step step_ ABSL_GUARDED_BY(mutex_) = Step::kReading;
  absl::Status ending_ ABSL_GUARDED_BY(mutex_);  // OK: the stream continues.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BATCH_SESSION_STREAM_H_
