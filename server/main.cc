// pagodad: reads the configuration, runs the daemon until SIGTERM or SIGINT, then drains it.
#include <grpc/grpc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/byte_size.h"
#include "base/printable.h"
#include "base/thread.h"
#include "server/config/config.h"
#include "server/daemon.h"
#include "server/listener/accept_guard.h"
#include "server/log/log.h"
#include "server/supervision/processor_share.h"

namespace pagoda::server {
namespace {

constexpr int kForcedExit = 2;

// The signals that end the daemon. They are blocked before any thread starts, so that only sigwait
// receives them.
sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // If a peer closes its end, the write fails; the daemon must not end.
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

std::string WaitForSignal(const sigset_t& signals) {
  int number = 0;
  sigwait(&signals, &number);
  return strsignal(number);
}

// Whether one of the signals waits for WaitForSignal.
bool IsSignalled() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

// Starts a thread that waits for `draining`. Then it ends the process at the next signal, even if
// the drain is still waiting. The thread exists from the start, because a shutdown must not need a
// new one. `draining` is never destroyed.
absl::Status PrepareForcedExit(const sigset_t& signals, absl::Notification* draining) {
  Thread thread;
  absl::Status started = thread.Start("pagoda-signals", [signals, draining] {
    draining->WaitForNotification();
    Log(LogLevel::kError, absl::StrCat(WaitForSignal(signals), " again: exiting without a drain"));
    _exit(kForcedExit);
  });
  thread.Detach();
  return started;
}

int Fail(const absl::Status& status) {
  std::cerr << "pagodad: " << Printable(std::string(status.message())) << "\n";
  return EXIT_FAILURE;
}

// Where the engine serves: the end of the line that says that the daemon is ready.
std::string EngineText(const v1::CacheEngine& engine) {
  if (engine.grpc().empty()) return "";
  return absl::StrCat("; engine: gRPC on ", absl::StrJoin(engine.grpc(), " and "),
                      engine.http().empty() ? "" : absl::StrCat(", HTTP on ", engine.http()));
}

int Run(Config config) {
  const sigset_t signals = BlockEndSignals();
  AskForShortSlices();  // Called before any thread starts, because threads inherit the setting.
  RaiseOpenFileLimit();
  SetLogLevel(config.log.level);
  // Debian's Abseil checks every lock for deadlock cycles by default, gRPC's locks included. The
  // tests leave the check on.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  CaptureGrpcLog();
  static auto& draining = *new absl::Notification;
  if (absl::Status status = PrepareForcedExit(signals, &draining); !status.ok()) {
    return Fail(status);
  }
  // Never undone. The shutdown of gRPC's last user waits for a poller thread of gRPC, for ten
  // seconds or more after a slow client. The process can end without that wait.
  grpc_init();
  // An operator's request ends the process the same way as the signal: it sends the signal.
  const auto request_drain = [] { kill(getpid(), SIGTERM); };
  absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(std::move(config), request_drain, {}, IsSignalled);
  if (!daemon.ok()) return Fail(daemon.status());
  const std::string http = (*daemon)->http_endpoint();
  const std::string probes = (*daemon)->probe_endpoint();
  std::cout << "pagodad is ready: gRPC on " << absl::StrJoin((*daemon)->grpc_endpoints(), " and ")
            << (http.empty() ? "" : absl::StrCat(", HTTP on ", http))
            << (probes.empty() ? "" : absl::StrCat(", probes on ", probes))
            << EngineText((*daemon)->engine_addresses()) << std::endl;
  const std::string received = WaitForSignal(signals);
  Log(LogLevel::kInfo, absl::StrCat(received, ": draining"));
  draining.Notify();
  (*daemon)->Drain();
  daemon->reset();
  Log(LogLevel::kInfo, "drained");
  return EXIT_SUCCESS;
}

int Main(int argc, char** argv) {
  CLI::App app{"The Pagoda KV cache daemon.", "pagodad"};
  std::string config_file;
  std::string model_dir;
  std::string memory;
  bool print_config = false;
  const CLI::Option* config_option =
      app.add_option("--config", config_file, "YAML configuration; see deploy/pagodad.yaml");
  app.add_option("--model", model_dir,
                 "A model for the bundled engine: a Hugging Face folder or a GGUF file; overrides "
                 "engine.model_dir");
  app.add_option("--memory", memory,
                 "Host memory for the caches that clients open, such as 8GiB; overrides "
                 "memory.host. Without --config and --model there is no other cache");
  app.add_flag("--print-config", print_config, "Print the effective configuration and exit");
  app.set_version_flag("--version", absl::StrCat("pagodad ", PAGODA_VERSION));
  CLI11_PARSE(app, argc, argv);

  absl::StatusOr<Config> config = config_option->empty() ? Config{} : LoadConfig(config_file);
  if (!config.ok()) return Fail(config.status());
  if (!memory.empty()) {
    const std::optional<uint64_t> bytes = ParseByteSize(memory);
    if (!bytes.has_value()) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("--memory is ", memory, "; allowed: ", kByteSizeForms)));
    }
    config->memory.host = *bytes;
    if (config_option->empty()) config->own_cache = *bytes == 0;
  }
  if (!model_dir.empty()) {
    config->engine.model_dir = model_dir;
    config->own_cache = true;
  }
  if (print_config) {
    std::cout << PrintConfig(*config);
    return EXIT_SUCCESS;
  }
  return Run(*std::move(config));
}

}  // namespace
}  // namespace pagoda::server

int main(int argc, char** argv) { return pagoda::server::Main(argc, argv); }
