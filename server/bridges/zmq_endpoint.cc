#include "server/bridges/zmq_endpoint.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "pools/error.h"
#include "server/listen_address.h"

namespace pagoda::server {
namespace {

constexpr char kIpc[] = "ipc://";
constexpr char kInproc[] = "inproc://";
constexpr char kTcp[] = "tcp://";
constexpr mode_t kSocketMode = 0660;

// What a peer may send to a publisher or a replay socket is a few bytes.
constexpr int64_t kMaxReceivedBytes = 1024;

// The host of "tcp://host:port", and whether the port is one.
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
      absl::StrCat("'", endpoint, "' is none of tcp://HOST:PORT, ipc://PATH, inproc://NAME"));
}

bool IsBound(const std::string& endpoint) {
  return absl::StrContains(endpoint, "*") || absl::StrContains(endpoint, "::") ||
         absl::StartsWith(endpoint, kIpc) || absl::StartsWith(endpoint, kInproc);
}

bool StaysHere(const std::string& endpoint) {
  if (!absl::StartsWith(endpoint, kTcp)) return true;
  std::string_view host;
  if (!SplitTcp(std::string_view(endpoint).substr(std::strlen(kTcp)), &host)) return false;
  const absl::StatusOr<TcpAddress> address = ParseAddress(absl::StrCat(std::string(host), ":0"));
  return address.ok() && IsLoopback(*address);
}

absl::StatusOr<std::string> OpenEndpoint(zmq::socket_t& socket, const std::string& endpoint) {
  try {
    socket.set(zmq::sockopt::maxmsgsize, kMaxReceivedBytes);
    socket.set(zmq::sockopt::ipv6, absl::StrContains(endpoint, "["));
    if (!IsBound(endpoint)) {
      socket.connect(endpoint);
      return endpoint;
    }
    socket.bind(endpoint);
  } catch (const zmq::error_t& error) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("ZMQ cannot use ", endpoint, ": ", error.what()));
  }
  if (absl::StartsWith(endpoint, kIpc)) {
    const std::string path = endpoint.substr(std::strlen(kIpc));
    // An abstract socket has no file.
    if (path.front() != '@' && chmod(path.c_str(), kSocketMode) != 0) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("chmod(", path, "): ", std::strerror(errno)));
    }
  }
  return socket.get(zmq::sockopt::last_endpoint);
}

}  // namespace pagoda::server
