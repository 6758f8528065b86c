// Shows at regular intervals that the core answers.
#ifndef PAGODA_SERVER_SUPERVISION_HEARTBEAT_H_
#define PAGODA_SERVER_SUPERVISION_HEARTBEAT_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "server/supervision/periodic_task.h"
#include "server/supervision/supervisor.h"

namespace pagoda::server {

// The interval between beats: half of the watchdog's timeout, or one second without a watchdog.
absl::Duration HeartbeatInterval(absl::Duration watchdog_timeout);

// A beat takes each core's lock, which every request, lease and copy needs. Then it notifies the
// supervisor that the daemon is alive. If a thread never releases the lock, there is no beat. A
// watchdog therefore ends a daemon whose threads run but whose core is stuck. A beat does not prove
// that gRPC's own threads answer. Thread-safe.
class Heartbeat {
 public:
  // Starts a thread. The first beat comes after one interval. `touch` takes the cores' locks, one
  // after the other. The supervisor and everything that `touch` uses must outlive the heartbeat.
  Heartbeat(absl::Duration interval, std::function<void()> touch, Supervisor* supervisor);

  // How long the current beat has waited for the core; zero if none is waiting.
  absl::Duration waiting() const;
  // Whether its thread started: see PeriodicTask.
  const absl::Status& started() const { return beats_.started(); }

 private:
  void Beat();

  const std::function<void()> touch_;
  Supervisor& supervisor_;
  std::atomic<int64_t> waiting_since_ns_{0};  // On a steady clock; 0: no beat is waiting.
  PeriodicTask beats_;                        // Last: it uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_SUPERVISION_HEARTBEAT_H_
