#include "clients/pagodactl/store/redis_probe.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "pools/store/address_resolver.h"

namespace pagoda {
namespace {

absl::Status TooLate(absl::string_view what) {
  return absl::DeadlineExceededError(absl::StrCat(what, " in time"));
}

AddressResolver::Addresses LookUp(const RedisAddress& address, absl::Duration timeout) {
  const absl::StatusOr<SocketAddress> number = AddressResolver::Parse(address);
  if (number.ok()) return std::vector<SocketAddress>{*number};
  const auto is_there = std::make_shared<absl::Notification>();  // Also owned by the look-up.
  AddressResolver resolver([is_there] { is_there->Notify(); });
  resolver.Begin(address);
  if (!is_there->WaitForNotificationWithTimeout(timeout)) {
    return TooLate(absl::StrCat("the name ", address.host, " was not looked up"));
  }
  return std::move(resolver.Take().front().second);
}

}  // namespace

absl::StatusOr<std::string> ReadStorePassword(const RedisOptions& options) {
  if (options.password_file.empty()) return options.password;
  std::ifstream file(options.password_file);
  std::string line;
  if (file) std::getline(file, line);
  while (!line.empty() && line.back() == '\r') line.pop_back();
  if (!line.empty()) return line;
  return InvalidArgument(
      absl::StrCat("the password file \"", options.password_file, "\" is empty or unreadable"));
}

absl::Status RedisProbe::Wait(absl::Time deadline) const {
  if (socket_->has_received()) return absl::OkStatus();
  const short events = static_cast<short>(POLLIN | (socket_->wants_write() ? POLLOUT : 0));
  pollfd watched = {.fd = socket_->fd(), .events = events, .revents = 0};
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return TooLate("there was no answer");
    const int ready = poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
  }
}

absl::StatusOr<std::unique_ptr<RedisProbe>> RedisProbe::Connect(const RedisAddress& address,
                                                                const RedisOptions& options,
                                                                TlsContext* tls,
                                                                absl::Duration timeout,
                                                                ServerNetworks& networks) {
  const absl::Time deadline = absl::Now() + timeout;
  const absl::StatusOr<std::string> password = ReadStorePassword(options);
  if (!password.ok()) return password.status();
  const AddressResolver::Addresses addresses = LookUp(address, timeout);
  if (!addresses.ok()) return addresses.status();
  absl::Status failure = absl::UnavailableError("the host has no address");
  std::unique_ptr<RedisProbe> probe;
  const bool is_seed =
      std::find(options.seeds.begin(), options.seeds.end(), address) != options.seeds.end();
  for (const SocketAddress& one : *addresses) {
    if (is_seed) networks.AddSeed(one);
    failure = networks.Check(one, !password->empty(), tls != nullptr);
    if (!failure.ok()) continue;
    absl::StatusOr<std::unique_ptr<RedisSocket>> socket =
        RedisSocket::Connect(one, tls, address.host);
    failure = socket.status();
    if (!socket.ok()) continue;
    probe = absl::WrapUnique(new RedisProbe(*std::move(socket)));
    while (failure.ok()) {
      const absl::StatusOr<bool> is_up = probe->socket_->Handshake();
      failure = is_up.status();
      if (!is_up.ok() || *is_up) break;
      failure = probe->Wait(deadline);
    }
    if (failure.ok()) break;
  }
  if (!failure.ok()) return failure;
  if (options.username.empty() && password->empty()) return probe;
  std::vector<absl::string_view> arguments = {"AUTH", options.username, *password};
  if (options.username.empty()) arguments.erase(arguments.begin() + 1);
  const absl::StatusOr<resp::Value> reply = probe->Call(arguments, deadline - absl::Now());
  if (!reply.ok()) return reply.status();
  if (reply->kind == resp::Kind::kError) return absl::PermissionDeniedError(reply->text);
  return probe;
}

absl::StatusOr<resp::Value> RedisProbe::Call(absl::Span<const absl::string_view> arguments,
                                             absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::string command;
  resp::AppendCommand(arguments, command);
  for (size_t sent = 0; sent < command.size();) {
    const iovec piece = {command.data() + sent, command.size() - sent};
    const absl::StatusOr<size_t> written = socket_->Write({&piece, 1});
    if (!written.ok()) return written.status();
    sent += *written;
    if (*written > 0) continue;
    if (absl::Status status = Wait(deadline); !status.ok()) return status;
  }
  resp::Scanner scanner;
  std::array<char, 16 << 10> buffer;
  while (true) {
    const absl::StatusOr<bool> is_whole = scanner.Scan(received_);
    if (!is_whole.ok()) return InvalidArgument("the server does not speak RESP");
    if (*is_whole) break;
    const iovec piece = {buffer.data(), buffer.size()};
    const absl::StatusOr<size_t> read = socket_->Read({&piece, 1});
    if (!read.ok()) return read.status();
    received_.append(buffer.data(), *read);
    if (*read > 0) continue;
    if (absl::Status status = Wait(deadline); !status.ok()) return status;
  }
  absl::StatusOr<std::optional<resp::Parsed>> parsed = resp::Parse(received_);
  if (!parsed.ok() || !parsed->has_value()) {
    return InvalidArgument("the server does not speak RESP");
  }
  received_.erase(0, (*parsed)->bytes);
  return std::move((*parsed)->value);
}

}  // namespace pagoda
