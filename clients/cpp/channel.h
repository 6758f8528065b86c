#ifndef PAGODA_CLIENTS_CPP_CHANNEL_H_
#define PAGODA_CLIENTS_CPP_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace pagoda {

// The largest message that a channel receives or sends. A batch that adds a few sequences of a
// million tokens fits.
inline constexpr int kMaxMessageBytes = 64 << 20;

// The client's identity, and how it verifies the daemon's. Files are PEM. They are read when the
// channel is made.
struct ClientCredentials {
  // The bearer token, sent with every call. It is sent only over TLS, a Unix socket or loopback.
  std::string token;
  // The CA that signed the daemon's certificate. If it is set, a TCP endpoint uses TLS. The
  // endpoint's host must be one of the certificate's names.
  std::string ca_file;
  // The client's own certificate and key, if the daemon asks for a client certificate.
  std::string certificate_file;
  std::string key_file;
};

// Returns the token in a file: its first line that is not empty and does not begin with '#'.
// Errors: INVALID_ARGUMENT if the file cannot be read or holds no token.
absl::StatusOr<std::string> ReadBearerToken(const std::string& path);

// Whether an endpoint is certainly on this machine: a Unix socket, "localhost:7070", or a loopback
// address in numbers.
bool IsOnThisMachine(const std::string& endpoint);

// Makes a channel to a daemon at "unix:/path" or "host:port". The channel never uses an HTTP proxy.
// It is plaintext, or TLS over TCP if `ca_file` is set. It connects lazily.
// Errors: INVALID_ARGUMENT if the endpoint has another form (the message says which form is meant),
// if a file cannot be read, if the files do not fit together, or if the token would go to another
// machine in plaintext.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& endpoint, const ClientCredentials& credentials = {});

// Like MakeChannel, but waits until the daemon answers. A refused connection fails at once. A
// silent host, or a daemon that stands still, fails only after `timeout`. Errors: those of
// MakeChannel; UNAVAILABLE, without a reason, with the endpoint in the message. A failed TLS
// handshake is also UNAVAILABLE.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& endpoint,
                                                       absl::Duration timeout,
                                                       const ClientCredentials& credentials = {});

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_CHANNEL_H_
