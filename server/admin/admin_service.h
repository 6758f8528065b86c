#ifndef PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_
#define PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_

#include <atomic>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/server_callback.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "server/admin/daemon_parts.h"
#include "server/cache/cache_directory.h"
#include "server/callers/admission.h"

namespace pagoda::server {

// pagoda.v1.AdminService. The daemon serves it while it drains, too. Thread-safe.
class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(const DaemonParts& parts);
  ~AdminService() override;

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ResetPrefixCache(grpc::CallbackServerContext* context,
                                             const v1::ResetPrefixCacheRequest* request,
                                             v1::ResetPrefixCacheResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

  // --- Other capacities (admin_advice.cc) ---
  grpc::ServerUnaryReactor* GetHitRateCurve(grpc::CallbackServerContext* context,
                                            const v1::GetHitRateCurveRequest* request,
                                            v1::GetHitRateCurveResponse* response) override;

  // --- Caches (admin_caches.cc) ---
  // A tenant sees its own caches and the caches without a tenant.
  grpc::ServerUnaryReactor* ListCaches(grpc::CallbackServerContext* context,
                                       const v1::ListCachesRequest* request,
                                       v1::ListCachesResponse* response) override;
  grpc::ServerUnaryReactor* DropCache(grpc::CallbackServerContext* context,
                                      const v1::DropCacheRequest* request,
                                      v1::DropCacheResponse* response) override;

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

  // --- Ending sessions, and quarantines (admin_sessions.cc) ---
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
  // The caller, if it may call the method and every field of the request is served. Errors: those
  // of Admission::Admit, FIELD_NOT_SERVED.
  absl::StatusOr<Identity> CheckCall(const grpc::CallbackServerContext& context,
                                     const Method& method,
                                     const google::protobuf::Message& request) const;
  // The cache that a request names. Errors: those of CheckCall and CacheDirectory::Named.
  template <class Request>
  absl::StatusOr<CachePtr> CheckCacheCall(const grpc::CallbackServerContext& context,
                                          const Method& method, const Request& request) const {
    const absl::StatusOr<Identity> caller = CheckCall(context, method, request);
    if (!caller.ok()) return caller.status();
    return parts_.caches->Named(request.cache(), *caller);
  }

  const DaemonParts parts_;
  std::atomic<bool> drain_requested_ = false;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_
