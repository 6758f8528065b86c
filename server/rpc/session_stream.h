// One call of CacheService.Session: batches in, results out.
#ifndef PAGODA_SERVER_RPC_SESSION_STREAM_H_
#define PAGODA_SERVER_RPC_SESSION_STREAM_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/arena.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "pagoda/v1/cache.pb.h"
#include "server/cache/cache_directory.h"
#include "server/callers/identity.h"
#include "server/metrics/rpc_metrics.h"
#include "server/rpc/batch_run.h"
#include "server/rpc/session_owners.h"
#include "server/rpc/stream_set.h"
#include "server/rpc/stream_slots.h"
#include "wire/message_bytes.h"

namespace pagoda::server {

// Reads a batch, runs it, writes its result, and reads the next. Only one read or one write is
// outstanding, so the stream does not read further batches from a client that does not read its
// results. Attached to its session from the first message to the end of the call. Thread-safe. It
// is alive as long as its call or another owner.
class SessionStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Set = StreamSet<SessionStream>;

  // Begins to read the messages of `caller`. The stream is in `streams` until its call is over.
  // `streams`, `caches`, `owners` and everything in `context` must outlive it. `context` lacks the
  // manager: each batch finds the manager of its session's cache, so that an idle stream does not
  // keep a cache alive.
  static SessionStream* Start(const BatchRun::Context& context, const CacheDirectory* caches,
                              SessionOwners* owners, const Identity& caller,
                              RpcMetrics::Call counted, StreamSlots::Slot slot, Set* streams);

  // Ends the call with `reason` as soon as the current batch is answered: DRAINING, or
  // UNAUTHENTICATED if the caller's token was revoked.
  void EndSoon(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  const Identity& caller() const { return caller_; }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override;

 private:
  enum class Step { kReading, kRunning, kWriting, kFinished };

  SessionStream(const BatchRun::Context& context, const CacheDirectory* caches,
                SessionOwners* owners, const Identity& caller, RpcMetrics::Call counted,
                StreamSlots::Slot slot, Set* streams)
      : context_(context),
        caches_(caches),
        owners_(owners),
        caller_(caller),
        counted_(std::move(counted)),
        slot_(std::move(slot)),
        streams_(streams) {}

  void ReadNext();
  // Parses and runs the message that was read. The tenant's queue calls it.
  void Run();
  // The cache that the batch is for. Errors: everything wrong with the message except its
  // operations.
  absl::StatusOr<CachePtr> ReadRequest();
  void StartBatch(const CachePtr& cache) ABSL_LOCKS_EXCLUDED(mutex_);
  // Called when the batch is answered or refused as a whole, not always from a gRPC reaction.
  void OnBatchDone(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Attaches the stream to its session, at the first message. Later messages are only checked.
  absl::StatusOr<CachePtr> Attach();
  // Finishes the call. REQUIRES: the call is not finished yet, and the step is not kReading.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Call this when the step is kFinished. This object must not be used afterwards.
  void FinishCall(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  const BatchRun::Context context_;
  const CacheDirectory* const caches_;
  SessionOwners* const owners_;
  const Identity caller_;
  std::optional<RpcMetrics::Call> counted_;  // Until the call is over.
  std::optional<StreamSlots::Slot> slot_;    // Until the call is over.
  Set* const streams_;
  std::shared_ptr<SessionStream>
      self_;  // The call's ownership; given up in OnDone. Batches hold their own references.

  // Used by one reaction at a time. The arena holds the current batch. It is emptied when the batch
  // is answered: a client that does not read its results keeps only their bytes here.
  google::protobuf::Arena memory_{MessageArenaOptions()};
  v1::SessionRequest* request_ = nullptr;    // In memory_, until the batch is answered.
  v1::SessionResponse* response_ = nullptr;  // In memory_, until the batch is answered.
  grpc::ByteBuffer request_bytes_;
  grpc::ByteBuffer response_bytes_;
  std::optional<SessionRef> session_;  // The attached session.

  absl::Mutex mutex_;  // Locked before gRPC's own locks.
  Step step_ ABSL_GUARDED_BY(mutex_) = Step::kReading;
  absl::Status ending_ ABSL_GUARDED_BY(mutex_);  // OK: the stream continues.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<BatchRun> batch_ ABSL_GUARDED_BY(mutex_);  // Until it is answered.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_SESSION_STREAM_H_
