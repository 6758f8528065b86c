#ifndef PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_
#define PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_

#include <atomic>
#include <functional>

#include "absl/time/time.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/transfers.h"
#include "server/bridges/bridges.h"
#include "server/callers/admission.h"
#include "server/generate/engine_service.h"
#include "server/memory/writer_processes.h"
#include "server/serving_state.h"
#include "server/watch/event_service.h"

namespace pagoda::server {

// The parts of a running daemon that tell how it does. All outlive whoever holds this.
struct DaemonParts {
  SharedManager* manager = nullptr;
  const Transfers* transfers = nullptr;
  const CacheLayout* layout = nullptr;
  const PoolSet* pools = nullptr;
  const EventService* events = nullptr;
  const Bridges* bridges = nullptr;
  const EngineService* engine = nullptr;
  const ServingState* state = nullptr;
  const Admission* admission = nullptr;
  const WriterProcesses* writers = nullptr;
  absl::Time start_time;
  // Begins the end of the process, and returns at once. None: nobody offers it.
  std::function<void()> request_drain;
};

// pagoda.v1.AdminService, served while the daemon drains too. Thread-safe.
class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(const DaemonParts& parts) : parts_(parts) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ResetPrefixCache(grpc::CallbackServerContext* context,
                                             const v1::ResetPrefixCacheRequest* request,
                                             v1::ResetPrefixCacheResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

  // --- Lists (admin_lists.cc) ---
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* ListSequences(grpc::CallbackServerContext* context,
                                          const v1::ListSequencesRequest* request,
                                          v1::ListSequencesResponse* response) override;
  // A tenant sees itself alone.
  grpc::ServerUnaryReactor* ListTenants(grpc::CallbackServerContext* context,
                                        const v1::ListTenantsRequest* request,
                                        v1::ListTenantsResponse* response) override;
  grpc::ServerUnaryReactor* InspectPrefix(grpc::CallbackServerContext* context,
                                          const v1::InspectPrefixRequest* request,
                                          v1::InspectPrefixResponse* response) override;

  // --- Sessions that are to end, or have (admin_sessions.cc) ---
  grpc::ServerUnaryReactor* EndSession(grpc::CallbackServerContext* context,
                                       const v1::EndSessionRequest* request,
                                       v1::EndSessionResponse* response) override;
  grpc::ServerUnaryReactor* ListQuarantines(grpc::CallbackServerContext* context,
                                            const v1::ListQuarantinesRequest* request,
                                            v1::ListQuarantinesResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseQuarantine(grpc::CallbackServerContext* context,
                                              const v1::ReleaseQuarantineRequest* request,
                                              v1::ReleaseQuarantineResponse* response) override;

 private:
  // Who calls, where he may and what he asks for is served. Errors: those of Admission::Admit,
  // FIELD_NOT_SERVED.
  absl::StatusOr<Identity> CheckCall(const grpc::CallbackServerContext& context,
                                     const Method& method,
                                     const google::protobuf::Message& request) const;

  const DaemonParts parts_;
  std::atomic<bool> drain_requested_ = false;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_
