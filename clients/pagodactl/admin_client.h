// AdminService as commands use it, and its messages' values as C++ has them.
#ifndef PAGODA_CLIENTS_PAGODACTL_ADMIN_CLIENT_H_
#define PAGODA_CLIENTS_PAGODACTL_ADMIN_CLIENT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "clients/pagodactl/command.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "wire/errors.h"

namespace pagoda {

// What the daemon calls a tier. A daemon that does not name it: its default name, "primary".
std::string TierText(v1::Tier tier, const std::string& name);
std::string TierText(v1::Tier tier, const v1::CacheInfo& cache);
std::string TierText(const v1::TierStatus& tier);

// One connection; each call has a deadline of its own. Thread-compatible.
class AdminClient {
 public:
  // Errors: UNAVAILABLE, without a reason.
  static absl::StatusOr<AdminClient> Connect(const GlobalOptions& globals);

  // A method of the stub: Call(&Stub::GetStatus, request). A request about a cache that names none
  // is about the one of the options.
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

  // The status of the cache of the options; where they name none, of each cache that the daemon
  // serves. At least one: that of a daemon that serves none has no cache in it.
  absl::StatusOr<std::vector<v1::GetStatusResponse>> Statuses();

 private:
  AdminClient(const std::shared_ptr<grpc::Channel>& channel, const GlobalOptions& globals)
      : stub_(v1::AdminService::NewStub(channel)),
        cache_(globals.cache),
        timeout_(globals.timeout()) {}

  std::unique_ptr<Stub> stub_;
  std::string cache_;
  absl::Duration timeout_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_ADMIN_CLIENT_H_
