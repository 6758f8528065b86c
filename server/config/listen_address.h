// The addresses the daemon listens on: "HOST:PORT", or the path of a Unix socket.
#ifndef PAGODA_SERVER_CONFIG_LISTEN_ADDRESS_H_
#define PAGODA_SERVER_CONFIG_LISTEN_ADDRESS_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_descriptor.h"

namespace pagoda::server {

// The mode of a Unix socket: its user and group can connect.
inline constexpr mode_t kSocketMode = 0660;

// A numeric TCP address.
struct TcpAddress {
  std::string host;              // "127.0.0.1" or "::1".
  uint16_t port = 0;             // 0: any free port.
  std::string ToString() const;  // "127.0.0.1:7070", "[::1]:7070".
};

// Reads "127.0.0.1:7070", "[::1]:7070", "0.0.0.0:7070" (the numeric address of any interface) or
// "localhost:7070". Errors: INVALID_ARGUMENT for anything else.
absl::StatusOr<TcpAddress> ParseAddress(const std::string& address);
bool IsLoopback(const TcpAddress& address);

// Whether the Host header of a request to loopback ("localhost:7071") names this machine: localhost
// or a loopback address. Any other name comes from a page of another site, whose owner lets its
// name resolve to this machine. An empty `host` counts as this machine: a client without the header
// is not a browser.
bool MeansThisMachine(const std::string& host);

// INVALID_ARGUMENT with the address and the system's error text if `address` cannot be bound now,
// for example because another daemon listens there. This is for the error message: a port that is
// free now can be taken later.
absl::Status CheckCanListen(const TcpAddress& address);

// A listening socket.
struct ListeningSocket {
  FileDescriptor fd;   // Non-blocking and close-on-exec.
  TcpAddress address;  // If any port was asked for, with the port that the system chose.
};
// Errors: those of CheckCanListen.
absl::StatusOr<ListeningSocket> ListenOn(const TcpAddress& address, int backlog);

// Writes the system's form of the address. Returns its size.
socklen_t ToSystem(const TcpAddress& address, sockaddr_storage* system);

// The descriptors of this process's sockets that listen at the address. gRPC listens at [::] for
// 0.0.0.0.
std::vector<int> OwnListeners(const TcpAddress& address);
// The same for the path of a Unix socket.
std::vector<int> OwnListeners(const std::string& path);

// Prepares `path` for a new socket: removes a stale socket, on which no process listens. Errors:
// INVALID_ARGUMENT if a live process listens on it, the path is too long, the file is not a socket,
// or the folder is not writable.
absl::Status ClearStaleSocket(const std::string& path);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_LISTEN_ADDRESS_H_
