#include "server/supervision/supervisor.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "pools/memory/own_memory.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

// Keeps the variables in the environment for later messages. The daemon has no child processes that
// could send messages in its name.
constexpr int kKeepEnvironment = 0;

void Send(const std::string& message) {
  const int sent = sd_notify(kKeepEnvironment, message.c_str());
  if (sent >= 0) return;
  Log(LogLevel::kWarning,
      absl::StrCat("cannot send to the service manager: '", message, "': ", std::strerror(-sent)));
}

std::string StatusLine(std::string_view status) {
  return absl::StrCat("STATUS=", absl::StrReplaceAll(std::string(status), {{"\n", " "}}));
}

}  // namespace

void Supervisor::Status(std::string_view status) { Send(StatusLine(status)); }

void Supervisor::TakingMemory(uint64_t bytes) {
  wanted_bytes_ = 0;
  taken_before_ = TakenMemoryBytes();
  wanted_bytes_ = bytes;
}

std::string Supervisor::StartText() const {
  const uint64_t wanted = wanted_bytes_;
  if (wanted == 0) return "starting";
  const uint64_t taken = std::min(TakenMemoryBytes() - taken_before_, wanted);
  const auto percent = static_cast<int>(100.0 * static_cast<double>(taken) / wanted);
  return absl::StrCat("starting: ", percent, " % of ", wanted >> 20, " MiB of memory are taken");
}

void Supervisor::Ready(std::string_view status) {
  Send(absl::StrCat("READY=1\n", StatusLine(status)));
}

void Supervisor::Stopping(std::string_view status) {
  Send(absl::StrCat("STOPPING=1\n", StatusLine(status)));
}

void Supervisor::Alive() { Send("WATCHDOG=1"); }

absl::Duration Supervisor::watchdog_timeout() const {
  uint64_t microseconds = 0;
  const int enabled = sd_watchdog_enabled(kKeepEnvironment, &microseconds);
  return enabled > 0 ? absl::Microseconds(microseconds) : absl::ZeroDuration();
}

}  // namespace pagoda::server
