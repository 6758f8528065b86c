// What the status page reads: the daemon's state as JSON, under /api/v1 of the HTTP port.
#ifndef PAGODA_SERVER_HTTP_STATUS_API_H_
#define PAGODA_SERVER_HTTP_STATUS_API_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/admin/admin_service.h"
#include "server/cache/cache_parts.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"

namespace pagoda::server {

// Answers GET requests; README.md has the fields. Nothing here changes the daemon. Thread-safe.
//
// 1. What names tenants, sessions, prefixes or tokens is for operators, as HttpFence knows them.
// 2. The core's lock is held for as long as a scrape takes, or for pieces of a scan
// (SharedManager::SlotStates, TopPrefixes); a scan is made once for all who ask within
// kScanInterval.
class StatusApi {
 public:
  static constexpr absl::Duration kScanInterval = absl::Milliseconds(500);

  // All outlive this.
  StatusApi(const DaemonParts& parts, const HttpFence* fence);

  // Adds "/api/v1/...". The routes use this object.
  void AddRoutes(HttpServer::Routes* routes);

 private:
  // Who may read an answer.
  enum class Audience : uint8_t { kEverybody, kOperators };
  // Of the cache that the request names: `?cache=NAME`.
  using Answerer =
      std::function<absl::StatusOr<std::string>(const HttpRequest&, const CacheParts&)>;

  // An answer that costs a scan of a cache, made anew when it is old.
  class Scan {
   public:
    explicit Scan(std::function<std::string(const CacheParts&)> make) : make_(std::move(make)) {}
    std::string Get(const CacheParts& cache) ABSL_LOCKS_EXCLUDED(mutex_);

   private:
    struct Made {
      std::string text;
      absl::Time time = absl::InfinitePast();
    };

    const std::function<std::string(const CacheParts&)> make_;
    absl::Mutex mutex_;  // Held while it is made: who comes meanwhile waits for the same answer.
    std::map<uint32_t, Made> made_ ABSL_GUARDED_BY(mutex_);  // By the cache's number.
  };

  // Errors: those of HttpFence::Identify, PERMISSION_DENIED.
  absl::Status CheckOperator(const HttpRequest& request) const;
  HttpResponse Answer(const HttpRequest& request, Audience audience,
                      const Answerer& answerer) const;

  // Who asks; where that is not known, somebody of no tenant.
  Identity CallerOf(const HttpRequest& request) const;
  std::string Caches(const HttpRequest& request) const;
  std::string Status(const HttpRequest& request, const CacheParts& cache) const;
  absl::StatusOr<std::string> Sessions(const HttpRequest& request, const CacheParts& cache) const;
  absl::StatusOr<std::string> Events(const HttpRequest& request, const CacheParts& cache) const;
  std::string Subscribers(const CacheParts& cache) const;

  const DaemonParts parts_;
  const HttpFence* const fence_;
  Scan blocks_;
  Scan prefixes_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_STATUS_API_H_
