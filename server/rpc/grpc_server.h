// A gRPC server with the daemon's addresses, limits, health checks and shutdown.
#ifndef PAGODA_SERVER_RPC_GRPC_SERVER_H_
#define PAGODA_SERVER_RPC_GRPC_SERVER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/config/listen_address.h"
#include "server/listener/header_guard.h"
#include "server/rpc/tls_credentials.h"

namespace pagoda::server {

// Serves plaintext on the Unix socket, and TLS on TCP if it has credentials. The memory that calls
// and connections use inside gRPC is bounded: near the bound gRPC ends calls and refuses
// connections. A connection whose headers exceed HeaderLimit ends (header_guard.h). grpc.health.v1
// answers for the whole server ("") and for each service. Every service is asynchronous: gRPC gives
// each call of a synchronous one a thread. Thread-safe.
class GrpcServer {
 public:
  struct Options {
    std::string unix_socket;  // Empty: none.
    std::optional<TcpAddress> tcp;
    std::shared_ptr<TlsCredentials> tls;  // For TCP; nullptr: plaintext.
    int max_message_bytes = 4 << 20;
    int max_calls_per_connection = 2048;  // Further calls wait at the client.
    size_t max_grpc_bytes = size_t{2} << 30;
    std::vector<grpc::Service*> services;    // Must outlive the server.
    std::vector<std::string> service_names;  // What health checks can ask for, besides "".
    std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> interceptors;
    // Whether the header guard is in place. Without it, TCP beyond loopback requires
    // `allow_unguarded`: any client that reaches the port could keep a processor busy.
    absl::Status header_guard = CheckHeaderGuard();
    bool allow_unguarded = false;
  };

  // Listens; health is NOT_SERVING. Replaces a socket file on which no process listens. The
  // socket's mode is 0660. Errors: INVALID_ARGUMENT if an address is in use, cannot be listened on,
  // or would be served without the header guard.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(Options options);
  // Shuts down at once unless Shutdown was called.
  ~GrpcServer();

  void SetServing();
  // Final: SetServing has no effect afterwards.
  void SetNotServing();

  // Accepts no new calls, waits for the running ones, and cancels the remaining ones after `grace`.
  // Returns when all handlers are done.
  void Shutdown(absl::Duration grace);

  // The listening addresses: "unix:/path", "127.0.0.1:7070". If any port was asked for, with the
  // port that the system chose.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

 private:
  GrpcServer() = default;

  std::shared_ptr<TlsCredentials>
      tls_;  // Shared with gRPC's builder; gRPC calls it while it serves.
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> endpoints_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_GRPC_SERVER_H_
