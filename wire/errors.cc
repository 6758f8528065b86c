#include "wire/errors.h"

#include <optional>

#include "absl/time/time.h"
#include "base/error.h"
#include "base/printable.h"
#include "google/rpc/error_details.pb.h"

namespace pagoda {
namespace {

// About one step of an engine, in which another client can have freed blocks.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(50);

std::string ReasonText(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  return reason == Reason::kNone ? absl::StatusCodeToString(status.code())
                                 : std::string(ReasonName(reason));
}

std::optional<google::rpc::ErrorInfo> FindErrorInfo(const google::rpc::Status& proto) {
  for (const google::protobuf::Any& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info) && info.domain() == kErrorDomain) return info;
  }
  return std::nullopt;
}

// The google.rpc.Status in a call's grpc-status-details-bin. Without details if another server or
// gRPC itself made the error.
google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status proto;
  if (!proto.ParseFromString(status.error_details())) proto.Clear();
  proto.set_code(status.error_code());
  proto.set_message(status.error_message());
  return proto;
}

}  // namespace

google::rpc::Status ToProtoStatus(const absl::Status& status, const ErrorMetadata& metadata) {
  google::rpc::Status proto;
  // The codes of Abseil, google.rpc and gRPC are the same numbers.
  proto.set_code(static_cast<int>(status.code()));
  // Messages show names and errors of other processes. Both ends make them printable, because a
  // client can hear from another server.
  proto.set_message(Printable(std::string(status.message())));
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonText(status));
  info.set_domain(kErrorDomain);
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

absl::Status StatusFromProto(const google::rpc::Status& proto) {
  if (const std::optional<google::rpc::ErrorInfo> info = FindErrorInfo(proto)) {
    const Reason reason = ReasonFromName(info->reason());
    if (reason != Reason::kNone) return MakeError(reason, Printable(proto.message()));
  }
  // The codes of gRPC and Abseil are the same numbers.
  return absl::Status(static_cast<absl::StatusCode>(proto.code()), Printable(proto.message()));
}

grpc::Status ToGrpcStatus(const absl::Status& status, const ErrorMetadata& metadata) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status proto = ToProtoStatus(status, metadata);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), proto.message(),
                      proto.SerializeAsString());
}

absl::Status StatusFromGrpc(const grpc::Status& status) {
  return StatusFromProto(DetailsOf(status));
}

ErrorMetadata MetadataOf(const grpc::Status& status) {
  const std::optional<google::rpc::ErrorInfo> info = FindErrorInfo(DetailsOf(status));
  if (!info.has_value()) return {};
  return {info->metadata().begin(), info->metadata().end()};
}

bool IsSessionOver(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  return reason == Reason::kUnknownSession || reason == Reason::kStaleSession;
}

bool IsAnswerLost(const absl::Status& status) {
  if (ReasonOf(status) != Reason::kNone) return false;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:  // A proxy or a dying daemon reset the stream.
    case absl::StatusCode::kUnknown:    // The stream ended without a status.
    case absl::StatusCode::kInternal:   // The stream ended in the middle of a frame.
      return true;
    default:
      return false;
  }
}

}  // namespace pagoda
