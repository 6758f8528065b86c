// Maps the daemon's pools into a client's memory. The protocol is in
// proto/pagoda/v1/mapping.proto.
#ifndef PAGODA_CLIENTS_CPP_MAP_POOLS_H_
#define PAGODA_CLIENTS_CPP_MAP_POOLS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pagoda/v1/types.pb.h"
#include "pools/pool.h"

namespace pagoda {

// Asks the daemon at `map_socket` (OpenSessionResponse.map_socket) for every pool, and maps each
// one. With kReadWrite, the daemon records this process as a writer of the session.
//
// Errors: those of mapping.proto. Without a reason: FailedPrecondition if the daemon has no map
// socket; NotFound if the socket is not on this machine; Unavailable if no daemon listens on it or
// the daemon closes the connection; PermissionDenied if this user may not connect to it;
// DeadlineExceeded if no answer came within `timeout`; ResourceExhausted if the process cannot
// receive one file descriptor per pool segment; Internal if the answer is malformed.
absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(const std::string& map_socket,
                                                                  const v1::SessionRef& session,
                                                                  MemoryAccess access,
                                                                  absl::Duration timeout);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_MAP_POOLS_H_
