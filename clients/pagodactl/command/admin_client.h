// A client of AdminService for the commands, and the names of tiers in its messages.
#ifndef PAGODA_CLIENTS_PAGODACTL_COMMAND_ADMIN_CLIENT_H_
#define PAGODA_CLIENTS_PAGODACTL_COMMAND_ADMIN_CLIENT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "clients/command_line/command.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "wire/errors.h"

namespace pagoda {

// The daemon's name for a tier. If the daemon gives none, the default name, such as "primary".
std::string TierText(v1::Tier tier, const std::string& name);
std::string TierText(v1::Tier tier, const v1::CacheInfo& cache);
std::string TierText(const v1::TierStatus& tier);

// One connection. Each call has its own deadline. Thread-compatible.
class AdminClient {
 public:
  // Errors: UNAVAILABLE, without a reason.
  static absl::StatusOr<AdminClient> Connect(const GlobalOptions& globals);
  AdminClient(const std::shared_ptr<grpc::Channel>& channel, const GlobalOptions& globals)
      : stub_(v1::AdminService::NewStub(channel)),
        cache_(globals.cache),
        timeout_(globals.timeout()) {}

  // Calls a method of the stub: Call(&Stub::GetStatus, request). If the request has a cache field
  // and it is empty, the cache of the options is used.
  using Stub = v1::AdminService::Stub;
  template <class Request, class Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                Request request) {
    if constexpr (requires { request.set_cache(cache_); }) {
      if (request.cache().empty()) request.set_cache(cache_);
    }
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
    Response response;
    const grpc::Status status = ((*stub_).*method)(&context, request, &response);
    if (!status.ok()) return StatusFromGrpc(status);
    return response;
  }

  // Returns the status of the options' cache. If the options name none, returns the status of each
  // cache that the daemon serves. The result has at least one status: a daemon without caches
  // returns a status without a cache.
  absl::StatusOr<std::vector<v1::GetStatusResponse>> Statuses();

  // The options' cache, or the daemon's only one. Errors also: CACHE_NOT_NAMED.
  absl::StatusOr<v1::CacheInfo> Cache();

 private:
  std::unique_ptr<Stub> stub_;
  std::string cache_;
  absl::Duration timeout_;
};

// Writes each status to standard output as JSON on a line. Errors: those of PrintJson.
absl::Status PrintStatuses(const std::vector<v1::GetStatusResponse>& statuses);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_COMMAND_ADMIN_CLIENT_H_
