#include "clients/cpp/channel.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace pagoda {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // Channels of one process to one endpoint would otherwise share a connection, and its flow
  // control.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A daemon is on this machine: a proxy that the environment names is not the way to it.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A daemon that is started again is found soon. "min" is how long one try may take.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A connection whose other side is silently gone ends after 30 s. The daemon allows a ping every
  // 10 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& endpoint,
                                                       absl::Duration timeout) {
  std::shared_ptr<grpc::Channel> channel = MakeChannel(endpoint);
  const absl::Time deadline = absl::Now() + timeout;
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return absl::UnavailableError(absl::StrCat("no daemon answers at ", endpoint));
    }
    if (!channel->WaitForStateChange(state, absl::ToChronoTime(deadline))) {
      return absl::UnavailableError(absl::StrCat("no daemon answered at ", endpoint, " within ",
                                                 absl::FormatDuration(timeout)));
    }
    state = channel->GetState(/*try_to_connect=*/true);
  }
  return channel;
}

}  // namespace pagoda
