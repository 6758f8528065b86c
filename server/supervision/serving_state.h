#ifndef PAGODA_SERVER_SUPERVISION_SERVING_STATE_H_
#define PAGODA_SERVER_SUPERVISION_SERVING_STATE_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "base/error.h"

namespace pagoda::server {

// DRAINING: the answer to new work while the daemon shuts down.
inline absl::Status Draining() {
  return MakeError(Reason::kDraining, "the daemon is shutting down");
}

// The daemon's phase. It only moves forward. Thread-safe.
class ServingState {
 public:
  enum class Phase : uint8_t {
    kStarting,
    kEngineLoads,  // Clients can call. Probes say that the daemon is not ready.
    kServing,
    kEngineDrains,  // Probes and lists say that the daemon drains. Its engine's generations go on.
    kDraining,
  };

  void Enter(Phase phase) { phase_.store(phase, std::memory_order_release); }
  Phase phase() const { return phase_.load(std::memory_order_acquire); }
  bool draining() const { return phase() == Phase::kDraining; }
  // Whether the end has begun.
  bool ending() const { return phase() >= Phase::kEngineDrains; }

  // DRAINING if new work is refused.
  absl::Status CheckAcceptsWork() const { return draining() ? Draining() : absl::OkStatus(); }

 private:
  std::atomic<Phase> phase_{Phase::kStarting};
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_SUPERVISION_SERVING_STATE_H_
