#include "server/rpc/grpc_server.h"

#include <grpc/grpc.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "server/config/listen_address.h"
#include "server/listener/header_guard.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

// A connection that completes no handshake is closed after this time.
constexpr int kHandshakeTimeoutMs = 20'000;

// A dead client is detected after 40 s. Clients can ping every 10 s.
void SetKeepalive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
}

// gRPC bounds the compressed bytes of a message, not what they become, and inflates them before the
// daemon sees the call.
void RefuseCompression(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
}

void Configure(GrpcServer::Options& options, grpc::ServerBuilder& builder) {
  // With port reuse, which is gRPC's default, a second daemon would silently share the port.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(-1);
  RefuseCompression(builder);
  SetKeepalive(builder);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_calls_per_connection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.SetResourceQuota(grpc::ResourceQuota("pagodad").Resize(options.max_grpc_bytes));
  if (options.interceptors != nullptr) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
    factories.push_back(std::move(options.interceptors));
    builder.experimental().SetInterceptorCreators(std::move(factories));
  }
  for (grpc::Service* service : options.services) builder.RegisterService(service);
}

// gRPC reports only that it failed, so detect the known causes first.
absl::Status CheckAddresses(const GrpcServer::Options& options) {
  if (!options.unix_socket.empty()) {
    if (absl::Status status = ClearStaleSocket(options.unix_socket); !status.ok()) return status;
  }
  return options.tcp.has_value() ? CheckCanListen(*options.tcp) : absl::OkStatus();
}

// SECURITY.md describes the attack that is possible if another library replaces the guard's
// functions.
absl::Status CheckGuarded(const GrpcServer::Options& options) {
  if (options.header_guard.ok()) return absl::OkStatus();
  const std::string what =
      absl::StrCat("gRPC's header parser is not guarded, so one client can keep a processor busy: ",
                   std::string(options.header_guard.message()));
  if (options.tcp.has_value() && !IsLoopback(*options.tcp) && !options.allow_unguarded) {
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("other machines can reach ", options.tcp->ToString(), ", and ", what,
                     "; listen on loopback or on the Unix socket, or set "
                     "server.insecure: true"));
  }
  Log(LogLevel::kError, what);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(Options options) {
  if (absl::Status status = CheckAddresses(options); !status.ok()) return status;
  if (absl::Status status = CheckGuarded(options); !status.ok()) return status;
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  Configure(options, builder);
  const std::shared_ptr<grpc::ServerCredentials> plaintext = grpc::InsecureServerCredentials();
  int port = 0;
  if (options.tcp.has_value()) {
    const bool secure = options.tls != nullptr;
    builder.AddListeningPort(options.tcp->ToString(), secure ? options.tls : plaintext, &port);
  }
  const std::string socket = absl::StrCat("unix:", options.unix_socket);
  if (!options.unix_socket.empty()) builder.AddListeningPort(socket, plaintext);

  auto server = absl::WrapUnique(new GrpcServer);
  server->tls_ = options.tls;
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return MakeError(Reason::kInvalidArgument, "gRPC cannot listen on the configured addresses");
  }
  for (const std::string& name : options.service_names) {
    server->server_->GetHealthCheckService()->SetServingStatus(name, false);
  }
  server->server_->GetHealthCheckService()->SetServingStatus(false);
  if (!options.unix_socket.empty()) {
    if (chmod(options.unix_socket.c_str(), kSocketMode) != 0) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("chmod(", options.unix_socket, "): ", std::strerror(errno)));
    }
    server->endpoints_.push_back(socket);
  }
  if (options.tcp.has_value()) {
    const TcpAddress bound{options.tcp->host, static_cast<uint16_t>(port)};
    server->endpoints_.push_back(bound.ToString());
  }
  return server;
}

GrpcServer::~GrpcServer() {
  if (server_ != nullptr) Shutdown(absl::ZeroDuration());
}

void GrpcServer::SetServing() { server_->GetHealthCheckService()->SetServingStatus(true); }

void GrpcServer::SetNotServing() { server_->GetHealthCheckService()->Shutdown(); }

void GrpcServer::Shutdown(absl::Duration grace) {
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
}

}  // namespace pagoda::server
