#ifndef PAGODA_ENGINE_SERVE_DAEMON_DAEMON_LINK_H_
#define PAGODA_ENGINE_SERVE_DAEMON_DAEMON_LINK_H_

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/thread.h"
#include "pagoda/v1/engine_process.pb.h"

namespace pagoda {

// The engine's end of the socket to the daemon that started it (server/engine/engine_child.h). If
// the daemon ends, this process ends at once: the next daemon starts an engine of its own, at the
// same addresses. Thread-safe.
class DaemonLink {
 public:
  // Makes a report, with the metrics or without.
  enum class Metrics { kWithout, kWith };
  using ReportFunction = std::function<v1::EngineReport(Metrics)>;

  // What the daemon says at the start. Called once, before any other process is started. Errors:
  // FAILED_PRECONDITION if no daemon has started this process.
  static absl::StatusOr<v1::EngineStart> ReadStart();

  // Starts the thread that checks for the daemon's end. Errors: those of Thread::Start.
  absl::Status Start();
  ~DaemonLink();

  // The thread sends a report five times a second, and after 20 ms if the status has changed. From
  // now on it is what `report` returns; the first one goes out at once. Null: the engine does not
  // serve.
  void SetReport(ReportFunction report) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the daemon why the engine could not start.
  void ReportFailure(const absl::Status& status);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void SendReport(Metrics metrics) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;  // Held while a report is made and sent.
  ReportFunction report_ ABSL_GUARDED_BY(mutex_);
  std::string last_status_ ABSL_GUARDED_BY(mutex_);  // The one that was sent last.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;  // Last: it uses the others.
};

// From now on the kernel kills this process when the thread that started it ends, even a stopped
// process, which does not see the end of a socket.
void EndWithParent();

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_DAEMON_DAEMON_LINK_H_
