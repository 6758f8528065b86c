#include "server/http/health.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace pagoda::server {
namespace {

// A batch holds the core's lock for less than a second. The reset of a cache with millions of
// blocks holds it for a few seconds. A flood of connections delays a listener for as long.
constexpr absl::Duration kStuck = absl::Seconds(10);

constexpr int kOk = 200;
constexpr int kUnavailable = 503;

}  // namespace

HttpResponse Liveness(absl::Duration core_waiting) {
  if (core_waiting <= kStuck) return {.status = kOk, .body = "ok\n"};
  const std::string waiting = absl::FormatDuration(absl::Floor(core_waiting, absl::Seconds(1)));
  return {.status = kUnavailable,
          .body = absl::StrCat("the core has not answered for ", waiting, "\n")};
}

HttpResponse Readiness(const DaemonHealth& health) {
  HttpResponse liveness = Liveness(health.core_waiting);
  if (liveness.status != kOk) return liveness;
  const auto unready = [](const std::string& why) {
    return HttpResponse{.status = kUnavailable, .body = absl::StrCat(why, "\n")};
  };
  switch (health.phase) {
    case ServingState::Phase::kStarting:
    case ServingState::Phase::kEngineLoads:
      return unready(health.start);
    case ServingState::Phase::kEngineDrains:
    case ServingState::Phase::kDraining:
      return unready("draining");
    case ServingState::Phase::kServing:
      break;
  }
  if (health.silence.time > kStuck) {
    return unready(absl::StrCat("no connection has been accepted at ", health.silence.listener,
                                " for ", absl::FormatDuration(health.silence.time)));
  }
  // The log has the file's path.
  if (!health.engine.ok()) return unready("a file of the engine's model has changed");
  if (!health.has_cache) return unready("the engine has no session with its daemon");
  return {.status = kOk, .body = "ok\n"};
}

HttpServer::Routes ProbeRoutes(const std::function<DaemonHealth()>& health) {
  const auto readiness = [=](const HttpRequest&) { return Readiness(health()); };
  return {{"/livez", [=](const HttpRequest&) { return Liveness(health().core_waiting); }},
          {"/readyz", readiness},
          {"/healthz", readiness}};
}

}  // namespace pagoda::server
