#include "pools/store/address_resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

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
  const auto end = [shared = shared_, address](Addresses addresses) {
    absl::MutexLock lock(&shared->mutex);
    if (shared->wake == nullptr) return;
    shared->ended.emplace_back(address, std::move(addresses));
    shared->wake();
  };
  try {
    std::thread([end, address] { end(LookUp(address, 0)); }).detach();
  } catch (const std::exception& error) {
    end(absl::UnavailableError(absl::StrCat("a thread for a look-up: ", error.what())));
  }
}

std::vector<std::pair<RedisAddress, AddressResolver::Addresses>> AddressResolver::Take() {
  absl::MutexLock lock(&shared_->mutex);
  return std::exchange(shared_->ended, {});
}

}  // namespace pagoda
