// What probes are told: whether the daemon takes work, and whether it lives.
#ifndef PAGODA_SERVER_HTTP_HEALTH_H_
#define PAGODA_SERVER_HTTP_HEALTH_H_

#include "absl/time/time.h"
#include "server/heartbeat.h"
#include "server/http/http_server.h"
#include "server/serving_state.h"

namespace pagoda::server {

// 503 where the core has kept a heartbeat waiting for more than ten seconds: only a new process
// helps. 200 otherwise, also in a drain, so that nobody kills a daemon that is ending well.
HttpResponse Liveness(absl::Duration core_waiting);

// 200 where the daemon serves and lives; 503 while it starts or drains, so that new work goes
// elsewhere.
HttpResponse Readiness(ServingState::Phase phase, absl::Duration core_waiting);

// /livez, /readyz and /healthz, which is the same as /readyz. Both outlive the routes.
HttpServer::Routes ProbeRoutes(const ServingState* state, const Heartbeat* heartbeat);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HEALTH_H_
