// The answers to probes: whether the daemon takes work, and whether it is alive.
#ifndef PAGODA_SERVER_HTTP_HEALTH_H_
#define PAGODA_SERVER_HTTP_HEALTH_H_

#include "absl/time/time.h"
#include "server/heartbeat.h"
#include "server/http/http_server.h"
#include "server/listener_watch.h"
#include "server/serving_state.h"

namespace pagoda::server {

// 503 if the core has not answered a heartbeat for more than ten seconds: only a new process helps.
// Else 200, even in a drain, so that a supervisor does not kill a daemon that shuts down normally.
HttpResponse Liveness(absl::Duration core_waiting);

// 200 if the daemon serves, is alive and accepts connections. 503 while it starts or drains, or if
// a listener has been silent for more than ten seconds, so that new work goes elsewhere.
HttpResponse Readiness(ServingState::Phase phase, absl::Duration core_waiting,
                       const ListenerWatch::Silence& silence);

// The routes /livez, /readyz and /healthz, which equals /readyz. The arguments outlive the routes.
HttpServer::Routes ProbeRoutes(const ServingState* state, const Heartbeat* heartbeat,
                               const ListenerWatch* listeners);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HEALTH_H_
