// Shows again and again that the core answers.
#ifndef PAGODA_SERVER_HEARTBEAT_H_
#define PAGODA_SERVER_HEARTBEAT_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "server/periodic_task.h"
#include "server/supervisor.h"

namespace pagoda::server {

// How often a heart beats: twice in the time that a watchdog waits, each second without one.
absl::Duration HeartbeatInterval(absl::Duration watchdog_timeout);

// A beat takes each core's lock, which every request, lease and copy needs, and then tells the
// supervisor that the daemon lives. While somebody does not let go of the lock there is no beat,
// so a watchdog ends a daemon whose threads run and whose core is stuck. What the beat does not
// prove: that gRPC's own threads answer. Thread-safe.
class Heartbeat {
 public:
  // The first beat comes after one interval, on a thread of its own. `touch` takes the locks, one
  // after the other. What it uses, and the supervisor, outlive the heartbeat.
  Heartbeat(absl::Duration interval, std::function<void()> touch, Supervisor* supervisor);

  // How long the beat under way has waited for the core; zero where none waits.
  absl::Duration waiting() const;

 private:
  void Beat();

  const std::function<void()> touch_;
  Supervisor& supervisor_;
  std::atomic<int64_t> waiting_since_ns_{0};  // Of a steady clock; 0: nobody waits.
  PeriodicTask beats_;                        // Last: it uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HEARTBEAT_H_
