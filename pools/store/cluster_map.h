// Which server of a Redis Cluster has a key:
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
#ifndef PAGODA_POOLS_STORE_CLUSTER_MAP_H_
#define PAGODA_POOLS_STORE_CLUSTER_MAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pools/store/resp.h"

namespace pagoda {

struct RedisAddress {
  std::string host;  // A name, or an IPv4 or IPv6 address without brackets.
  uint16_t port = 0;
  friend bool operator==(const RedisAddress&, const RedisAddress&) = default;
  friend auto operator<=>(const RedisAddress&, const RedisAddress&) = default;
};

// "host:port", with brackets around an IPv6 address.
std::string ToString(const RedisAddress& address);
// Parses "host:port", "[ipv6]:port", and "host" with the port 6379. InvalidArgument otherwise.
absl::StatusOr<RedisAddress> ParseRedisAddress(absl::string_view text);

inline constexpr uint32_t kHashSlots = 16384;
// A cluster of more servers is refused. Redis advises to have at most a thousand.
inline constexpr size_t kMaxClusterServers = 2048;

// The key's hash slot: CRC-16 of the key, or of its hash tag ("{...}") if it has one.
uint16_t HashSlot(absl::string_view key);

// The servers of some hash slots.
struct ClusterShard {
  RedisAddress primary;
  std::vector<RedisAddress> replicas;
};

struct ClusterMap {
  static constexpr uint16_t kNoShard = 0xffff;

  std::vector<ClusterShard> shards;
  std::vector<uint16_t> shard_of_slot;  // kHashSlots entries; kNoShard if nobody serves the slot.
};

// Parses the reply of the server `asked` to CLUSTER SLOTS. A server without a host name has the
// host of `asked`. InvalidArgument: the reply has another form, or
// names more than kMaxClusterServers.
absl::StatusOr<ClusterMap> ParseClusterSlots(const resp::Value& reply, const RedisAddress& asked);

// An error reply that names another server.
struct Redirection {
  bool is_ask = false;  // Only for this request; else MOVED, from now on.
  uint16_t slot = 0;
  RedisAddress address;
};
// Parses "MOVED 3999 127.0.0.1:6381" and "ASK ...". nullopt: another error. An empty host means
// `asked`'s.
std::optional<Redirection> ParseRedirection(absl::string_view error, const RedisAddress& asked);

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_CLUSTER_MAP_H_
