// A connection to a Redis or Valkey server, for a thread that may wait.
#ifndef PAGODA_CLIENTS_ROUTER_STORE_LINK_H_
#define PAGODA_CLIENTS_ROUTER_STORE_LINK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pools/store/cluster_map.h"
#include "pools/store/redis_options.h"
#include "pools/store/redis_socket.h"
#include "pools/store/resp.h"

namespace pagoda {

// Sends commands in pipelines and waits for their replies. After an error it cannot be used any
// more. Thread-compatible.
class StoreLink {
 public:
  struct Options {
    RedisAddress address;
    RedisTls tls;
    std::string username;
    std::string password;  // With an empty username and password: no AUTH.
    // For the connect, and for each pipeline.
    absl::Duration timeout = absl::Seconds(2);
  };
  using Command = std::vector<std::string>;

  // Connects, and identifies itself. Blocks. Errors: UNAVAILABLE, DEADLINE_EXCEEDED,
  // PERMISSION_DENIED (the server refuses AUTH), INVALID_ARGUMENT (a file of `tls`).
  static absl::StatusOr<std::unique_ptr<StoreLink>> Connect(const Options& options);

  // Sends the commands, and returns their replies in order. A reply can be an error of the server.
  // Blocks. Errors: UNAVAILABLE, DEADLINE_EXCEEDED, INVALID_ARGUMENT (the server does not speak
  // RESP).
  absl::StatusOr<std::vector<resp::Value>> Run(const std::vector<Command>& commands);

 private:
  StoreLink(std::unique_ptr<TlsContext> tls, std::unique_ptr<RedisSocket> socket,
            absl::Duration timeout)
      : tls_(std::move(tls)), socket_(std::move(socket)), timeout_(timeout) {}

  absl::Status Write(const std::string& bytes, absl::Time deadline);
  absl::Status ReadMore(absl::Time deadline);
  absl::Status Await(absl::Time deadline);

  const std::unique_ptr<TlsContext> tls_;
  const std::unique_ptr<RedisSocket> socket_;
  const absl::Duration timeout_;
  std::string received_;  // And not parsed.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_STORE_LINK_H_
