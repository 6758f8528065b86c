// Looks up the addresses of servers without blocking.
#ifndef PAGODA_POOLS_STORE_ADDRESS_RESOLVER_H_
#define PAGODA_POOLS_STORE_ADDRESS_RESOLVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/store/cluster_map.h"
#include "pools/store/redis_socket.h"

namespace pagoda {

// Asks the system's resolver (getaddrinfo), which can block for many seconds, on at most
// kMaxThreads threads. They can outlive this object, because nothing can interrupt them. Further
// look-ups wait.
// Thread-compatible.
class AddressResolver {
 public:
  static constexpr size_t kMaxThreads = 8;
  using Addresses = absl::StatusOr<std::vector<SocketAddress>>;

  // `wake` is called on any thread when Take has something.
  explicit AddressResolver(std::function<void()> wake);
  ~AddressResolver();

  // The address, if the host is a number. Does not block.
  static absl::StatusOr<SocketAddress> Parse(const RedisAddress& address);
  // Begins a look-up. Its result comes by Take.
  void Begin(const RedisAddress& address);
  // The look-ups that have ended since the last call.
  std::vector<std::pair<RedisAddress, Addresses>> Take();

 private:
  struct Shared;

  static void LookUpAll(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;  // Also owned by the threads.
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_ADDRESS_RESOLVER_H_
