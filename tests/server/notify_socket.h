// A service manager for tests: the socket that $NOTIFY_SOCKET names.
#ifndef PAGODA_TESTS_SERVER_NOTIFY_SOCKET_H_
#define PAGODA_TESTS_SERVER_NOTIFY_SOCKET_H_

#include <string>

namespace pagoda::server {

// Sets the variables of sd_notify(3) for this process as long as it lives. One at a time.
class NotifySocket {
 public:
  // A file; a name that begins with '@' is one of Linux's abstract names.
  explicit NotifySocket(const std::string& name);
  // As systemd does for a unit with WatchdogSec=.
  void AskForWatchdog(const std::string& microseconds, const std::string& process);
  ~NotifySocket();

  // The next message; fails the test, and gives "", where none comes for many seconds.
  std::string Receive();
  // The next message that is there now; "" where there is none.
  std::string TryReceive();

 private:
  const std::string name_;
  int fd_ = -1;
};

}  // namespace pagoda::server

#endif  // PAGODA_TESTS_SERVER_NOTIFY_SOCKET_H_
