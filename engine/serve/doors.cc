#include "engine/serve/doors.h"

#include <grpc/grpc.h>

#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "engine/serve/engine_server.h"
#include "manager/accounts/tenants.h"
#include "server/listener/accept_guard.h"
#include "server/log/log.h"
#include "server/supervision/processor_share.h"

namespace pagoda {
namespace {

// Where the doors are if the file does not say. The configuration's own defaults are the daemon's.
constexpr char kGrpcAddress[] = "127.0.0.1:7074";
constexpr char kHttpAddress[] = "127.0.0.1:7076";

void TakeOwnDefaults(server::Config::Server& server) {
  const server::Config::Server daemon;
  if (server.unix_socket == daemon.unix_socket) server.unix_socket.clear();
  if (server.grpc_address == daemon.grpc_address) server.grpc_address = kGrpcAddress;
  if (server.http_address == daemon.http_address) server.http_address = kHttpAddress;
}

// The names of all tenants, the default tenant's first.
std::vector<std::string> TenantNames(const server::Config& config) {
  std::vector<std::string> names = {""};
  for (const server::Config::Tenant& tenant : config.tenants) names.push_back(tenant.name);
  return names;
}

}  // namespace

absl::StatusOr<server::Config> LoadDoors(const std::string& file, const std::string& model_dir) {
  absl::StatusOr<server::Config> config = server::LoadConfig(file);
  if (!config.ok()) return config;
  TakeOwnDefaults(config->server);
  if (!model_dir.empty()) config->engine.model_dir = model_dir;
  if (config->engine.model_dir.empty()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(file, " has no engine.model_dir, and there is no --model"));
  }
  if (config->engine.kv != KvMode::kPaged) {
    return MakeError(Reason::kInvalidArgument,
                     "engine.kv is basic; an engine with doors keeps its KV in a daemon's cache");
  }
  if (absl::Status status = server::ValidateConfig(*config); !status.ok()) return status;
  return config;
}

ConnectedEngine::Options WithDoors(const server::Config& config, ConnectedEngine::Options options) {
  const server::Config::Engine& chosen = config.engine;
  options.engine.model_dir = chosen.model_dir;
  options.engine.backend = chosen.backend;
  options.engine.gpu_attention = chosen.gpu_attention;
  options.engine.gpu_graphs = chosen.gpu_graphs;
  options.engine.cpu = {.num_threads = chosen.threads, .compute = chosen.compute};
  options.engine.adapters = chosen.adapters;
  options.engine.scheduler = {.max_step_tokens = chosen.max_step_tokens,
                              .max_running_sequences = chosen.max_running_sequences,
                              .preemption = chosen.preemption};
  options.engine.waiting = {.requests = chosen.max_waiting_requests,
                            .bytes = chosen.max_waiting_bytes};
  options.engine.tenants = TenantNames(config);
  options.engine.on_warning = [](const std::string& what) {
    server::Log(server::LogLevel::kWarning, what);
  };
  options.say = [](const std::string& what) { server::Log(server::LogLevel::kInfo, what); };
  return options;
}

void PrepareProcess(const server::Config& config) {
  signal(SIGPIPE, SIG_IGN);  // If a peer closes its end, the write fails; the program goes on.
  server::AskForShortSlices();
  server::RaiseOpenFileLimit();
  server::SetLogLevel(config.log.level);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  server::CaptureGrpcLog();
  // Never undone: the shutdown of gRPC's last user waits for a thread of gRPC for seconds.
  grpc_init();
}

absl::Status ServeUntil(const absl::Notification& stop, const server::Config& config,
                        const ModelText& text, ConnectedEngine& engine) {
  server::Log(server::LogLevel::kInfo,
              absl::StrCat("chat format: ",
                           text.chat.ok() ? text.chat->name() : text.chat.status().message()));
  absl::StatusOr<std::unique_ptr<EngineServer>> server =
      EngineServer::Start(config, &engine, &text);
  if (!server.ok()) return server.status();
  const std::string http = (*server)->http_endpoint();
  std::cout << "pagoda-engine is ready: gRPC on "
            << absl::StrJoin((*server)->grpc_endpoints(), " and ")
            << (http.empty() ? "" : absl::StrCat(", HTTP on ", http)) << std::endl;
  stop.WaitForNotification();
  server::Log(server::LogLevel::kInfo, "draining");
  (*server)->Drain();
  return absl::OkStatus();
}

}  // namespace pagoda
