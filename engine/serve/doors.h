// pagoda-engine --serve: an engine with doors of its own.
#ifndef PAGODA_ENGINE_SERVE_DOORS_H_
#define PAGODA_ENGINE_SERVE_DOORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "engine/serve/connected_engine.h"
#include "engine/text/model_text.h"
#include "server/config/config.h"

namespace pagoda {

// Reads the program's configuration: a file with the keys of the daemon's, of which `engine`,
// `server`, `tenants`, `operators`, `default_tenant_share` and `log` count here. `model_dir`, if
// given, replaces engine.model_dir. An address of the daemon's defaults becomes this program's
// default: gRPC on 127.0.0.1:7074, HTTP on 127.0.0.1:7076, and no Unix socket. Errors: those of
// LoadConfig and ValidateConfig; INVALID_ARGUMENT without a model.
absl::StatusOr<server::Config> LoadDoors(const std::string& file, const std::string& model_dir);

// The engine's options as the configuration says, with the connection that `options` has.
ConnectedEngine::Options WithDoors(const server::Config& config, ConnectedEngine::Options options);

// What a process with doors does before the threads that serve exist: limits, log, time slices.
void PrepareProcess(const server::Config& config);

// Serves until `stop` is notified, then drains. Prints where callers reach it to standard output
// when it is ready. `text` is the engine's model's, and outlives the engine. Errors: those of
// EngineServer::Start.
absl::Status ServeUntil(const absl::Notification& stop, const server::Config& config,
                        const ModelText& text, ConnectedEngine& engine);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_DOORS_H_
