#include "server/error_map.h"

#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "pools/error.h"

namespace pagoda::server {
namespace {

constexpr char kDomain[] = "pagoda";
// About as long as an engine's step: by then another client may have freed something.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(50);

std::string ReasonText(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  return reason == Reason::kNone ? absl::StatusCodeToString(status.code())
                                 : std::string(ReasonName(reason));
}

}  // namespace

google::rpc::Status ToProtoStatus(const absl::Status& status, const ErrorMetadata& metadata) {
  google::rpc::Status proto;
  // The codes of Abseil, google.rpc and gRPC are the same numbers.
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(std::string(status.message()));
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonText(status));
  info.set_domain(kDomain);
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  proto.add_details()->PackFrom(info);
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(absl::ToInt64Nanoseconds(kRetryDelay)));
    proto.add_details()->PackFrom(retry);
  }
  return proto;
}

grpc::Status ToGrpcStatus(const absl::Status& status, const ErrorMetadata& metadata) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      ToProtoStatus(status, metadata).SerializeAsString());
}

}  // namespace pagoda::server
