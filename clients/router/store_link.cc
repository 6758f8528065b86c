#include "clients/router/store_link.h"

#include <netdb.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "pools/store/address_resolver.h"

namespace pagoda {
namespace {

// While it lives, a write to a closed connection fails instead of raising a signal.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    if (sigismember(&before_, SIGPIPE) != 0) return;
    const timespec now = {};
    while (sigtimedwait(&pipe_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
};

absl::StatusOr<SocketAddress> Resolve(const RedisAddress& address) {
  if (absl::StatusOr<SocketAddress> parsed = AddressResolver::Parse(address); parsed.ok()) {
    return parsed;
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(ToString(address), ": ", gai_strerror(error)));
  }
  SocketAddress result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.size = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreLink>> StoreLink::Connect(const Options& options) {
  const WithoutSigpipe without_sigpipe;
  const absl::Time deadline = absl::Now() + options.timeout;
  std::unique_ptr<TlsContext> tls;
  if (options.tls.is_on) {
    absl::StatusOr<std::unique_ptr<TlsContext>> loaded = TlsContext::Load(options.tls);
    if (!loaded.ok()) return loaded.status();
    tls = *std::move(loaded);
  }
  const absl::StatusOr<SocketAddress> address = Resolve(options.address);
  if (!address.ok()) return address.status();
  absl::StatusOr<std::unique_ptr<RedisSocket>> socket =
      RedisSocket::Connect(*address, tls.get(), options.address.host);
  if (!socket.ok()) return socket.status();
  std::unique_ptr<StoreLink> link(
      new StoreLink(std::move(tls), *std::move(socket), options.timeout));
  for (;;) {
    const absl::StatusOr<bool> done = link->socket_->Handshake();
    if (!done.ok()) return done.status();
    if (*done) break;
    if (absl::Status waited = link->Await(deadline); !waited.ok()) return waited;
  }
  if (options.username.empty() && options.password.empty()) return link;
  Command auth = {"AUTH"};
  if (!options.username.empty()) auth.push_back(options.username);
  auth.push_back(options.password);
  const absl::StatusOr<std::vector<resp::Value>> reply = link->Run({auth});
  if (!reply.ok()) return reply.status();
  if (reply->front().kind == resp::Kind::kError) {
    return absl::PermissionDeniedError(reply->front().text);
  }
  return link;
}

absl::Status StoreLink::Await(absl::Time deadline) {
  if (socket_->has_received()) return absl::OkStatus();
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("the store did not answer in time");
  }
  pollfd wanted = {
      .fd = socket_->fd(),
      .events = static_cast<int16_t>(socket_->wants_write() ? POLLIN | POLLOUT : POLLIN),
      .revents = 0};
  const int ready = poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
  if (ready < 0 && errno != EINTR) return absl::UnavailableError(std::strerror(errno));
  return absl::OkStatus();
}

absl::Status StoreLink::Write(const std::string& bytes, absl::Time deadline) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const iovec piece = {const_cast<char*>(bytes.data()) + sent, bytes.size() - sent};
    const absl::StatusOr<size_t> moved = socket_->Write({&piece, 1});
    if (!moved.ok()) return moved.status();
    sent += *moved;
    if (*moved > 0) continue;
    if (absl::Status waited = Await(deadline); !waited.ok()) return waited;
  }
  return absl::OkStatus();
}

absl::Status StoreLink::ReadMore(absl::Time deadline) {
  std::array<char, 1 << 16> buffer;
  const iovec piece = {buffer.data(), buffer.size()};
  for (;;) {
    const absl::StatusOr<size_t> moved = socket_->Read({&piece, 1});
    if (!moved.ok()) return moved.status();
    if (*moved > 0) {
      received_.append(buffer.data(), *moved);
      return absl::OkStatus();
    }
    if (absl::Status waited = Await(deadline); !waited.ok()) return waited;
  }
}

absl::StatusOr<std::vector<resp::Value>> StoreLink::Run(const std::vector<Command>& commands) {
  const WithoutSigpipe without_sigpipe;
  const absl::Time deadline = absl::Now() + timeout_;
  std::string bytes;
  std::vector<absl::string_view> arguments;
  for (const Command& command : commands) {
    arguments.assign(command.begin(), command.end());
    resp::AppendCommand(arguments, bytes);
  }
  // The server keeps its replies while we write.
  if (absl::Status written = Write(bytes, deadline); !written.ok()) return written;
  std::vector<resp::Value> replies;
  replies.reserve(commands.size());
  size_t parsed_bytes = 0;
  resp::Scanner scanner;
  while (replies.size() < commands.size()) {
    const absl::string_view rest = absl::string_view(received_).substr(parsed_bytes);
    const absl::StatusOr<bool> complete = scanner.Scan(rest);
    if (!complete.ok()) return complete.status();
    if (!*complete) {
      received_.erase(0, std::exchange(parsed_bytes, 0));
      if (absl::Status read = ReadMore(deadline); !read.ok()) return read;
      continue;
    }
    absl::StatusOr<std::optional<resp::Parsed>> parsed = resp::Parse(rest);
    if (!parsed.ok()) return parsed.status();
    replies.push_back(std::move((*parsed)->value));
    parsed_bytes += scanner.end();
    scanner.Reset();
  }
  received_.erase(0, parsed_bytes);
  return replies;
}

}  // namespace pagoda
