// What the status page reads: the daemon's state as JSON, under /api/v1 of the HTTP port.
#ifndef PAGODA_SERVER_HTTP_STATUS_API_H_
#define PAGODA_SERVER_HTTP_STATUS_API_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/admin/admin_service.h"
#include "server/cache/disk_tier.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"
#include "server/http/status_history.h"

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

  // All outlive this. `disk` is null without a tier on disk.
  StatusApi(const DaemonParts& parts, const HttpFence* fence, const StatusHistory* history,
            const DiskTier* disk)
      : parts_(parts), fence_(fence), history_(history), disk_(disk) {}

  // Adds "/api/v1/...". The routes use this object.
  void AddRoutes(HttpServer::Routes* routes);

 private:
  // Who may read an answer.
  enum class Audience : uint8_t { kEverybody, kOperators };
  using Answerer = std::function<absl::StatusOr<std::string>(const HttpRequest&)>;

  // An answer that costs a scan, made anew when it is old.
  class Scan {
   public:
    explicit Scan(std::function<std::string()> make) : make_(std::move(make)) {}
    std::string Get() ABSL_LOCKS_EXCLUDED(mutex_);

   private:
    const std::function<std::string()> make_;
    absl::Mutex mutex_;  // Held while it is made: who comes meanwhile waits for the same answer.
    std::string text_ ABSL_GUARDED_BY(mutex_);
    absl::Time made_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  };

  // Errors: those of HttpFence::Identify, PERMISSION_DENIED.
  absl::Status CheckOperator(const HttpRequest& request) const;
  HttpResponse Answer(const HttpRequest& request, Audience audience,
                      const Answerer& answerer) const;

  std::optional<DiskNumbers> Disk() const;
  std::string Status(const HttpRequest& request) const;
  std::string Transfers() const;
  std::string Blocks() const;
  absl::StatusOr<std::string> Sessions(const HttpRequest& request) const;
  std::string Tenants() const;
  std::string Prefixes() const;
  absl::StatusOr<std::string> Events(const HttpRequest& request) const;
  std::string Subscribers() const;

  const DaemonParts parts_;
  const HttpFence* const fence_;
  const StatusHistory* const history_;
  const DiskTier* const disk_;
  Scan blocks_{[this] { return Blocks(); }};
  Scan prefixes_{[this] { return Prefixes(); }};
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_STATUS_API_H_
