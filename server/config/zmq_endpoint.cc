#include "server/config/zmq_endpoint.h"

#include <cstring>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/config/listen_address.h"

namespace pagoda::server {
namespace {

constexpr char kIpc[] = "ipc://";
constexpr char kInproc[] = "inproc://";
constexpr char kTcp[] = "tcp://";

// Splits "host:port" and stores the host. Returns whether the port is valid.
bool SplitTcp(std::string_view address, std::string_view* host) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == address.size()) return false;
  *host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  return port == "*" || port.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

absl::Status CheckEndpoint(const std::string& endpoint) {
  std::string_view host;
  bool good = false;
  for (const char* path : {kIpc, kInproc}) {
    good = good || (absl::StartsWith(endpoint, path) && endpoint.size() > std::strlen(path));
  }
  if (absl::StartsWith(endpoint, kTcp)) {
    good = SplitTcp(std::string_view(endpoint).substr(std::strlen(kTcp)), &host);
  }
  if (good) return absl::OkStatus();
  return MakeError(
      Reason::kInvalidArgument,
      absl::StrCat("'", endpoint, "' is not tcp://HOST:PORT, ipc://PATH or inproc://NAME"));
}

bool Listens(const std::string& endpoint, ZmqMode mode) {
  if (mode != ZmqMode::kAuto) return mode == ZmqMode::kListen;
  return absl::StrContains(endpoint, "*") || absl::StrContains(endpoint, "::") ||
         absl::StartsWith(endpoint, kIpc) || absl::StartsWith(endpoint, kInproc);
}

bool StaysHere(const std::string& endpoint) {
  if (!absl::StartsWith(endpoint, kTcp)) return true;
  std::string_view host;
  if (!SplitTcp(std::string_view(endpoint).substr(std::strlen(kTcp)), &host)) return false;
  // ZMQ takes IPv6 addresses without brackets too.
  const bool is_bare = host.find(':') != std::string_view::npos && !host.starts_with('[');
  const absl::StatusOr<TcpAddress> address =
      ParseAddress(absl::StrCat(is_bare ? "[" : "", std::string(host), is_bare ? "]" : "", ":0"));
  return address.ok() && IsLoopback(*address);
}

std::string SocketFile(const std::string& endpoint) {
  if (!absl::StartsWith(endpoint, kIpc)) return "";
  const std::string path = endpoint.substr(std::strlen(kIpc));
  return absl::StartsWith(path, "@") ? "" : path;
}

bool IsInProcess(const std::string& endpoint) { return absl::StartsWith(endpoint, kInproc); }

bool IsIpv6(const std::string& endpoint) { return absl::StrContains(endpoint, "["); }

}  // namespace pagoda::server
