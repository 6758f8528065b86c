// pagoda-engine --serve and --child: an engine with doors of its own.
#ifndef PAGODA_ENGINE_SERVE_DOORS_DOORS_H_
#define PAGODA_ENGINE_SERVE_DOORS_DOORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "engine/serve/daemon/connected_engine.h"
#include "engine/serve/daemon/daemon_link.h"
#include "server/config/config.h"

namespace pagoda {

// Reads the program's configuration: a file with the keys of the daemon's, of which `engine`,
// `server` (its limits and its certificate), `tenants`, `operators`, `default_tenant_share` and
// `log` count here. `model_dir`, if given, replaces engine.model_dir. Errors: those of LoadConfig
// and ValidateConfig; INVALID_ARGUMENT without a model.
absl::StatusOr<server::Config> LoadDoors(const std::string& file, const std::string& model_dir);

// What a process with doors does before the threads that serve exist: limits, log, time slices.
void PrepareProcess(const server::Config& config);

// Loads the model and serves until `stop` is notified, then drains. `options`: the connection to
// the daemon; the configuration has the rest. Without a link, prints to standard output where
// callers reach it, when it is ready; with a link, reports it to the daemon. Errors: those of
// ConnectedEngine::Create and EngineServer::Start.
absl::Status ServeUntil(const absl::Notification& stop, server::Config config,
                        ConnectedEngine::Options options, DaemonLink* link);

// Runs as the child of a daemon, which has started the program with --child. Returns the exit
// status.
int RunAsChild();

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_DOORS_DOORS_H_
