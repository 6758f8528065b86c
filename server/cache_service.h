#ifndef PAGODA_SERVER_CACHE_SERVICE_H_
#define PAGODA_SERVER_CACHE_SERVICE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "server/batch_run.h"
#include "server/rpc_metrics.h"
#include "server/serving_state.h"
#include "server/session_stream.h"

namespace pagoda::server {

// pagoda.v1.CacheService: sessions and their batches. Thread-safe. While the daemon drains, only
// KeepAlive and CloseSession are served.
class CacheService final : public v1::CacheService::CallbackService {
 public:
  struct Options {
    absl::Duration default_lease;
    absl::Duration max_lease;
  };

  // All of them outlive the service.
  CacheService(Options options, SharedManager* manager, const ServingState* state,
               RpcMetrics* metrics)
      : options_(options), manager_(manager), state_(state), metrics_(metrics) {}

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* request,
                                        v1::OpenSessionResponse* response) override;
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionResponse* response) override;
  grpc::ServerUnaryReactor* KeepAlive(grpc::CallbackServerContext* context,
                                      const v1::KeepAliveRequest* request,
                                      v1::KeepAliveResponse* response) override;
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const v1::ExecuteRequest* request,
                                    v1::ExecuteResponse* response) override;
  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override;

  // Forgets what sessions were answered that are no more.
  void SweepAnswers();
  // Ends every open Session stream, and every batch's wait. Call it when the state is draining.
  void EndStreamsForDrain();

 private:
  absl::Status DoOpenSession(const v1::OpenSessionRequest& request,
                             v1::OpenSessionResponse* response);
  BatchRun::Context batch_context() {
    return {.manager = manager_, .state = state_, .waiting = &waiting_, .answers = &answers_};
  }
  absl::StatusOr<absl::Duration> LeaseFromProto(uint64_t lease_ms) const;

  const Options options_;
  SharedManager* const manager_;
  const ServingState* const state_;
  RpcMetrics* const metrics_;
  SessionStream::Set streams_;
  BatchRun::Set waiting_;
  AnswerMemory answers_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_SERVICE_H_
