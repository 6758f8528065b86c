// Errors on the wire, in both directions. Only this file turns a reason into a gRPC status, and a
// gRPC status into a reason.
//
// A status carries the reason's code and message, and one google.rpc.ErrorInfo {reason, domain
// "pagoda", metadata}. For an error without a reason, ErrorInfo has the name of its code
// ("CANCELLED", "INTERNAL"). RESOURCE_EXHAUSTED also carries a google.rpc.RetryInfo, because the
// resources are released sooner or later.
#ifndef PAGODA_WIRE_ERRORS_H_
#define PAGODA_WIRE_ERRORS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace pagoda {

// The ErrorInfo domain of the daemon's own errors.
inline constexpr char kErrorDomain[] = "pagoda";

// Values that a client can use besides the reason, such as {"oldest_revision", "17"}.
using ErrorMetadata = std::map<std::string, std::string>;

// For the error of one operation in a batch. REQUIRES: `status` is an error.
google::rpc::Status ToProtoStatus(const absl::Status& status, const ErrorMetadata& metadata = {});
// Messages are Printable in both directions. A status whose ErrorInfo names a known reason becomes
// MakeError(reason, message). Any other status keeps its code and message, and has no reason.
absl::Status StatusFromProto(const google::rpc::Status& proto);

// For the end of a call. The details are in grpc-status-details-bin. OK stays OK.
grpc::Status ToGrpcStatus(const absl::Status& status, const ErrorMetadata& metadata = {});
absl::Status StatusFromGrpc(const grpc::Status& status);
// Empty if the daemon gave none.
ErrorMetadata MetadataOf(const grpc::Status& status);

// Whether the daemon says that the caller's session is over: its lease ran out, it was ended, or
// the daemon was restarted. Everything that the session owned is gone.
bool IsSessionOver(const absl::Status& status);

// Whether it is unknown how a call ended: the connection broke, the daemon ended, or no answer came
// in time. An error of the daemon has a reason, and is an answer.
bool IsAnswerLost(const absl::Status& status);

}  // namespace pagoda

#endif  // PAGODA_WIRE_ERRORS_H_
