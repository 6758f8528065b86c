#include "tests/pools/store/resp_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace pagoda {
namespace {

// The ports of servers: from the first on, and below the second.
constexpr uint16_t kLeastPort = 10000, kMostPort = 22000;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

resp::Value Broken(const char* what) {
  resp::Value value;
  value.kind = resp::Kind::kError;
  value.text = what;
  return value;
}

}  // namespace

RespClient::RespClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in address = Loopback(port);
  timeval patience = {.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fd_ = FileDescriptor();
  }
}

resp::Value RespClient::Do(const std::vector<std::string>& arguments) {
  std::string command;
  const std::vector<absl::string_view> views(arguments.begin(), arguments.end());
  resp::AppendCommand(views, command);
  if (send(fd_.get(), command.data(), command.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(command.size())) {
    return Broken("BROKEN send");
  }
  while (true) {
    absl::StatusOr<std::optional<resp::Parsed>> parsed = resp::Parse(received_);
    if (!parsed.ok()) return Broken("BROKEN reply");
    if (parsed->has_value()) {
      received_.erase(0, (*parsed)->bytes);
      return std::move((*parsed)->value);
    }
    std::string more(64 << 10, '\0');
    const ssize_t size = recv(fd_.get(), more.data(), more.size(), 0);
    if (size <= 0) return Broken("BROKEN connection");
    received_.append(more, 0, static_cast<size_t>(size));
  }
}

uint16_t FreePort() {
  std::random_device random;
  for (int i = 0; i < 1000; ++i) {
    const auto port = static_cast<uint16_t>(kLeastPort + random() % (kMostPort - kLeastPort));
    const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(port);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return port;
    }
  }
  return 0;
}

}  // namespace pagoda
