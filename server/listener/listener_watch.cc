#include "server/listener/listener_watch.h"

#include <netinet/in.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "server/listener/accept_guard.h"

namespace pagoda::server {
namespace {

uint32_t AcceptCallsOf(const std::vector<int>& sockets) {
  uint32_t calls = 0;
  for (const int socket : sockets) calls += AcceptCalls(socket);
  return calls;
}

// The address of no listener: the kernel chooses a port, or a name among the abstract ones.
socklen_t AnyOwnAddress(sa_family_t family, sockaddr_storage* address) {
  *address = {};
  address->ss_family = family;
  if (family == AF_UNIX) return sizeof(sa_family_t);
  return family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

// An announced connection, which may be under way; none if it cannot be made.
FileDescriptor ConnectAnnounced(const sockaddr_storage& address, socklen_t size, int type) {
  FileDescriptor client(socket(address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!client.valid()) return client;
  sockaddr_storage own;
  const socklen_t own_size = AnyOwnAddress(address.ss_family, &own);
  if (bind(client.get(), reinterpret_cast<const sockaddr*>(&own), own_size) == 0) {
    ExpectKnock(client.get());
    if (connect(client.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 ||
        errno == EINPROGRESS) {
      return client;
    }
    ForgetKnock(client.get());
  }
  return {};
}

void EndKnock(FileDescriptor client) {
  if (client.valid()) ForgetKnock(client.get());
}

}  // namespace

ListenerWatch::~ListenerWatch() {
  looks_.reset();
  absl::MutexLock lock(&mutex_);
  for (Listener& listener : listeners_) EndKnock(std::move(listener.knock));
}

void ListenerWatch::Add(const TcpAddress& address) {
  Listener listener{.name = address.ToString(), .type = SOCK_STREAM};
  listener.size = ToSystem(address, &listener.address);
  listener.sockets = OwnListeners(address);
  Add(std::move(listener));
}

void ListenerWatch::Add(const std::string& path, int type) {
  sockaddr_un address = {};
  if (path.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  Listener listener{.name = path, .size = sizeof(address), .type = type};
  std::memcpy(&listener.address, &address, sizeof(address));
  listener.sockets = OwnListeners(path);
  Add(std::move(listener));
}

void ListenerWatch::Add(Listener listener) {
  if (listener.sockets.empty()) return;
  absl::MutexLock lock(&mutex_);
  listeners_.push_back(std::move(listener));
}

absl::Status ListenerWatch::Start() {
  looks_ = std::make_unique<PeriodicTask>(kInterval, [this] { Look(); });
  return looks_->started();
}

void ListenerWatch::Look() {
  absl::MutexLock lock(&mutex_);
  for (Listener& listener : listeners_) {
    const uint32_t calls = AcceptCallsOf(listener.sockets);
    const bool has_accepted = calls != listener.accept_calls;
    listener.accept_calls = calls;
    listener.silent_looks = has_accepted || !listener.was_knocked ? 0 : listener.silent_looks + 1;
    if (has_accepted) EndKnock(std::move(listener.knock));
    if (!listener.knock.valid()) {
      listener.knock = ConnectAnnounced(listener.address, listener.size, listener.type);
    }
    listener.was_knocked = true;
  }
}

ListenerWatch::Silence ListenerWatch::Longest() const {
  absl::MutexLock lock(&mutex_);
  Silence longest{.listener = "", .time = absl::ZeroDuration()};
  for (const Listener& listener : listeners_) {
    const absl::Duration time = listener.silent_looks * kInterval;
    if (time > longest.time) longest = {.listener = listener.name, .time = time};
  }
  return longest;
}

}  // namespace pagoda::server
