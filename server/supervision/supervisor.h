// Reports the daemon's state to the service manager that started it: systemd, or another one that
// speaks sd_notify(3).
#ifndef PAGODA_SERVER_SUPERVISION_SUPERVISOR_H_
#define PAGODA_SERVER_SUPERVISION_SUPERVISOR_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace pagoda::server {

// Sends datagrams to the socket that $NOTIFY_SOCKET names. If it is not set, every call does
// nothing. A message that does not arrive is logged, and the daemon goes on. `status` is one line
// for people, as `systemctl status` shows it. Line breaks in it become blanks, because one line is
// one variable of the protocol. Thread-safe as long as no thread changes the environment.
class Supervisor {
 public:
  // The progress of the start or the drain.
  void Status(std::string_view status);
  // The start takes this much memory, from now on. 0: it has taken what it needed.
  void TakingMemory(uint64_t bytes);
  // How far the start is: "starting: 41 % of 12288 MiB of memory are taken", or "starting".
  std::string StartText() const;
  // The daemon serves.
  void Ready(std::string_view status);
  // The daemon drains, and ends afterwards.
  void Stopping(std::string_view status);
  // The daemon is alive: resets the watchdog.
  void Alive();

  // The longest time without Alive before the watchdog ends the process, from $WATCHDOG_USEC and
  // $WATCHDOG_PID. Zero if there is no watchdog, or it watches another process.
  absl::Duration watchdog_timeout() const;

 private:
  std::atomic<uint64_t> wanted_bytes_ = 0;
  std::atomic<uint64_t> taken_before_ = 0;  // TakenMemoryBytes() before the start takes memory.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_SUPERVISION_SUPERVISOR_H_
