// Where the daemon listens: "HOST:PORT", or the path of a Unix socket.
#ifndef PAGODA_SERVER_LISTEN_ADDRESS_H_
#define PAGODA_SERVER_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::server {

// A TCP address in numbers.
struct TcpAddress {
  std::string host;              // "127.0.0.1" or "::1".
  uint16_t port = 0;             // 0: any free port.
  std::string ToString() const;  // "127.0.0.1:7070", "[::1]:7070".
};

// Reads "127.0.0.1:7070", "[::1]:7070", "localhost:7070", "0.0.0.0:7070": numbers, of any
// interface. Errors: INVALID_ARGUMENT for anything else.
absl::StatusOr<TcpAddress> ParseAddress(const std::string& address);
bool IsLoopback(const TcpAddress& address);

// Whether a request that reached loopback with this Host header ("localhost:7071") means this
// machine: by a number, or as localhost. One that does not comes from a page of another site, whose
// name its owner lets point here. A client without the header is none of a browser's.
bool MeansThisMachine(const std::string& host);

// INVALID_ARGUMENT with the address and the system's word for it, where `address` cannot be bound
// now, for example because another daemon listens there. A port that is free now may be taken
// later: this is for the message.
absl::Status CheckCanListen(const TcpAddress& address);

// A socket that listens: the descriptor is the caller's, does not block and is closed by exec.
struct ListeningSocket {
  int fd;
  TcpAddress address;  // With the port that was taken where the address asked for any.
};
// Errors: those of CheckCanListen.
absl::StatusOr<ListeningSocket> ListenOn(const TcpAddress& address, int backlog);

// Connects to a loopback address and hangs up. Says nothing, also where nobody listens.
void Knock(const TcpAddress& address);

// Makes way for a socket at `path`: removes one that nobody listens on any more.
// Errors: INVALID_ARGUMENT where a living process listens on it, or where the path is too long, is
// another kind of file, or lies in a folder that cannot be written.
absl::Status ClearStaleSocket(const std::string& path);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LISTEN_ADDRESS_H_
