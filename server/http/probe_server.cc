#include "server/http/probe_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "server/rpc/accept_guard.h"

namespace pagoda::server {
namespace {

constexpr int kBacklog = 1024;
// The connections that are accepted before the open ones are served again: a fraction of
// kMaxConnections.
constexpr int kAcceptsPerRound = 64;
// The pause if the process has no free descriptor and no open connection here can be closed.
constexpr absl::Duration kPause = absl::Milliseconds(100);

size_t MaxConnections() {
  return std::min<size_t>(ProbeServer::kMaxConnections, OpenFileLimit() / 8);
}

int PollTimeout(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return -1;
  const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 60'000));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeServer>> ProbeServer::Start(const TcpAddress& address,
                                                                HttpServer::Routes routes) {
  absl::StatusOr<ListeningSocket> listener = ListenOn(address, kBacklog);
  if (!listener.ok()) return listener.status();
  ExemptFromAcceptRule(listener->fd);
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  PAGODA_CHECK(stop_fd >= 0, "there is a descriptor for eventfd()");
  auto server = absl::WrapUnique(
      new ProbeServer(listener->address, std::move(routes), listener->fd, stop_fd));
  absl::Status started = server->thread_.Start("pagoda-probes", [s = server.get()] { s->Run(); });
  if (!started.ok()) return started;
  return server;
}

ProbeServer::~ProbeServer() {
  const uint64_t one = 1;
  PAGODA_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one), "eventfd takes 8 bytes");
  thread_.Join();
  for (const Connection& connection : connections_) close(connection.fd);
  close(listener_);
  close(stop_fd_);
}

void ProbeServer::Run() {
  std::vector<pollfd> polled;
  while (true) {
    polled = {{.fd = stop_fd_, .events = POLLIN, .revents = 0},
              {.fd = listener_, .events = POLLIN, .revents = 0}};
    for (const Connection& connection : connections_) {
      polled.push_back({.fd = connection.fd, .events = POLLIN, .revents = 0});
    }
    const absl::Time first =
        connections_.empty() ? absl::InfiniteFuture() : connections_.front().deadline;
    if (poll(polled.data(), polled.size(), PollTimeout(first)) < 0) continue;  // EINTR.
    if (polled[0].revents != 0) return;
    const absl::Time now = absl::Now();
    size_t i = 2;
    for (auto connection = connections_.begin(); connection != connections_.end(); ++i) {
      const bool goes_on = polled[i].revents == 0 ? now < connection->deadline : Serve(*connection);
      if (goes_on) {
        ++connection;
        continue;
      }
      close(connection->fd);
      connection = connections_.erase(connection);
    }
    // After the open connections are served: an arrived request is never dropped for a new
    // connection.
    if (polled[1].revents != 0) Accept();
  }
}

void ProbeServer::Accept() {
  for (int accepted = 0; accepted < kAcceptsPerRound; ++accepted) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      if (connections_.empty()) absl::SleepFor(kPause);
    } else if (fd < 0) {
      return;  // No connection waits any more.
    } else {
      connections_.push_back({.fd = fd, .deadline = absl::Now() + kRequestTime, .received = {}});
      // A probe sends its request at once, so most are answered without another round.
      if (!Serve(connections_.back())) {
        close(fd);
        connections_.pop_back();
        continue;
      }
      if (connections_.size() <= MaxConnections()) continue;
    }
    if (connections_.empty()) return;
    // The oldest connection's request may have arrived since it was last served.
    (void)Serve(connections_.front());
    close(connections_.front().fd);
    connections_.pop_front();
  }
}

bool ProbeServer::Serve(Connection& connection) const {
  std::array<char, kMaxRequestBytes> piece;
  const ssize_t count = recv(connection.fd, piece.data(), piece.size(), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  connection.received.append(piece.data(), static_cast<size_t>(count));
  const std::string answer = AnswerTo(connection.received);
  if (answer.empty()) return connection.received.size() < kMaxRequestBytes;
  // A fresh socket takes these few hundred bytes at once.
  (void)!send(connection.fd, answer.data(), answer.size(), MSG_NOSIGNAL);
  shutdown(connection.fd, SHUT_WR);
  return false;
}

std::string ProbeServer::AnswerTo(const std::string& received) const {
  if (!absl::StrContains(received, "\r\n\r\n")) return "";
  const std::vector<std::string> words =
      absl::StrSplit(received.substr(0, received.find("\r\n")), ' ');
  HttpResponse response{.status = 400, .body = "not a request\n"};
  if (words.size() == 3 && absl::StartsWith(words[2], "HTTP/1.")) {
    const auto route = routes_.find(words[1].substr(0, words[1].find('?')));
    if (words[0] != "GET" && words[0] != "HEAD") {
      response = {.status = 405, .body = "GET only\n"};
    } else if (route == routes_.end()) {
      response = {.status = 404, .body = "not found\n"};
    } else {
      response = route->second(HttpRequest{});
    }
  }
  return absl::StrCat(HeadOf(response), words[0] == "HEAD" ? "" : response.body);
}

}  // namespace pagoda::server
