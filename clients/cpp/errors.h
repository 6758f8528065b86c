// From the wire's errors back to the project's: the same code, message and reason that the core
// gave.
#ifndef PAGODA_CLIENTS_CPP_ERRORS_H_
#define PAGODA_CLIENTS_CPP_ERRORS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace pagoda {

// The ErrorInfo domain of the daemon's own errors.
inline constexpr char kErrorDomain[] = "pagoda";

// A status whose ErrorInfo names a known reason becomes MakeError(reason, message); any other keeps
// its code and message, and has no reason.
absl::Status StatusFromProto(const google::rpc::Status& proto);
absl::Status StatusFromGrpc(const grpc::Status& status);

// Whether the daemon says that the caller's session is no more: its lease ran out, it was ended, or
// the daemon was started anew. What the session owned is gone.
bool IsSessionOver(const absl::Status& status);

// Whether nobody said how a call ended: the connection broke, the daemon ended, or no answer came
// in time. An error that the daemon gave has a reason, and is an answer.
bool IsAnswerLost(const absl::Status& status);

// The metadata of the daemon's ErrorInfo, such as oldest_revision; empty where there is none.
std::map<std::string, std::string> ErrorMetadata(const grpc::Status& status);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_ERRORS_H_
