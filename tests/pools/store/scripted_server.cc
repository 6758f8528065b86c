#include "tests/pools/store/scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "pools/store/resp.h"

namespace pagoda {

bool ScriptedPeer::Send(std::string bytes) const {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += static_cast<size_t>(sent);
  }
  return true;
}

void ScriptedPeer::SendSlowly(std::string bytes, int pause_ms,
                              const std::atomic<bool>& stop) const {
  for (const char byte : bytes) {
    if (stop || !Send(std::string(1, byte))) return;
    absl::SleepFor(absl::Milliseconds(pause_ms));
  }
}

void ScriptedPeer::Reset() const {
  const linger now = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

ScriptedServer::ScriptedServer(Script script, uint16_t port, SetUp set_up)
    : script_(std::move(script)),
      set_up_(std::move(set_up)),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int reuse = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      listen(listener_.get(), 64) == 0 &&
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port_ = ntohs(address.sin_port);
  }
  acceptor_ = std::thread([this] { Accept(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    for (const int fd : open_) shutdown(fd, SHUT_RDWR);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void ScriptedServer::Accept() {
  while (!stopping_) {
    const int fd = accept(listener_.get(), nullptr, nullptr);
    if (fd < 0) return;
    ++connections_;
    absl::MutexLock lock(&mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void ScriptedServer::Serve(int fd) {
  ScriptedPeer peer(fd, port_);
  std::string received;
  bool goes_on = true;
  while (goes_on && !stopping_) {
    absl::StatusOr<std::optional<resp::Parsed>> parsed = resp::Parse(received);
    if (!parsed.ok()) break;
    if (!parsed->has_value()) {
      std::string more(64 << 10, '\0');
      const ssize_t size = recv(fd, more.data(), more.size(), 0);
      if (size <= 0) break;
      received.append(more, 0, static_cast<size_t>(size));
      continue;
    }
    std::vector<std::string> command;
    for (resp::Value& word : (*parsed)->value.elements) command.push_back(std::move(word.text));
    received.erase(0, (*parsed)->bytes);
    static const std::map<std::string, std::string> kPlain = {
        {"PING", "+PONG\r\n"},
        {"CLUSTER", "-ERR This instance has cluster support disabled\r\n"},
        {"READONLY", "-ERR This instance has cluster support disabled\r\n"},
        {"AUTH", "-ERR AUTH called without any password configured\r\n"}};
    const auto plain = kPlain.find(command[0]);
    if (plain != kPlain.end()) {
      const std::optional<std::string> reply = set_up_ ? set_up_(command[0]) : std::nullopt;
      goes_on = peer.Send(reply.value_or(plain->second));
    } else {
      goes_on = script_(command, peer);
    }
  }
  absl::MutexLock lock(&mutex_);
  std::erase(open_, fd);
  close(fd);
}

}  // namespace pagoda
