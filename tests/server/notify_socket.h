// A service manager for tests: the socket that $NOTIFY_SOCKET names.
#ifndef PAGODA_TESTS_SERVER_NOTIFY_SOCKET_H_
#define PAGODA_TESTS_SERVER_NOTIFY_SOCKET_H_

#include <string>

#include "base/file_descriptor.h"

namespace pagoda::server {

// Sets the variables of sd_notify(3) for this process while it exists. Use only one at a time.
class NotifySocket {
 public:
  // A file's path; a name that begins with '@' is an abstract name of Linux.
  explicit NotifySocket(const std::string& name);
  // Like systemd for a unit with WatchdogSec=.
  void AskForWatchdog(const std::string& microseconds, const std::string& process);
  ~NotifySocket();

  // The next message. If none comes for many seconds, fails the test and returns "".
  std::string Receive();
  // The next message that has already arrived; "" if there is none.
  std::string TryReceive();

 private:
  const std::string name_;
  const FileDescriptor fd_;
};

}  // namespace pagoda::server

#endif  // PAGODA_TESTS_SERVER_NOTIFY_SOCKET_H_
