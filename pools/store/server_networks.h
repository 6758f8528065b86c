// The networks in which a client of a cluster connects to servers.
#ifndef PAGODA_POOLS_STORE_SERVER_NETWORKS_H_
#define PAGODA_POOLS_STORE_SERVER_NETWORKS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pools/store/redis_socket.h"

namespace pagoda {

// A cluster names its servers, and anybody who answers for one of them can name others. So the
// client connects only to allowed ones:
//
// 1. The seeds' own addresses, at any port.
// 2. If networks are given, addresses in them. Otherwise the addresses near a seed's: with the same
//    first 24 bits (IPv4) or 64 bits (IPv6). If a seed is a loopback address, each loopback address
//    is near, and no other one.
//
// An IPv4 address that is written as IPv6 (::ffff:a.b.c.d) is the IPv4 address. Thread-compatible.
class ServerNetworks {
 public:
  // `networks`: "10.0.0.0/8", "fd00::/8", or one address. Empty: rule 2 has none. Errors:
  // InvalidArgument.
  static absl::StatusOr<ServerNetworks> Parse(const std::vector<std::string>& networks);

  // An address that a seed has. At most kMaxSeeds are kept: the latest.
  void AddSeed(const SocketAddress& address);
  // Errors: PermissionDenied (not an allowed address; or a `password` would go to another address
  // than a seed's without `tls`).
  absl::Status Check(const SocketAddress& address, bool has_password, bool has_tls) const;

 private:
  static constexpr size_t kMaxSeeds = 1024;
  struct Network {
    std::string bytes;  // 4 or 16.
    uint32_t bits = 0;
  };

  static bool Contains(const Network& network, absl::string_view address);
  bool Allows(absl::string_view address) const;

  std::vector<Network> networks_;
  std::deque<std::string> seeds_;  // The bytes of their addresses.
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_SERVER_NETWORKS_H_
