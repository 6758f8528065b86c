#include "pools/store/address_resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/thread.h"

namespace pagoda {
namespace {

AddressResolver::Addresses LookUp(const RedisAddress& address, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the address of ", address.host, ": ", gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress& copied = addresses.emplace_back();
    std::memcpy(&copied.storage, one->ai_addr, one->ai_addrlen);
    copied.size = one->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

struct AddressResolver::Shared {
  absl::Mutex mutex;
  std::function<void()> wake ABSL_GUARDED_BY(mutex);  // Empty: the resolver is gone.
  std::deque<RedisAddress> waiting ABSL_GUARDED_BY(mutex);
  size_t threads ABSL_GUARDED_BY(mutex) = 0;
  std::vector<std::pair<RedisAddress, Addresses>> ended ABSL_GUARDED_BY(mutex);
};

AddressResolver::AddressResolver(std::function<void()> wake) : shared_(std::make_shared<Shared>()) {
  absl::MutexLock lock(&shared_->mutex);
  shared_->wake = std::move(wake);
}

AddressResolver::~AddressResolver() {
  absl::MutexLock lock(&shared_->mutex);
  shared_->wake = nullptr;
}

absl::StatusOr<SocketAddress> AddressResolver::Parse(const RedisAddress& address) {
  Addresses addresses = LookUp(address, AI_NUMERICHOST);
  if (!addresses.ok()) return addresses.status();
  return addresses->front();
}

void AddressResolver::Begin(const RedisAddress& address) {
  absl::MutexLock lock(&shared_->mutex);
  shared_->waiting.push_back(address);
  if (shared_->threads >= kMaxThreads) return;
  Thread thread;
  absl::Status started = thread.Start("pagoda-lookup", [shared = shared_] { LookUpAll(shared); });
  if (started.ok()) {
    thread.Detach();
    ++shared_->threads;
    return;
  }
  if (shared_->threads > 0) return;  // One of them will come to it.
  shared_->waiting.pop_back();
  shared_->ended.emplace_back(address, absl::UnavailableError(started.message()));
  shared_->wake();
}

// A thread: looks up what waits, then ends.
void AddressResolver::LookUpAll(const std::shared_ptr<Shared>& shared) {
  while (true) {
    RedisAddress address;
    {
      absl::MutexLock lock(&shared->mutex);
      if (shared->waiting.empty() || shared->wake == nullptr) {
        --shared->threads;
        return;
      }
      address = std::move(shared->waiting.front());
      shared->waiting.pop_front();
    }
    Addresses addresses = LookUp(address, 0);
    absl::MutexLock lock(&shared->mutex);
    if (shared->wake == nullptr) continue;
    shared->ended.emplace_back(std::move(address), std::move(addresses));
    shared->wake();
  }
}

std::vector<std::pair<RedisAddress, AddressResolver::Addresses>> AddressResolver::Take() {
  absl::MutexLock lock(&shared_->mutex);
  return std::exchange(shared_->ended, {});
}

}  // namespace pagoda
