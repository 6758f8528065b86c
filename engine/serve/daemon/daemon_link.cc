#include "engine/serve/daemon/daemon_link.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/engine_program.h"
#include "server/log/log.h"

namespace pagoda {
namespace {

// The descriptors that the daemon gives its engine.
constexpr int kLink = 3;
constexpr int kStart = 4;
constexpr int kLookMilliseconds = 20;
constexpr int kLooksOfAReport = 10;

absl::Status NotAChild() {
  return absl::FailedPreconditionError(
      "--child is for the daemon alone, which starts this program if its configuration has "
      "engine.model_dir; to serve beside a daemon, say --serve");
}

// A report that does not fit into the socket's memory goes without the metrics.
void Send(v1::EngineReport report) {
  const std::string bytes = report.SerializeAsString();
  if (send(kLink, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return;
  if (errno != EMSGSIZE) return;  // The daemon reads slowly, or has ended.
  report.clear_metrics();
  const std::string less = report.SerializeAsString();
  if (send(kLink, less.data(), less.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    server::Log(server::LogLevel::kWarning, "a report to the daemon is too long");
  }
}

}  // namespace

void EndWithParent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

absl::StatusOr<v1::EngineStart> DaemonLink::ReadStart() {
  struct stat link = {}, file = {};
  if (fstat(kLink, &link) != 0 || !S_ISSOCK(link.st_mode) || fstat(kStart, &file) != 0 ||
      !S_ISREG(file.st_mode)) {
    return NotAChild();
  }
  // Programs that the engine starts do not keep the link open.
  fcntl(kLink, F_SETFD, FD_CLOEXEC);
  std::string bytes(static_cast<size_t>(file.st_size), '\0');
  const ssize_t read = pread(kStart, bytes.data(), bytes.size(), 0);
  close(kStart);
  v1::EngineStart start;
  if (read != file.st_size || !start.ParseFromString(bytes)) return NotAChild();
  return start;
}

absl::Status DaemonLink::Start() {
  return thread_.Start("pagoda-link", [this] { Run(); });
}

DaemonLink::~DaemonLink() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

void DaemonLink::SetReport(ReportFunction report) {
  absl::MutexLock lock(&mutex_);
  report_ = std::move(report);
  if (report_ != nullptr) SendReport(Metrics::kWith);
}

void DaemonLink::SendReport(Metrics metrics) {
  v1::EngineReport report = report_(metrics);
  std::string status = report.status().SerializeAsString();
  if (metrics == Metrics::kWithout && status == last_status_) return;
  last_status_ = std::move(status);
  Send(std::move(report));
}

void DaemonLink::ReportFailure(const absl::Status& status) {
  v1::EngineReport report;
  server::FailureToProto(status, report.mutable_failure());
  Send(std::move(report));
}

void DaemonLink::Run() {
  for (int look = 0;; ++look) {
    pollfd ready = {.fd = kLink, .events = POLLIN, .revents = 0};
    // The daemon sends nothing: there is only its end.
    if (poll(&ready, 1, kLookMilliseconds) > 0) _exit(EXIT_FAILURE);
    const bool is_due = look % kLooksOfAReport == 0;
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    if (report_ != nullptr) {
      SendReport(is_due ? Metrics::kWith : Metrics::kWithout);
    } else if (is_due) {
      v1::EngineReport loading;
      loading.set_loading(true);
      Send(std::move(loading));
    }
  }
}

}  // namespace pagoda
