// The options of a Redis Cluster client.
#ifndef PAGODA_POOLS_STORE_REDIS_OPTIONS_H_
#define PAGODA_POOLS_STORE_REDIS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "pools/store/cluster_map.h"

namespace pagoda {

struct RedisTls {
  bool is_on = false;
  std::string ca_file;           // PEM. Empty: the system's certificate authorities.
  std::string certificate_file;  // PEM, with key_file: for servers that ask for a certificate.
  std::string key_file;
};

struct RedisOptions {
  // Servers that are asked for the cluster's map, or one plain server. At least one.
  std::vector<RedisAddress> seeds;
  std::string key_prefix = "pagoda:";  // Before each key. ACL rules can name it.
  // A secret that all readers and writers share. See stored_value.h. Empty: no authentication of
  // values.
  std::string secret;

  std::string username;       // Empty: the default user.
  std::string password;       // Empty, like password_file: no AUTH.
  std::string password_file;  // Read at each connect, so that a password can change.
  RedisTls tls;
  // Get and Exists also ask replicas. A replica can lag behind its primary: then it misses.
  bool read_from_replicas = false;

  // The first seed is one plain server: it is not asked for a map, and cannot redirect the client
  // to other servers. For servers that are trusted less than their values, which are verified.
  bool is_plain = false;
  // Where servers that are not seeds may be. See ServerNetworks. Empty: near the seeds.
  std::vector<std::string> allowed_networks;

  uint32_t connections_per_node = 2;  // 1 to 64.
  uint32_t pipeline = 16;             // Operations in flight on a connection. 1 to 1024.
  uint32_t max_waiting = 65536;       // Operations that have not ended. Further ones are
                                      // kOverloaded. At least 1.
  absl::Duration connect_timeout = absl::Seconds(2);
  // A connection is closed if its oldest operation has not ended after this time, whatever arrives.
  // So it bounds the time that one value may take.
  absl::Duration stall_timeout = absl::Seconds(5);
  absl::Duration min_backoff = absl::Milliseconds(50);  // Between two connects to a server.
  absl::Duration max_backoff = absl::Seconds(5);
  absl::Duration map_refresh = absl::Seconds(30);  // How often the cluster's map is asked for.
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_REDIS_OPTIONS_H_
