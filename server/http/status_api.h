// The daemon's state as JSON under /api/v1 of the HTTP port. The status page reads it. Each answer
// is a message, and AdminService makes most of them.
#ifndef PAGODA_SERVER_HTTP_STATUS_API_H_
#define PAGODA_SERVER_HTTP_STATUS_API_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/admin/admin_service.h"
#include "server/admin/daemon_parts.h"
#include "server/directory/cache_parts.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"
#include "server/http/shared_answers.h"

namespace pagoda::server {

// Answers GET requests; server/STATUS.md lists the fields. No request changes the daemon.
// Thread-safe.
//
// 1. Only operators, as identified by HttpFence, read answers about tenants, sessions, prefixes or
//    tokens.
// 2. A request holds the core's lock for no longer than a scrape of /metrics does. A scan releases
//    it between chunks (SharedManager::SlotStates, TopPrefixes).
// 3. Requests within kInterval share an answer that everybody may read, and the prefixes. Only
//    operators' `caches`, `status` and `hit_rate_curve` are made for each request.
class StatusApi {
 public:
  static constexpr absl::Duration kInterval = absl::Milliseconds(500);

  // The parts, the service and the fence outlive this.
  StatusApi(const DaemonParts& parts, AdminService* admin, const HttpFence* fence);

  // Adds the routes "/api/v1/...". This object outlives them.
  void AddRoutes(HttpServer::Routes* routes);

 private:
  // The callers that may read an answer.
  enum class Audience : uint8_t { kEverybody, kOperators };
  struct Viewer {
    // If it is not known, a tenant caller of the default tenant.
    Identity identity = {.role = Role::kTenant, .tenant = kDefaultTenant};
    absl::Status known;        // Errors: those of HttpFence::Identify.
    absl::Status is_operator;  // Errors: those of `known`, PERMISSION_DENIED.
  };
  // Makes the JSON of an answer.
  using Answerer =
      std::function<absl::StatusOr<std::string>(const HttpRequest&, const Viewer& viewer)>;
  // Makes an answer about the cache that the request names (`?cache=NAME`).
  using CacheAnswerer =
      std::function<absl::StatusOr<std::string>(const HttpRequest&, const CacheParts&)>;

  Viewer ViewerOf(const HttpRequest& request) const;
  HttpResponse Answer(const HttpRequest& request, Audience audience,
                      const Answerer& answerer) const;

  // Messages that AdminService makes.
  absl::StatusOr<std::string> Caches(const HttpRequest& request, const Viewer& viewer) const;
  absl::StatusOr<std::string> Status(const HttpRequest& request, const Viewer& viewer) const;
  absl::StatusOr<std::string> HitRateCurves(const HttpRequest& request, const Viewer& viewer) const;
  absl::StatusOr<std::string> Sessions(const HttpRequest& request, const Viewer& viewer) const;
  absl::StatusOr<std::string> Tenants(const HttpRequest& request, const Viewer& viewer) const;
  // Messages of status.proto.
  absl::StatusOr<std::string> Events(const HttpRequest& request, const CacheParts& cache) const;
  absl::StatusOr<std::string> Subscribers(const CacheParts& cache) const;

  const DaemonParts parts_;
  AdminService* const admin_;
  const HttpFence* const fence_;
  SharedAnswers shared_{kInterval};
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_STATUS_API_H_
