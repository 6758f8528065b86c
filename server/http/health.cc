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

std::string PhaseText(ServingState::Phase phase) {
  switch (phase) {
    case ServingState::Phase::kStarting:
      return "starting\n";
    case ServingState::Phase::kServing:
      return "ok\n";
    case ServingState::Phase::kDraining:
      return "draining\n";
  }
  return "";
}

}  // namespace

HttpResponse Liveness(absl::Duration core_waiting) {
  if (core_waiting <= kStuck) return {.status = kOk, .body = "ok\n"};
  const std::string waiting = absl::FormatDuration(absl::Floor(core_waiting, absl::Seconds(1)));
  return {.status = kUnavailable,
          .body = absl::StrCat("the core has not answered for ", waiting, "\n")};
}

HttpResponse Readiness(ServingState::Phase phase, absl::Duration core_waiting,
                       const ListenerWatch::Silence& silence) {
  HttpResponse liveness = Liveness(core_waiting);
  if (liveness.status != kOk) return liveness;
  if (phase == ServingState::Phase::kServing && silence.time > kStuck) {
    return {.status = kUnavailable,
            .body = absl::StrCat("no connection has been accepted at ", silence.listener, " for ",
                                 absl::FormatDuration(silence.time), "\n")};
  }
  return {.status = phase == ServingState::Phase::kServing ? kOk : kUnavailable,
          .body = PhaseText(phase)};
}

HttpServer::Routes ProbeRoutes(const ServingState* state, const Heartbeat* heartbeat,
                               const ListenerWatch* listeners) {
  const auto readiness = [=](const HttpRequest&) {
    return Readiness(state->phase(), heartbeat->waiting(), listeners->Longest());
  };
  return {{"/livez", [=](const HttpRequest&) { return Liveness(heartbeat->waiting()); }},
          {"/readyz", readiness},
          {"/healthz", readiness}};
}

}  // namespace pagoda::server
