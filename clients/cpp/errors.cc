#include "clients/cpp/errors.h"

#include <optional>

#include "google/rpc/error_details.pb.h"
#include "pools/error.h"

namespace pagoda {
namespace {

std::optional<google::rpc::ErrorInfo> FindErrorInfo(const google::rpc::Status& proto) {
  for (const google::protobuf::Any& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info) && info.domain() == kErrorDomain) return info;
  }
  return std::nullopt;
}

// The google.rpc.Status in a call's grpc-status-details-bin; without details where another server
// or gRPC itself made the error.
google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status proto;
  if (!proto.ParseFromString(status.error_details())) proto.Clear();
  proto.set_code(status.error_code());
  proto.set_message(status.error_message());
  return proto;
}

}  // namespace

absl::Status StatusFromProto(const google::rpc::Status& proto) {
  if (const std::optional<google::rpc::ErrorInfo> info = FindErrorInfo(proto)) {
    const Reason reason = ReasonFromName(info->reason());
    if (reason != Reason::kNone) return MakeError(reason, proto.message());
  }
  // The codes of gRPC and Abseil are the same numbers.
  return absl::Status(static_cast<absl::StatusCode>(proto.code()), proto.message());
}

absl::Status StatusFromGrpc(const grpc::Status& status) {
  return StatusFromProto(DetailsOf(status));
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
    case absl::StatusCode::kCancelled:  // A stream that a proxy or a dying daemon reset.
    case absl::StatusCode::kUnknown:    // One that ended without a status.
    case absl::StatusCode::kInternal:   // One that ended in the middle of a frame.
      return true;
    default:
      return false;
  }
}

std::map<std::string, std::string> ErrorMetadata(const grpc::Status& status) {
  const std::optional<google::rpc::ErrorInfo> info = FindErrorInfo(DetailsOf(status));
  if (!info.has_value()) return {};
  return {info->metadata().begin(), info->metadata().end()};
}

}  // namespace pagoda
