// The answers to probes: whether the daemon takes work, and whether it is alive.
#ifndef PAGODA_SERVER_HTTP_HEALTH_H_
#define PAGODA_SERVER_HTTP_HEALTH_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/http/http_server.h"
#include "server/listener/listener_watch.h"
#include "server/supervision/serving_state.h"

namespace pagoda::server {

// 503 if the core has not answered a heartbeat for more than ten seconds: only a new process helps.
// Else 200, even in a drain, so that a supervisor does not kill a daemon that shuts down normally.
HttpResponse Liveness(absl::Duration core_waiting);

// What the answers depend on. While the daemon starts, only the first two are set.
struct DaemonHealth {
  ServingState::Phase phase = ServingState::Phase::kStarting;
  std::string start = "starting";  // How far the start is, in words that every stranger may read.
  absl::Duration core_waiting = absl::ZeroDuration();
  ListenerWatch::Silence silence = {};
  absl::Status engine = absl::OkStatus();  // See Engine::CheckFiles.
  bool has_cache = true;  // Whether an engine's program has a session with its daemon.
};

// 200 if the daemon serves, is alive and accepts connections. 503 while it starts or drains, if a
// listener has been silent for more than ten seconds, or if the engine cannot serve, so that new
// work goes elsewhere.
HttpResponse Readiness(const DaemonHealth& health);

// The routes /livez, /readyz and /healthz, which equals /readyz. `health` returns at once.
HttpServer::Routes ProbeRoutes(const std::function<DaemonHealth()>& health);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HEALTH_H_
