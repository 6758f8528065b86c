#include "server/engine/engine_child.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/calls/metric_family.h"
#include "server/engine/engine_program.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

// Between the end of a process and the start of the next one.
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kMostPause = absl::Seconds(30);
// A process that was up for this time has not failed at its start: the pauses begin anew.
constexpr absl::Duration kStaysUp = absl::Minutes(1);
// An engine that has not reported for this time counts as down, and later as hung.
constexpr absl::Duration kSilence = absl::Seconds(5);
constexpr absl::Duration kHung = absl::Minutes(1);
// Between the end of its reports and of its process.
constexpr absl::Duration kEndsWithin = absl::Seconds(10);
// How often the supervising thread checks for the order to stop.
constexpr absl::Duration kLook = absl::Milliseconds(50);
// The longest report.
constexpr size_t kMaxReportBytes = size_t{1} << 20;

// A file in memory, from its beginning.
absl::StatusOr<FileDescriptor> FileOf(const std::string& bytes) {
  FileDescriptor file(memfd_create("pagoda-engine", MFD_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, "cannot make a file in memory");
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t count = pwrite(file.get(), bytes.data() + written, bytes.size() - written,
                                 static_cast<off_t>(written));
    if (count <= 0) return absl::ErrnoToStatus(errno, "cannot write a file in memory");
    written += static_cast<size_t>(count);
  }
  return file;
}

// The status of the process's end. A process that does not end by itself is killed.
int WaitFor(pid_t process) {
  const absl::Time end = absl::Now() + kEndsWithin;
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == process || (ended < 0 && errno != EINTR)) return status;
    if (absl::Now() > end) kill(process, SIGKILL);
    absl::SleepFor(absl::Milliseconds(5));
  }
}

// In a container the daemon can be the first process. Then it is the parent of the processes that
// the engine leaves behind.
void ReapAdopted() {
  if (getpid() != 1) return;
  while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
}

}  // namespace

EngineChild::~EngineChild() { Stop(absl::InfinitePast()); }

absl::Status EngineChild::Start(const std::function<bool()>& interrupted) {
  absl::Status thread = supervising_.Start("pagoda-engine", [this] { Supervise(); });
  if (!thread.ok()) return thread;
  absl::MutexLock lock(&mutex_);
  const auto known = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return started_.has_value(); };
  while (!mutex_.AwaitWithTimeout(absl::Condition(&known), kLook)) {
    if (interrupted != nullptr && interrupted()) return absl::OkStatus();
  }
  return *started_;
}

void EngineChild::Stop(absl::Time end) {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    end_ = std::min(end_, end);
  }
  supervising_.Join();
}

void EngineChild::Supervise() {
  absl::Duration pause = kFirstPause;
  for (;;) {
    const std::string why = RunOnce();
    ReapAdopted();
    absl::MutexLock lock(&mutex_);
    process_ = 0;
    const absl::Status failure =
        report_.has_failure()
            ? StatusOf(report_.failure())
            : absl::FailedPreconditionError(absl::StrCat("the engine ended at its start: ", why));
    // If the first process cannot start, there is no second one.
    const bool failed = !started_.has_value();
    if (failed) started_ = failure;
    if (failed || stopping_) return;
    problem_ = report_.has_failure() ? report_.failure().message() : why;
    report_.set_serving(false);
    if (absl::Now() - served_ > kStaysUp) pause = kFirstPause;
    Log(LogLevel::kError, absl::StrCat("the engine has ended: ", problem_,
                                       "; it is started again in ", absl::FormatDuration(pause)));
    const auto stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_; };
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping), pause)) return;
    pause = std::min(2 * pause, kMostPause);
    ++restarts_;
  }
}

std::string EngineChild::RunOnce() {
  {
    absl::MutexLock lock(&mutex_);
    report_.clear_failure();
    reported_ = absl::Now();
    served_ = absl::InfiniteFuture();
  }
  int ends[2] = {-1, -1};
  // Each message is one report.
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::StrCat("there is no socket for it: ", std::strerror(errno));
  }
  const FileDescriptor link(ends[0]);
  FileDescriptor theirs(ends[1]);
  absl::StatusOr<FileDescriptor> start = FileOf(start_().SerializeAsString());
  if (!start.ok()) return std::string(start.status().message());
  const absl::StatusOr<pid_t> process =
      StartEngineProgram({"--child"}, {theirs.get(), start->get()});
  if (!process.ok()) return std::string(process.status().message());
  theirs = FileDescriptor();
  *start = FileDescriptor();
  {
    absl::MutexLock lock(&mutex_);
    process_ = *process;
  }
  ReadReports(link.get(), *process);
  return EndText(WaitFor(*process));
}

void EngineChild::ReadReports(int link, pid_t process) {
  std::vector<char> bytes(kMaxReportBytes);
  bool asked = false, killed = false;
  // Counts the checks that found no report. A clock would count the daemon's own standstill, too.
  int silent = 0;
  for (;;) {
    pollfd ready = {.fd = link, .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(kLook)));
    silent = count > 0 ? 0 : silent + 1;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_ && !std::exchange(asked, true)) kill(process, SIGTERM);
      // SIGKILL ends a stopped process, too. An engine that does not serve has nothing to drain.
      const bool end = stopping_ && (absl::Now() >= end_ || served_ == absl::InfiniteFuture());
      const bool hung = silent * kLook > kHung;
      if ((end || hung) && !std::exchange(killed, true)) kill(process, SIGKILL);
    }
    if (count <= 0) continue;
    const ssize_t size = recv(link, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return;
    v1::EngineReport report;
    if (report.ParseFromArray(bytes.data(), static_cast<int>(size))) TakeReport(std::move(report));
  }
}

void EngineChild::TakeReport(v1::EngineReport report) {
  absl::MutexLock lock(&mutex_);
  reported_ = absl::Now();
  if (report.has_failure()) {
    // The status stays that of the last report.
    *report_.mutable_failure() = std::move(*report.mutable_failure());
    return;
  }
  if (!report.serving()) return;  // It loads the model.
  if (report.metrics().empty()) report.set_metrics(std::move(*report_.mutable_metrics()));
  report_ = std::move(report);
  served_ = std::min(served_, reported_);
  if (!started_.has_value()) started_ = absl::OkStatus();
}

bool EngineChild::IsUp() const {
  return process_ != 0 && report_.serving() && absl::Now() - reported_ < kSilence;
}

std::string EngineChild::Problem() const {
  if (process_ != 0 && report_.serving() && !IsUp()) {
    return absl::StrCat(
        "it has not reported for ",
        absl::FormatDuration(absl::Floor(absl::Now() - reported_, absl::Seconds(1))));
  }
  return problem_;
}

v1::EngineStatus EngineChild::Status() const {
  absl::MutexLock lock(&mutex_);
  v1::EngineStatus status = report_.status();
  status.set_up(IsUp());
  if (!status.up()) {
    status.clear_addresses();
    status.clear_running_requests();
    status.clear_waiting_requests();
  }
  status.set_restarts(restarts_);
  status.set_problem(Problem());
  return status;
}

v1::CacheEngine EngineChild::Addresses() const {
  absl::MutexLock lock(&mutex_);
  return IsUp() ? report_.status().addresses() : v1::CacheEngine();
}

std::vector<prometheus::MetricFamily> EngineChild::Collect() const {
  prometheus::MetricFamily up = GaugeFamily(
      "pagoda_engine_up", "Whether the bundled engine's process runs and serves: 1 or 0.");
  prometheus::MetricFamily restarts =
      CounterFamily("pagoda_engine_restarts_total",
                    "How often the daemon started the bundled engine again because it had ended.");
  absl::MutexLock lock(&mutex_);
  AddSample(up, {}, IsUp() ? 1 : 0);
  AddSample(restarts, {}, AsDouble(restarts_));
  return {std::move(up), std::move(restarts)};
}

std::string EngineChild::MetricsText() const {
  absl::MutexLock lock(&mutex_);
  return IsUp() ? report_.metrics() : "";
}

}  // namespace pagoda::server
