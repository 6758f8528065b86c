#include "server/config/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/address_form.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

bool IsIpv6Host(const std::string& host) { return absl::StrContains(host, ':'); }

bool IsNumeric(const std::string& host) {
  in6_addr ignored;
  return inet_pton(IsIpv6Host(host) ? AF_INET6 : AF_INET, host.c_str(), &ignored) == 1;
}

// A TCP socket address in the system's form.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress ToSocketAddress(const TcpAddress& address) {
  SocketAddress result;
  if (IsIpv6Host(address.host)) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address.port);
    inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr);
    result.size = sizeof(sockaddr_in6);
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr);
    result.size = sizeof(sockaddr_in);
  }
  return result;
}

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return MakeError(Reason::kInvalidArgument, absl::StrCat("cannot listen on ", address, ": ", why));
}

// Whether a process accepts connections on the socket file.
bool SomebodyListens(const sockaddr_un& address) {
  const FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return true;  // Unknown, so the file must not be removed.
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno != ECONNREFUSED;
}

}  // namespace

std::string TcpAddress::ToString() const {
  return IsIpv6Host(host) ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<TcpAddress> ParseAddress(const std::string& address) {
  if (const std::string mistake = AddressMistake(address); !mistake.empty()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("'", address, "' is not HOST:PORT: ", mistake));
  }
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port)) return absl::InternalError(address);
  std::string host = address.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (!IsNumeric(host)) {
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("the host of '", address, "' is neither a numeric address nor localhost"));
  }
  return TcpAddress{host, static_cast<uint16_t>(port)};
}

bool IsLoopback(const TcpAddress& address) {
  in_addr v4;
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool MeansThisMachine(const std::string& host) {
  if (host.empty()) return true;
  const size_t colon = absl::EndsWith(host, "]") ? std::string::npos : host.rfind(':');
  const std::string name = absl::AsciiStrToLower(host.substr(0, colon));
  if (name == "localhost") return true;
  const absl::StatusOr<TcpAddress> address = ParseAddress(absl::StrCat(name, ":1"));
  return address.ok() && IsLoopback(*address);
}

absl::StatusOr<ListeningSocket> ListenOn(const TcpAddress& address, int backlog) {
  const SocketAddress target = ToSocketAddress(address);
  FileDescriptor fd(
      socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return CannotListen(address.ToString(), std::strerror(errno));
  // Like the gRPC and HTTP servers: connections of a daemon that just ended do not block the port.
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), target.get(), target.size) != 0 || listen(fd.get(), backlog) != 0) {
    return CannotListen(address.ToString(), errno == EADDRINUSE ? "another process listens there"
                                                                : std::strerror(errno));
  }
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) {
    return CannotListen(address.ToString(), std::strerror(errno));
  }
  const in_port_t port = bound.storage.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6*>(&bound.storage)->sin6_port
                             : reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port;
  return ListeningSocket{std::move(fd), {address.host, ntohs(port)}};
}

absl::Status CheckCanListen(const TcpAddress& address) { return ListenOn(address, 1).status(); }

namespace {

// The sockets of this process that listen, with the addresses to which they are bound.
std::vector<std::pair<int, sockaddr_storage>> AllOwnListeners() {
  std::vector<std::pair<int, sockaddr_storage>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int fd = -1;
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (!absl::SimpleAtoi(entry.path().filename().string(), &fd) ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) {
      continue;
    }
    sockaddr_storage bound = {};
    size = sizeof(bound);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
      found.emplace_back(fd, bound);
    }
  }
  return found;
}

TcpAddress FromSocketAddress(const sockaddr_storage& bound) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (bound.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(bound);
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return {text.data(), ntohs(v6.sin6_port)};
  }
  if (bound.ss_family != AF_INET) return {};
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(bound);
  inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  return {text.data(), ntohs(v4.sin_port)};
}

}  // namespace

socklen_t ToSystem(const TcpAddress& address, sockaddr_storage* system) {
  const SocketAddress result = ToSocketAddress(address);
  *system = result.storage;
  return result.size;
}

std::vector<int> OwnListeners(const TcpAddress& address) {
  // The same address can be written in several ways.
  const std::string wanted = FromSocketAddress(ToSocketAddress(address).storage).ToString();
  const std::string any = TcpAddress{"::", address.port}.ToString();
  std::vector<int> found;
  for (const auto& [fd, bound] : AllOwnListeners()) {
    const std::string name = FromSocketAddress(bound).ToString();
    if (name == wanted || (address.host == "0.0.0.0" && name == any)) found.push_back(fd);
  }
  return found;
}

std::vector<int> OwnListeners(const std::string& path) {
  std::vector<int> found;
  for (const auto& [fd, bound] : AllOwnListeners()) {
    const auto& unix_address = reinterpret_cast<const sockaddr_un&>(bound);
    if (bound.ss_family == AF_UNIX && path == unix_address.sun_path) found.push_back(fd);
  }
  return found;
}

absl::Status ClearStaleSocket(const std::string& path) {
  sockaddr_un address = {};
  if (path.size() >= sizeof(address.sun_path)) {
    return CannotListen(path, absl::StrCat("the path has ", path.size(), " bytes, more than ",
                                           sizeof(address.sun_path) - 1));
  }
  struct stat found;
  if (lstat(path.c_str(), &found) != 0) {
    if (errno != ENOENT) return CannotListen(path, std::strerror(errno));
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    if (access(folder.c_str(), W_OK) == 0) return absl::OkStatus();
    return CannotListen(path, absl::StrCat(folder.string(), ": ", std::strerror(errno)));
  }
  if (!S_ISSOCK(found.st_mode)) return CannotListen(path, "the file there is not a socket");
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (SomebodyListens(address)) return CannotListen(path, "another process listens there");
  if (unlink(path.c_str()) != 0) return CannotListen(path, std::strerror(errno));
  return absl::OkStatus();
}

}  // namespace pagoda::server
