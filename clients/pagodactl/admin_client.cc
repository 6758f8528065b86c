#include "clients/pagodactl/admin_client.h"

namespace pagoda {

const char* TierText(v1::Tier tier) {
  switch (tier) {
    case v1::TIER_PRIMARY:
      return "primary";
    case v1::TIER_SECONDARY:
      return "secondary";
    default:
      return "unknown";
  }
}

absl::Duration DurationFromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

absl::Time TimeFromProto(const google::protobuf::Timestamp& proto) {
  return absl::FromUnixSeconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

absl::StatusOr<AdminClient> AdminClient::Connect(const GlobalOptions& globals) {
  const auto channel = ConnectToDaemon(globals);
  if (!channel.ok()) return channel.status();
  return AdminClient(*channel, globals.timeout());
}

}  // namespace pagoda
