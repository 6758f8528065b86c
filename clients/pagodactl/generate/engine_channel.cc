#include "clients/pagodactl/generate/engine_channel.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "clients/cpp/channel.h"
#include "clients/pagodactl/command/admin_client.h"
#include "pagoda/v1/admin.grpc.pb.h"

namespace pagoda {
namespace {

bool IsUnixSocket(const std::string& address) { return absl::StartsWith(address, "unix"); }

// Whether the path of "unix:/path" or "unix:///path" exists here.
bool SocketExists(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return false;
  absl::ConsumePrefix(&address, "//");
  std::error_code ignored;
  return std::filesystem::exists(std::string(address), ignored);
}

// "host:7070" of "host:7070", "dns:///host:7070" and "ipv4:host:7070".
std::string WithoutScheme(const std::string& endpoint) {
  for (const char* scheme : {"dns:", "ipv4:", "ipv6:"}) {
    absl::string_view rest = endpoint;
    if (absl::ConsumePrefix(&rest, scheme)) return std::string(rest.substr(rest.rfind('/') + 1));
  }
  return endpoint;
}

// Both REQUIRE: a TCP address, "host:port".
std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }
std::string WithHost(const std::string& host, const std::string& address) {
  return absl::StrCat(host, address.substr(HostOf(address).size()));
}

bool IsOnAllInterfaces(const std::string& address) {
  const std::string host = HostOf(address);
  return host == "0.0.0.0" || host == "[::]";
}

// The engine's TCP address as this machine reaches it; empty if it cannot.
std::string Reached(const std::string& daemon, const std::string& address) {
  const bool is_here = IsOnThisMachine(daemon);
  if (IsOnAllInterfaces(address)) {
    return WithHost(IsUnixSocket(daemon) ? "127.0.0.1" : HostOf(daemon), address);
  }
  if (!IsOnThisMachine(address)) return address;
  if (!is_here) return "";
  // A certificate may have the name alone.
  return HostOf(daemon) == "localhost" ? WithHost("localhost", address) : address;
}

// The addresses of the engine in the daemon's answer. `cache` is the name that was asked for.
absl::StatusOr<std::vector<std::string>> AddressesIn(const v1::ListCachesResponse& list,
                                                     const std::string& cache) {
  for (const v1::CacheRow& row : list.caches()) {
    if (!row.has_engine()) continue;
    const auto& addresses = row.engine_addresses().grpc();
    if (!addresses.empty()) return std::vector<std::string>(addresses.begin(), addresses.end());
    if (row.engine_addresses().http().empty()) {
      return EngineUnavailable("the daemon's engine is not up; pagodactl status says why");
    }
    return absl::FailedPreconditionError(
        "the daemon's engine does not serve gRPC (engine.grpc_address, engine.unix_socket)");
  }
  return MakeError(Reason::kNoEngine,
                   cache.empty() ? "the daemon runs without a model; start it with engine.model_dir"
                                 : absl::StrCat("no engine runs over the cache '", cache, "'"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> EngineEndpoints(
    const std::string& daemon, const std::vector<std::string>& addresses) {
  const std::string endpoint = WithoutScheme(daemon);
  std::vector<std::string> reached;
  for (const std::string& address : addresses) {
    if (IsOnThisMachine(endpoint) && SocketExists(address)) reached.push_back(address);
  }
  for (const std::string& address : addresses) {
    if (IsUnixSocket(address)) continue;
    const std::string own = Reached(endpoint, address);
    if (!own.empty()) reached.push_back(own);
  }
  if (!reached.empty()) return reached;
  const std::string where = absl::StrJoin(addresses, " and ");
  return absl::FailedPreconditionError(
      IsOnThisMachine(endpoint)
          ? absl::StrCat("the daemon's engine listens only at ", where,
                         ", and that socket is not here; it can also have a TCP address "
                         "(engine.grpc_address)")
          : absl::StrCat("the daemon's engine listens only on the daemon's machine, at ", where,
                         "; run the command there, or let the engine listen for other machines "
                         "(engine.grpc_address)"));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToEngine(const GlobalOptions& globals) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> daemon = ConnectToDaemon(globals);
  if (!daemon.ok()) return daemon;
  v1::ListCachesRequest request;
  request.set_name(globals.cache);
  const absl::StatusOr<v1::ListCachesResponse> list =
      AdminClient(*daemon, globals).Call(&AdminClient::Stub::ListCaches, request);
  // An engine has no AdminService.
  if (absl::IsUnimplemented(list.status())) return daemon;
  if (!list.ok()) return list.status();
  const auto addresses = AddressesIn(*list, globals.cache);
  if (!addresses.ok()) return addresses.status();
  const auto endpoints = EngineEndpoints(globals.endpoint, *addresses);
  if (!endpoints.ok()) return endpoints.status();
  const absl::StatusOr<ClientCredentials> credentials = CredentialsOf(globals.credentials);
  if (!credentials.ok()) return credentials.status();
  absl::Status failed;
  for (const std::string& endpoint : *endpoints) {
    auto channel = Connect(endpoint, globals.timeout(), *credentials);
    if (channel.ok() || !absl::IsUnavailable(channel.status())) return channel;
    failed = EngineUnavailable(
        absl::StrCat("the daemon's engine cannot be reached: ", channel.status().message()));
  }
  return failed;
}

void AddToAnswer(const v1::GenerateResponse& message, v1::GenerateResponse* answer) {
  std::string text = std::move(*answer->mutable_text());
  text += message.text();
  answer->MergeFrom(message);
  answer->set_text(std::move(text));
}

}  // namespace pagoda
