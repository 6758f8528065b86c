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

// A plaintext channel to a daemon at "unix:/path" or "host:port"; never through an HTTP proxy.
// Connects lazily, so it never fails.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& endpoint);

// As MakeChannel, but waits until the daemon answers. A refused connection fails at once, a silent
// host after `timeout`. Errors: UNAVAILABLE, without a reason, with the endpoint in the message.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& endpoint,
                                                       absl::Duration timeout);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_CHANNEL_H_
