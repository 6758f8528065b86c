// How a client gets the pools' memory: proto/pagoda/v1/mapping.proto.
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

// Asks the daemon at `map_socket` (OpenSessionResponse.map_socket) for every pool, and maps it. The
// daemon remembers this process as a writer of the session where it asks for kReadWrite.
// Errors: those of mapping.proto; without a reason, FailedPrecondition where the daemon has no map
// socket, NotFound where its socket is not on this machine, PermissionDenied where this user may
// not connect to it, DeadlineExceeded where no answer came within `timeout`; INTERNAL for an answer
// that is none.
absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(const std::string& map_socket,
                                                                  const v1::SessionRef& session,
                                                                  MemoryAccess access,
                                                                  absl::Duration timeout);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_MAP_POOLS_H_
