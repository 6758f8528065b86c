// One call of CacheService.Execute: a batch in, its results out.
#ifndef PAGODA_SERVER_BATCH_EXECUTE_CALL_H_
#define PAGODA_SERVER_BATCH_EXECUTE_CALL_H_

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/arena.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "pagoda/v1/cache.pb.h"
#include "server/batch/batch_run.h"
#include "server/batch/session_owners.h"
#include "server/callers/identity.h"
#include "server/callers/untaken_answers.h"
#include "server/calls/rpc_metrics.h"
#include "server/directory/cache_directory.h"
#include "wire/bytes/message_bytes.h"

namespace pagoda::server {

// The call is parsed, run and answered when its tenant's queue runs it. A call that waits for its
// turn, or for the client to read the answer, holds only bytes. The call, its queued work and its
// batch share ownership. Thread-safe.
class ExecuteCall : public std::enable_shared_from_this<ExecuteCall> {
 public:
  // Begins the call and returns the reactor that ends it. `context` lacks the manager: it comes
  // from the session's cache in `caches`. `caches`, `owners` and everything in `context` must
  // outlive the call.
  static grpc::ServerUnaryReactor* Start(const BatchRun::Context& context,
                                         const CacheDirectory* caches, SessionOwners* owners,
                                         const Identity& caller, UntakenAnswers::Call untaken,
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* answer,
                                         RpcMetrics::Call counted);

 private:
  class Reactor;

  ExecuteCall(const BatchRun::Context& context, const CacheDirectory* caches, SessionOwners* owners,
              const Identity& caller, const grpc::ByteBuffer* request, grpc::ByteBuffer* answer)
      : context_(context),
        caches_(caches),
        owners_(owners),
        caller_(caller),
        request_bytes_(request),
        answer_bytes_(answer) {}

  // Parses the request, and runs its batch now or later. The tenant's queue calls it.
  void Run();
  void RunBatch(const CachePtr& cache) ABSL_LOCKS_EXCLUDED(mutex_);
  // Parses the request and returns the cache that the batch is for.
  absl::StatusOr<CachePtr> Read();
  // Called when the batch is answered, or refused as a whole. The caller must not use this object
  // afterwards: the call can be over.
  void OnBatchDone(const absl::StatusOr<BatchAnswer>& outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  // Called when the handler ends. Returns the call's outcome, or a reactor that waits for it.
  std::variant<absl::Status, Reactor*> OnHandlerDone(RpcMetrics::Call& counted,
                                                     UntakenAnswers::Call& untaken)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Called when the client has disconnected.
  void OnCancel() ABSL_LOCKS_EXCLUDED(mutex_);

  const BatchRun::Context context_;
  const CacheDirectory* const caches_;
  SessionOwners* const owners_;
  const Identity caller_;
  // gRPC owns these. They are valid until the call is answered.
  const grpc::ByteBuffer* const request_bytes_;
  grpc::ByteBuffer* const answer_bytes_;

  // Used by the tenant's turn and by the batch.
  google::protobuf::Arena memory_{MessageArenaOptions()};  // Empty once the batch is answered.
  v1::ExecuteRequest* request_ = nullptr;

  // Synchronises the end of the batch with the end of the handler. The later of them answers the
  // call.
  absl::Mutex mutex_;
  std::optional<absl::Status> outcome_ ABSL_GUARDED_BY(mutex_);
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<BatchRun> batch_ ABSL_GUARDED_BY(mutex_);  // Until it is answered.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BATCH_EXECUTE_CALL_H_
