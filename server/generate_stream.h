// One call of EngineService.Generate: tokens out, as they come.
#ifndef PAGODA_SERVER_GENERATE_STREAM_H_
#define PAGODA_SERVER_GENERATE_STREAM_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "grpcpp/support/server_callback.h"
#include "pagoda/v1/engine.pb.h"
#include "server/work_queue.h"

namespace pagoda::server {

// The engine runs on the work queue's thread and hands each token over here; what comes while a
// write is outstanding goes into the next message. The tokens of one request are bounded by the
// model, so they need no further limit. Thread-safe; shared by its call and its job in the queue.
class GenerateStream final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  // Queues the request, whose prompt is in `name_space`; both pointers outlive the call. A request
  // that the engine would refuse, or a full queue (QUEUE_FULL), ends the call.
  static GenerateStream* Start(Engine* engine, WorkQueue* queue, const v1::GenerateRequest& request,
                               NamespaceKey name_space);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  GenerateStream() = default;

  // The job. Runs on the queue's thread.
  void Run(Engine& engine, const GenerateRequest& request, absl::Time queued)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Asked by the engine before the request's first token.
  bool Cancelled() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether anybody still wants tokens.
  bool Add(TokenId token) ABSL_LOCKS_EXCLUDED(mutex_);
  // No token comes after this.
  void End(const absl::StatusOr<GenerateReport>& report) ABSL_LOCKS_EXCLUDED(mutex_);
  // If no write is outstanding: starts one with what there is, or finishes the call.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);

  std::shared_ptr<GenerateStream> self_;  // The call's share; given up in OnDone.

  absl::Mutex mutex_;  // Taken before gRPC's own locks.
  v1::GenerateResponse pending_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateResponse response_ ABSL_GUARDED_BY(mutex_);  // gRPC's while writing_.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);            // What the call ends with.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // End has been called.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish has been called.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_GENERATE_STREAM_H_
