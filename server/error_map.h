// The project's errors on the wire: the one place where a reason becomes a gRPC status.
//
// A status carries the reason's code and message, and one google.rpc.ErrorInfo {reason, domain
// "pagoda", metadata}. An error without a reason of its own has its code's name as the reason
// ("CANCELLED", "INTERNAL"). RESOURCE_EXHAUSTED also carries a google.rpc.RetryInfo: what is taken
// now is given back sooner or later.
#ifndef PAGODA_SERVER_ERROR_MAP_H_
#define PAGODA_SERVER_ERROR_MAP_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace pagoda::server {

// What a client can act on besides the reason, such as {"oldest_revision", "17"}.
using ErrorMetadata = std::map<std::string, std::string>;

// For the error of one operation in a batch. REQUIRES: `status` is an error.
google::rpc::Status ToProtoStatus(const absl::Status& status, const ErrorMetadata& metadata = {});

// For the end of a call; the details are in grpc-status-details-bin. OK is OK.
grpc::Status ToGrpcStatus(const absl::Status& status, const ErrorMetadata& metadata = {});

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ERROR_MAP_H_
