#ifndef PAGODA_CLIENTS_CPP_MAP_SOCKET_CALL_H_
#define PAGODA_CLIENTS_CPP_MAP_SOCKET_CALL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"
#include "pagoda/v1/mapping.pb.h"

namespace pagoda {

struct MapSocketAnswer {
  v1::MapPoolsResponse response;
  std::vector<FileDescriptor> descriptors;
};

// Sends one request to the daemon's map socket, and returns its answer.
//
// Errors: those of mapping.proto. Without a reason: NotFound if the socket is not on this machine;
// Unavailable if no daemon listens on it or the daemon closes the connection; PermissionDenied if
// this user may not connect to it; DeadlineExceeded if no answer came within `timeout`;
// ResourceExhausted if the process cannot receive the descriptors; Internal if the answer is
// malformed.
absl::StatusOr<MapSocketAnswer> CallMapSocket(const std::string& path,
                                              const v1::MapPoolsRequest& request,
                                              absl::Duration timeout);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_MAP_SOCKET_CALL_H_
