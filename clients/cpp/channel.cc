#include "clients/cpp/channel.h"

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/address_form.h"
#include "base/error.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_interceptor.h"

namespace pagoda {
namespace {

absl::Status Refuse(const std::string& what) { return MakeError(Reason::kInvalidArgument, what); }

bool IsUnixSocket(const std::string& endpoint) {
  return absl::StartsWith(endpoint, "unix:") || absl::StartsWith(endpoint, "unix-abstract:");
}

// gRPC resolves the rest of these names itself.
bool HasScheme(const std::string& endpoint) {
  for (const char* scheme : {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "xds:"}) {
    if (absl::StartsWith(endpoint, scheme)) return true;
  }
  return false;
}

// gRPC takes any text for a name, and then says only that no daemon answers there.
absl::Status CheckEndpoint(const std::string& endpoint) {
  if (HasScheme(endpoint)) return absl::OkStatus();
  const std::string mistake = AddressMistake(endpoint);
  if (mistake.empty()) return absl::OkStatus();
  const bool is_path = absl::StartsWith(endpoint, "/") || absl::StartsWith(endpoint, ".");
  return Refuse(absl::StrCat(
      "the endpoint '", endpoint, "' is not HOST:PORT: ", mistake, "; ",
      is_path ? absl::StrCat("write unix:", endpoint)
              : "name the daemon's gRPC address (server.grpc_address, such as 127.0.0.1:7070) or "
                "its Unix socket (unix:/path)"));
}

// Puts the token into the metadata of a call. gRPC's own call credentials refuse plaintext, even on
// a Unix socket.
class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string* authorization) : authorization_(authorization) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* call) override {
    if (call->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      call->GetSendInitialMetadata()->emplace("authorization", *authorization_);
    }
    call->Proceed();
  }

 private:
  const std::string* const authorization_;
};

// The channel owns it; calls end before their channel does.
class TokenFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenFactory(const std::string& token)
      : authorization_(absl::StrCat("Bearer ", token)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenInterceptor(&authorization_);
  }

 private:
  const std::string authorization_;
};

// Does nothing if the path is empty.
absl::Status ReadPem(const std::string& path, std::string* pem) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in.is_open() || text.str().empty()) return Refuse(absl::StrCat("cannot read ", path));
  *pem = text.str();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ToGrpc(
    const std::string& endpoint, const ClientCredentials& credentials) {
  if (credentials.certificate_file.empty() != credentials.key_file.empty()) {
    return Refuse("a client certificate needs its key, and a key its certificate; one is missing");
  }
  if (credentials.ca_file.empty() && !credentials.certificate_file.empty()) {
    return Refuse("a client certificate is for TLS, which also needs the daemon's CA");
  }
  if (credentials.ca_file.empty() || IsUnixSocket(endpoint)) {
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions options;
  for (const auto& [path, pem] :
       {std::pair(&credentials.ca_file, &options.pem_root_certs),
        std::pair(&credentials.key_file, &options.pem_private_key),
        std::pair(&credentials.certificate_file, &options.pem_cert_chain)}) {
    if (absl::Status status = ReadPem(*path, pem); !status.ok()) return status;
  }
  return grpc::SslCredentials(options);
}

// Why the channel's connection has just failed.
enum class Failure {
  kNobody,       // The system refused it: no daemon runs there.
  kSlow,         // No answer came within one attempt, or one came only now.
  kOtherServer,  // Another server than gRPC answered, such as one of HTTP/1.
};

// A call on a failed channel fails at once, with gRPC's own words about the connection.
Failure WhyItFailed(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
  grpc::CompletionQueue queue;
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  const auto call = grpc::GenericStub(channel).PrepareUnaryCall(
      &context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool is_done = false;
  queue.Next(&tag, &is_done);
  if (absl::StrContains(status.error_message(), "http1") ||
      absl::StrContains(status.error_message(), "Failed parsing HTTP/2")) {
    return Failure::kOtherServer;
  }
  const bool no_connection = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  return no_connection && !absl::StrContains(status.error_message(), "timed out") ? Failure::kNobody
                                                                                  : Failure::kSlow;
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // Otherwise all channels of this process to one endpoint would share one connection and its flow
  // control.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Ignore the environment's HTTP proxy.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Find a restarted daemon soon. "MIN" is how long one connection attempt may take.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A call whose peer disappears silently ends after 30 s. The daemon allows a ping every 10 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace

bool IsOnThisMachine(const std::string& endpoint) {
  // The name of a remote host may also begin with "127.".
  const bool in_numbers = endpoint.find_first_not_of("0123456789.:") == std::string::npos;
  return IsUnixSocket(endpoint) || (in_numbers && absl::StartsWith(endpoint, "127.")) ||
         absl::StartsWith(endpoint, "localhost:") || absl::StartsWith(endpoint, "[::1]:");
}

absl::StatusOr<std::string> ReadBearerToken(const std::string& path) {
  std::ifstream in(path);
  if (!in.is_open()) return Refuse(absl::StrCat("cannot read the token file ", path));
  for (std::string line; std::getline(in, line);) {
    const absl::string_view token = absl::StripAsciiWhitespace(line);
    if (!token.empty() && token.front() != '#') return std::string(token);
  }
  return Refuse(absl::StrCat("there is no token in ", path));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& endpoint,
                                                           const ClientCredentials& credentials) {
  if (absl::Status status = CheckEndpoint(endpoint); !status.ok()) return status;
  const auto channel_credentials = ToGrpc(endpoint, credentials);
  if (!channel_credentials.ok()) return channel_credentials.status();
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  if (!credentials.token.empty()) {
    if (credentials.ca_file.empty() && !IsOnThisMachine(endpoint)) {
      return Refuse(absl::StrCat("the token would go to ", endpoint,
                                 " in plaintext: use TLS by naming the daemon's CA"));
    }
    factories.push_back(std::make_unique<TokenFactory>(credentials.token));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(endpoint, *channel_credentials,
                                                                 Arguments(), std::move(factories));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& endpoint,
                                                       absl::Duration timeout,
                                                       const ClientCredentials& credentials) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> made = MakeChannel(endpoint, credentials);
  if (!made.ok()) return made;
  const std::shared_ptr<grpc::Channel>& channel = *made;
  const bool tls = !credentials.ca_file.empty() && !IsUnixSocket(endpoint);
  const std::string daemon = tls ? "no daemon with a certificate of that CA and name" : "no daemon";
  const absl::Time deadline = absl::Now() + timeout;
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      const Failure failure = WhyItFailed(channel);
      if (failure == Failure::kOtherServer) {
        return absl::UnavailableError(
            absl::StrCat("what answers at ", endpoint,
                         " is no gRPC server; name the daemon's server.grpc_address, and not its "
                         "server.http_address"));
      }
      if (failure == Failure::kNobody || state == GRPC_CHANNEL_SHUTDOWN) {
        return absl::UnavailableError(absl::StrCat(daemon, " answers at ", endpoint));
      }
    }
    if (!channel->WaitForStateChange(state, absl::ToChronoTime(deadline))) {
      return absl::UnavailableError(absl::StrCat(daemon, " answered at ", endpoint, " within ",
                                                 absl::FormatDuration(timeout)));
    }
    state = channel->GetState(/*try_to_connect=*/true);
  }
  return made;
}

}  // namespace pagoda
