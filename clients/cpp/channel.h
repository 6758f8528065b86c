#ifndef PAGODA_CLIENTS_CPP_CHANNEL_H_
#define PAGODA_CLIENTS_CPP_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace pagoda {

// The largest message that a channel takes or sends: a batch that adds a few sequences of a million
// tokens fits.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Who the client is, and how it knows the daemon. Files are PEM, and are read when the channel is
// made.
struct ClientCredentials {
  // Sent with every call: on TLS, on a Unix socket and on loopback, nowhere else.
  std::string token;
  // Who signed the daemon's certificate; with this a TCP endpoint is TLS. The endpoint's host must
  // be one of the certificate's names.
  std::string ca_file;
  // The client's own certificate and its key, where the daemon asks for one.
  std::string certificate_file;
  std::string key_file;
};

// The first line of a file that holds a token; lines that are empty or begin with '#' do not count.
// Errors: INVALID_ARGUMENT where there is no such file or no token in it.
absl::StatusOr<std::string> ReadBearerToken(const std::string& path);

// A channel to a daemon at "unix:/path" or "host:port"; never through an HTTP proxy. Plaintext, or
// TLS over TCP where there is a ca_file. Connects lazily. Errors: INVALID_ARGUMENT where a file
// cannot be read, the files do not go together, or the token would go in plaintext to another
// machine.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& endpoint, const ClientCredentials& credentials = {});

// As MakeChannel, but waits until the daemon answers. A refused connection fails at once, a silent
// host after `timeout`. Errors also: UNAVAILABLE, without a reason, with the endpoint in the
// message; a TLS handshake that fails is one.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& endpoint,
                                                       absl::Duration timeout,
                                                       const ClientCredentials& credentials = {});

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_CHANNEL_H_
