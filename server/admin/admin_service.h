#ifndef PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_
#define PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_

#include <atomic>

#include "absl/status/status.h"
#include "grpcpp/support/server_callback.h"
#include "pagoda/v1/admin.pb.h"
#include "server/admin/daemon_parts.h"
#include "server/callers/identity.h"
#include "server/calls/checked_service.h"
#include "server/directory/cache_directory.h"

namespace pagoda::server {

// pagoda.v1.AdminService. The daemon serves it while it drains, too. Thread-safe.
class AdminService final : public CheckedService {
 public:
  explicit AdminService(const DaemonParts& parts);
  ~AdminService() override;

  absl::Status GetStatus(const Identity& caller, const v1::GetStatusRequest& request,
                         v1::GetStatusResponse* response);
  absl::Status ResetPrefixCache(const Identity& caller, const v1::ResetPrefixCacheRequest& request,
                                v1::ResetPrefixCacheResponse* response);
  absl::Status Drain(const Identity& caller, const v1::DrainRequest& request,
                     v1::DrainResponse* response);

  // --- Other capacities (admin_advice.cc) ---
  absl::Status GetHitRateCurve(const Identity& caller, const v1::GetHitRateCurveRequest& request,
                               v1::GetHitRateCurveResponse* response);

  // --- Caches (admin_caches.cc) ---
  // A tenant sees its own caches and the caches without a tenant.
  absl::Status ListCaches(const Identity& caller, const v1::ListCachesRequest& request,
                          v1::ListCachesResponse* response);
  void DropCache(grpc::ServerUnaryReactor* call, const Identity& caller,
                 const v1::DropCacheRequest& request, v1::DropCacheResponse* response);

  // --- Lists (admin_lists.cc) ---
  absl::Status ListSessions(const Identity& caller, const v1::ListSessionsRequest& request,
                            v1::ListSessionsResponse* response);
  absl::Status ListSequences(const Identity& caller, const v1::ListSequencesRequest& request,
                             v1::ListSequencesResponse* response);
  // A tenant sees itself alone.
  absl::Status ListTenants(const Identity& caller, const v1::ListTenantsRequest& request,
                           v1::ListTenantsResponse* response);
  absl::Status InspectPrefix(const Identity& caller, const v1::InspectPrefixRequest& request,
                             v1::InspectPrefixResponse* response);

  // --- Ending sessions, and quarantines (admin_sessions.cc) ---
  absl::Status EndSession(const Identity& caller, const v1::EndSessionRequest& request,
                          v1::EndSessionResponse* response);
  absl::Status ListQuarantines(const Identity& caller, const v1::ListQuarantinesRequest& request,
                               v1::ListQuarantinesResponse* response);
  absl::Status ReleaseQuarantine(const Identity& caller,
                                 const v1::ReleaseQuarantineRequest& request,
                                 v1::ReleaseQuarantineResponse* response);

 private:
  const DaemonParts parts_;
  std::atomic<bool> drain_requested_ = false;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_ADMIN_SERVICE_H_
