#include "server/supervision/heartbeat.h"

#include <chrono>
#include <utility>

namespace pagoda::server {
namespace {

constexpr absl::Duration kUnwatchedInterval = absl::Seconds(1);

int64_t SteadyNanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

absl::Duration HeartbeatInterval(absl::Duration watchdog_timeout) {
  return watchdog_timeout > absl::ZeroDuration() ? watchdog_timeout / 2 : kUnwatchedInterval;
}

Heartbeat::Heartbeat(absl::Duration interval, std::function<void()> touch, Supervisor* supervisor)
    : touch_(std::move(touch)), supervisor_(*supervisor), beats_(interval, [this] { Beat(); }) {}

absl::Duration Heartbeat::waiting() const {
  const int64_t since = waiting_since_ns_.load(std::memory_order_relaxed);
  return since == 0 ? absl::ZeroDuration() : absl::Nanoseconds(SteadyNanoseconds() - since);
}

void Heartbeat::Beat() {
  waiting_since_ns_.store(SteadyNanoseconds(), std::memory_order_relaxed);
  touch_();
  waiting_since_ns_.store(0, std::memory_order_relaxed);
  supervisor_.Alive();
}

}  // namespace pagoda::server
