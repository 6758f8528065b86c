#include "tests/server/notify_socket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace pagoda::server {
namespace {

// Only a missing message takes this long.
constexpr int kPatienceMs = 30'000;

bool IsAbstract(const std::string& name) { return name.front() == '@'; }

}  // namespace

NotifySocket::NotifySocket(const std::string& name)
    : name_(name), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (IsAbstract(name)) address.sun_path[0] = '\0';
  const size_t size =
      offsetof(sockaddr_un, sun_path) + name.size() + (IsAbstract(name) ? 0 : sizeof('\0'));
  EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), static_cast<socklen_t>(size)),
            0);
  setenv("NOTIFY_SOCKET", name.c_str(), 1);
}

NotifySocket::~NotifySocket() {
  for (const char* variable : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) {
    unsetenv(variable);
  }
  if (!IsAbstract(name_)) unlink(name_.c_str());
}

void NotifySocket::AskForWatchdog(const std::string& microseconds, const std::string& process) {
  setenv("WATCHDOG_USEC", microseconds.c_str(), 1);
  setenv("WATCHDOG_PID", process.c_str(), 1);
}

std::string NotifySocket::Receive() {
  pollfd readable = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&readable, 1, kPatienceMs), 1) << "no message came";
  return TryReceive();
}

std::string NotifySocket::TryReceive() {
  std::array<char, 4096> buffer;
  const ssize_t size = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  return size < 0 ? "" : std::string(buffer.data(), static_cast<size_t>(size));
}

}  // namespace pagoda::server
