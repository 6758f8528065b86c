// One blocking connection to a server that speaks RESP, to find out what it answers.
#ifndef PAGODA_CLIENTS_PAGODACTL_STORE_REDIS_PROBE_H_
#define PAGODA_CLIENTS_PAGODACTL_STORE_REDIS_PROBE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "pools/store/cluster_map.h"
#include "pools/store/redis_options.h"
#include "pools/store/redis_socket.h"
#include "pools/store/resp.h"
#include "pools/store/server_networks.h"

namespace pagoda {

// For diagnosis: it tells the reason of each failure and does nothing in parallel. RedisStore is
// the client for blocks. SIGPIPE must be blocked on the calling thread. Not thread-safe.
class RedisProbe {
 public:
  // Looks the host up, connects, shakes hands and sends AUTH as RedisStore does. `tls` may be null.
  // The addresses of seeds are added to `networks`, and those of other servers are checked. Errors:
  // Unavailable (no address, no connection, TLS), DeadlineExceeded, PermissionDenied (the networks
  // do not allow the server; it refuses the user), InvalidArgument (the server does not speak
  // RESP).
  static absl::StatusOr<std::unique_ptr<RedisProbe>> Connect(const RedisAddress& address,
                                                             const RedisOptions& options,
                                                             TlsContext* tls,
                                                             absl::Duration timeout,
                                                             ServerNetworks& networks);

  // Sends a command and waits for its reply. An error of the server is a reply. Errors:
  // Unavailable, DeadlineExceeded, InvalidArgument. After an error the connection is of no use.
  absl::StatusOr<resp::Value> Call(absl::Span<const absl::string_view> arguments,
                                   absl::Duration timeout);

 private:
  explicit RedisProbe(std::unique_ptr<RedisSocket> socket) : socket_(std::move(socket)) {}

  // Waits until the socket can go on. Errors: DeadlineExceeded.
  absl::Status Wait(absl::Time deadline) const;

  const std::unique_ptr<RedisSocket> socket_;
  std::string received_;  // Not parsed yet.
};

// The password of the options: the first line of the file, if there is one. Errors: InvalidArgument
// (the file cannot be read, or has none).
absl::StatusOr<std::string> ReadStorePassword(const RedisOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_STORE_REDIS_PROBE_H_
