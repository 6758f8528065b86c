#include "server/log/log.h"

#include <grpc/support/log.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/printable.h"

namespace pagoda::server {
namespace {

std::atomic<LogLevel> minimum_level{LogLevel::kInfo};
std::atomic<const char*> log_source{nullptr};

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

void LogFromGrpc(gpr_log_func_args* args) {
  if (args->severity == GPR_LOG_SEVERITY_ERROR) {
    Log(LogLevel::kWarning, absl::StrCat("grpc: ", args->message));
  }
}

}  // namespace

void SetLogLevel(LogLevel level) { minimum_level.store(level, std::memory_order_relaxed); }

void SetLogSource(const char* source) { log_source = source; }

void Log(LogLevel level, std::string_view message) {
  if (level < minimum_level.load(std::memory_order_relaxed)) return;
  std::string text(message);
  std::replace(text.begin(), text.end(), '\n', ' ');
  // Here, so that no caller can forget it: names and errors in messages come from other processes.
  text = Printable(text);
  const char* const source = log_source;
  const std::string line = absl::StrCat(
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
      LevelName(level), " ", source == nullptr ? "" : absl::StrCat(source, ": "), text, "\n");
  // One write per line keeps the lines of different threads apart. A failed write is ignored.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

void CaptureGrpcLog() { gpr_set_log_function(LogFromGrpc); }

}  // namespace pagoda::server
