#include "engine/serve/doors/doors.h"

#include <grpc/grpc.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "clients/command_line/terminal/interrupt.h"
#include "engine/serve/doors/engine_server.h"
#include "engine/text/model_text.h"
#include "manager/accounts/tenants.h"
#include "server/listener/accept_guard.h"
#include "server/log/log.h"
#include "server/supervision/processor_share.h"

namespace pagoda {
namespace {

// How long the daemon has for the connection, and for each of its answers.
constexpr absl::Duration kDaemonTime = absl::Seconds(10);
// How long the blocks of a killed child stay with it.
constexpr absl::Duration kChildsLease = absl::Seconds(10);

// The doors have the server's limits at the engine's addresses.
server::Config::Server ServerOf(const server::Config& config) {
  server::Config::Server server = config.server;
  server.unix_socket = config.engine.UnixSocket(config.server);
  server.grpc_address = config.engine.GrpcAddress(config.server);
  server.http_address = config.engine.HttpAddress(config.server);
  return server;
}

// The names of all tenants, the default tenant's first.
std::vector<std::string> TenantNames(const server::Config& config) {
  std::vector<std::string> names = {""};
  for (const server::Config::Tenant& tenant : config.tenants) names.push_back(tenant.name);
  return names;
}

// The engine's options as the configuration says, with the connection that `options` has.
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

// The daemon can be protected from the kernel's killer for lack of memory. Its engine is not, and
// it leaves no core file.
void GiveUpProtection() {
  // Its memory has callers' tokens and texts.
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);
  int score = 0;
  if (!(std::ifstream("/proc/self/oom_score_adj") >> score) || score >= 0) return;
  std::ofstream("/proc/self/oom_score_adj") << 0;
}

}  // namespace

absl::StatusOr<server::Config> LoadDoors(const std::string& file, const std::string& model_dir) {
  absl::StatusOr<server::Config> config = server::LoadConfig(file);
  if (!config.ok()) return config;
  if (!model_dir.empty()) config->engine.model_dir = model_dir;
  if (config->engine.model_dir.empty()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(file, " has no engine.model_dir, and there is no --model"));
  }
  if (absl::Status status = server::ValidateConfig(*config); !status.ok()) return status;
  return config;
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

absl::Status ServeUntil(const absl::Notification& stop, server::Config config,
                        ConnectedEngine::Options options, DaemonLink* link) {
  const ModelText text = ModelText::Load(config.engine.model_dir);
  const absl::StatusOr<std::unique_ptr<ConnectedEngine>> engine =
      ConnectedEngine::Create(WithDoors(config, std::move(options)));
  if (!engine.ok()) return engine.status();
  const auto say = [](const std::string& what) { server::Log(server::LogLevel::kInfo, what); };
  say(absl::StrCat("model loaded: ", config.engine.model_dir, ": ", (*engine)->description()));
  say(absl::StrCat("chat format: ",
                   text.chat.ok() ? text.chat->name() : text.chat.status().message()));
  for (const NamedAdapter& adapter : (*engine)->adapters()) {
    say(absl::StrCat("adapter loaded: ", adapter.name, ", the namespaces of its prompts have ",
                     "lora_id ", adapter.fingerprint));
  }
  config.server = ServerOf(config);
  const absl::StatusOr<std::unique_ptr<EngineServer>> server =
      EngineServer::Start(config, engine->get(), &text, /*checks_sources=*/link != nullptr);
  if (!server.ok()) return server.status();
  const v1::CacheEngine addresses = (*server)->addresses();
  const std::string where =
      absl::StrCat("gRPC on ", absl::StrJoin(addresses.grpc(), " and "),
                   addresses.http().empty() ? "" : absl::StrCat(", HTTP on ", addresses.http()));
  if (link == nullptr) {
    std::cout << "pagoda-engine is ready: " << where << std::endl;
  } else {
    say("serving " + where);
    link->SetReport([&server](DaemonLink::Metrics metrics) { return (*server)->Report(metrics); });
  }
  stop.WaitForNotification();
  say("draining");
  (*server)->Drain();
  if (link != nullptr) link->SetReport(nullptr);
  return absl::OkStatus();
}

int RunAsChild() {
  EndWithParent();
  GiveUpProtection();
  const absl::StatusOr<v1::EngineStart> start = DaemonLink::ReadStart();
  if (!start.ok()) {
    std::cerr << "pagoda-engine: " << start.status().message() << std::endl;
    return EXIT_FAILURE;
  }
  absl::Notification stop;
  // The signal handling must exist before other threads: they inherit the signal mask.
  InterruptScope* signals = nullptr;
  InterruptScope interrupt([&] {
    // A second signal changes nothing: the daemon ends an engine that drains for too long.
    signals->Rearm();
    if (!stop.HasBeenNotified()) stop.Notify();
  });
  signals = &interrupt;
  // Never destroyed: its thread waits for the daemon's end.
  auto& link = *new DaemonLink;
  server::SetLogSource("engine");
  const auto run = [&]() -> absl::Status {
    if (start->version() != PAGODA_VERSION) {
      return absl::FailedPreconditionError(absl::StrCat("this engine is of version ",
                                                        PAGODA_VERSION, ", and its daemon of ",
                                                        start->version(), ": start pagodad again"));
    }
    if (absl::Status status = link.Start(); !status.ok()) return status;
    absl::StatusOr<server::Config> config =
        server::ParseConfig(start->config(), "the daemon's configuration");
    if (!config.ok()) return config.status();
    PrepareProcess(*config);
    ConnectedEngine::Options options;
    options.client.endpoint = start->endpoint();
    options.client.client_name = "pagoda-engine";
    options.client.lease = std::min(kChildsLease, config->sessions.default_lease);
    options.client.timeout = kDaemonTime;
    options.patience = kDaemonTime;
    options.client.credentials.token = start->token();
    options.client.cache = start->cache();
    return ServeUntil(stop, *std::move(config), std::move(options), &link);
  };
  const absl::Status status = run();
  if (status.ok()) return EXIT_SUCCESS;
  server::Log(server::LogLevel::kError, std::string(status.message()));
  link.ReportFailure(status);
  return EXIT_FAILURE;
}

}  // namespace pagoda
