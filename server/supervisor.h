// What the service manager that started the daemon hears of it: systemd, or another that speaks
// sd_notify(3).
#ifndef PAGODA_SERVER_SUPERVISOR_H_
#define PAGODA_SERVER_SUPERVISOR_H_

#include <string_view>

#include "absl/time/time.h"

namespace pagoda::server {

// Sends datagrams to the socket that $NOTIFY_SOCKET names. Where that is not set nobody listens,
// and every call does nothing. A message that does not arrive is logged, and the daemon serves on.
// `status` is one line for people, as `systemctl status` shows it; line breaks in it become blanks,
// because a line is a variable of the protocol. Thread-safe while nobody changes the environment.
class Supervisor {
 public:
  // How far the start or the drain is.
  void Status(std::string_view status);
  // The daemon serves.
  void Ready(std::string_view status);
  // The daemon drains, and ends when it has.
  void Stopping(std::string_view status);
  // The daemon lives: for the watchdog.
  void Alive();

  // The longest that the watchdog goes without Alive before it ends the process, from
  // $WATCHDOG_USEC and $WATCHDOG_PID; zero where there is none, or it watches another process.
  absl::Duration watchdog_timeout() const;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_SUPERVISOR_H_
