// A gRPC server as the daemon runs it: its addresses, limits, health and end.
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
#include "server/listen_address.h"
#include "server/rpc/header_guard.h"
#include "server/rpc/tls_credentials.h"

namespace pagoda::server {

// Thread-safe. Plaintext on the Unix socket, TLS on TCP where there are credentials for it. What
// calls and connections hold in gRPC's own memory is bounded: near the bound gRPC ends calls and
// refuses connections. A connection whose headers exceed HeaderLimit ends (header_guard.h).
// grpc.health.v1 answers for the whole server ("") and for each service;
// grpc.reflection.v1alpha where it is asked for.
class GrpcServer {
 public:
  enum class Reflection { kOff, kOn };

  struct Options {
    std::string unix_socket;  // Empty: none.
    std::optional<TcpAddress> tcp;
    std::shared_ptr<TlsCredentials> tls;  // For TCP; nullptr: plaintext.
    int max_message_bytes = 4 << 20;
    int max_calls_per_connection = 2048;  // Further ones wait at the client.
    size_t max_grpc_bytes = size_t{2} << 30;
    Reflection reflection = Reflection::kOn;
    std::vector<grpc::Service*> services;  // Outlive the server.
    std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> interceptors;
    // Whether the header guard is in place. Where it is not, TCP beyond loopback takes
    // `allow_unguarded`: anybody who reaches it could keep a processor busy.
    absl::Status header_guard = CheckHeaderGuard();
    bool allow_unguarded = false;
  };

  // Listens, and is NOT_SERVING. A socket file that nobody listens on is replaced; the socket's
  // mode is 0660. Errors: INVALID_ARGUMENT where an address is taken or cannot be listened on, or
  // would be served without the header guard.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(Options options);
  // Shuts down at once if nobody has.
  ~GrpcServer();

  void SetServing();
  // For good.
  void SetNotServing();

  // Takes no new calls, waits for those that run, and cancels what is left after `grace`. Returns
  // when all handlers are done.
  void Shutdown(absl::Duration grace);

  // Where it listens, with the port that was taken where the address asked for any: "unix:/path",
  // "127.0.0.1:7070".
  const std::vector<std::string>& endpoints() const { return endpoints_; }

 private:
  GrpcServer() = default;

  std::shared_ptr<TlsCredentials> tls_;  // Shared with gRPC's builder; asked as long as it serves.
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> endpoints_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_GRPC_SERVER_H_
