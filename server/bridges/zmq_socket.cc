#include "server/bridges/zmq_socket.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/config/listen_address.h"

namespace pagoda::server {
namespace {

// A peer sends only a few bytes to a publisher or a replay socket.
constexpr int64_t kMaxReceivedBytes = 1024;

// How long a closing socket keeps sending queued messages to its peers. Not 0: libzmq 4.3 aborts if
// a connection is lost while a socket drops the rest of a message, and messages that the peers have
// read by then are not dropped.
constexpr int kLingerMs = 200;

}  // namespace

absl::StatusOr<std::string> OpenEndpoint(zmq::socket_t& socket, const std::string& endpoint,
                                         ZmqMode mode) {
  try {
    socket.set(zmq::sockopt::linger, kLingerMs);
    socket.set(zmq::sockopt::maxmsgsize, kMaxReceivedBytes);
    socket.set(zmq::sockopt::ipv6, IsIpv6(endpoint));
    if (!Listens(endpoint, mode)) {
      socket.connect(endpoint);
      return endpoint;
    }
    socket.bind(endpoint);
  } catch (const zmq::error_t& error) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("ZMQ cannot use ", endpoint, ": ", error.what()));
  }
  if (const std::string file = SocketFile(endpoint);
      !file.empty() && chmod(file.c_str(), kSocketMode) != 0) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("chmod(", file, "): ", std::strerror(errno)));
  }
  return socket.get(zmq::sockopt::last_endpoint);
}

}  // namespace pagoda::server
