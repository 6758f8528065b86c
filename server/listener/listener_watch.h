// Shows that the daemon's listeners accept connections.
#ifndef PAGODA_SERVER_LISTENER_LISTENER_WATCH_H_
#define PAGODA_SERVER_LISTENER_LISTENER_WATCH_H_

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"
#include "server/config/listen_address.h"
#include "server/supervision/periodic_task.h"

namespace pagoda::server {

// Connects to each listener once a second. A listener is silent while such a connection waits and
// the listener accepts nothing. A connection is closed when it is accepted, and no server sees it
// (accept_guard.h). Thread-safe; no call waits.
class ListenerWatch {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  ~ListenerWatch();

  // Begins to watch a listener of this process. If there is none at the address, nothing is
  // watched.
  void Add(const TcpAddress& address) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for a Unix socket: SOCK_STREAM or SOCK_SEQPACKET.
  void Add(const std::string& path, int type) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts the thread that calls Look every second. Errors: those of Thread::Start.
  absl::Status Start();

  // Sees which listeners have accepted something since the last check, and connects to them again.
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);

  // The listener that has been silent for longest. The time is that of the checks, so that it does
  // not grow while the process is stopped.
  struct Silence {
    std::string listener;  // "127.0.0.1:7070" or a path.
    absl::Duration time;   // Zero: no listener is silent.
  };
  Silence Longest() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Listener {
    std::string name;
    sockaddr_storage address;
    socklen_t size;
    int type;
    std::vector<int> sockets;
    uint32_t accept_calls = 0;  // At the last check.
    FileDescriptor knock;       // The connection that waits, if any.
    bool was_knocked = false;
    int64_t silent_looks = 0;
  };

  void Add(Listener listener) ABSL_LOCKS_EXCLUDED(mutex_);

  mutable absl::Mutex mutex_;
  std::vector<Listener> listeners_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<PeriodicTask> looks_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LISTENER_LISTENER_WATCH_H_
