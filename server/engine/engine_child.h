// Supervises the bundled engine, a child process of the daemon.
#ifndef PAGODA_SERVER_ENGINE_ENGINE_CHILD_H_
#define PAGODA_SERVER_ENGINE_ENGINE_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"
#include "base/thread.h"
#include "pagoda/v1/engine_process.pb.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

// The process of pagoda-engine. It is a client of the daemon, and has a socket to the daemon on
// which it reports. If it ends, or is silent for a minute, the daemon starts it again, after pauses
// that grow from 100 ms to 30 s while it does not stay up. If the daemon ends, the socket is
// closed, and the engine ends. Thread-safe.
class EngineChild {
 public:
  // `start`: makes what a process of the engine gets. Called before each process, on any thread.
  explicit EngineChild(std::function<v1::EngineStart()> start) : start_(std::move(start)) {}
  // Ends the process at once, unless Stop was called.
  ~EngineChild();

  // Starts the process and waits until it serves, or until `interrupted` returns true; then the
  // engine goes on loading. Errors: the engine's own error, if it cannot start; FAILED_PRECONDITION
  // if the program cannot; those of Thread::Start.
  absl::Status Start(const std::function<bool()>& interrupted) ABSL_LOCKS_EXCLUDED(mutex_);

  // Lets an engine that serves drain, and ends its process at `end` at the latest. No other one is
  // started. Afterwards the object still answers.
  void Stop(absl::Time end) ABSL_LOCKS_EXCLUDED(mutex_);

  // The last report's status, with what the daemon knows about the process.
  v1::EngineStatus Status() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Where it serves; empty while it is not up.
  v1::CacheEngine Addresses() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether it is up, and how often it was started again.
  std::vector<prometheus::MetricFamily> Collect() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The engine's own metrics in Prometheus's text format. Empty while it is not up.
  std::string MetricsText() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // The supervising thread.
  void Supervise() ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs one process from its start to its end. Returns why it ended.
  std::string RunOnce() ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads reports until the engine's end of the link is closed: the process has ended, or ends now.
  // Sends it the signals that are due.
  void ReadReports(int link, pid_t process) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeReport(v1::EngineReport report) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsUp() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // For people: why it is not up, or why it ended last.
  std::string Problem() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const std::function<v1::EngineStart()> start_;
  mutable absl::Mutex mutex_;
  pid_t process_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none runs.
  v1::EngineReport report_ ABSL_GUARDED_BY(mutex_);
  absl::Time reported_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // When the running process first served; in the future if it has not.
  absl::Time served_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  uint64_t restarts_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string problem_ ABSL_GUARDED_BY(mutex_);  // Why it ended last.
  // The outcome of Start: set when the first process serves, or has ended.
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  Thread supervising_;  // Last: it uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ENGINE_ENGINE_CHILD_H_
