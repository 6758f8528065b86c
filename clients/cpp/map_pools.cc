#include "clients/cpp/map_pools.h"

#include <utility>

#include "absl/status/status.h"
#include "base/file_descriptor.h"
#include "clients/cpp/map_socket_call.h"
#include "pagoda/v1/mapping.pb.h"
#include "wire/cache_info.h"

namespace pagoda {
namespace {

absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapAll(MapSocketAnswer answer,
                                                                MemoryAccess access) {
  std::vector<std::unique_ptr<MappedPool>> pools;
  size_t next = 0;
  for (const v1::PoolMapping& proto : answer.response.pools()) {
    absl::StatusOr<PoolMapping> mapping = PoolMappingFromProto(proto);
    if (!mapping.ok()) return mapping.status();
    std::vector<FileDescriptor> segments;
    for (size_t i = 0; i < mapping->segments.size() && next < answer.descriptors.size(); ++i) {
      segments.push_back(std::move(answer.descriptors[next++]));
    }
    absl::StatusOr<std::unique_ptr<MappedPool>> pool =
        MappedPool::FromDescriptors(*mapping, std::move(segments), access);
    if (!pool.ok()) return pool.status();
    pools.push_back(*std::move(pool));
  }
  return pools;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(const std::string& map_socket,
                                                                  const v1::SessionRef& session,
                                                                  MemoryAccess access,
                                                                  absl::Duration timeout) {
  if (map_socket.empty()) {
    return absl::FailedPreconditionError(
        "the daemon has no map socket (server.map_socket), so its pools cannot be mapped");
  }
  v1::MapPoolsRequest request;
  *request.mutable_session() = session;
  request.set_access(access == MemoryAccess::kRead ? v1::MAP_ACCESS_READ
                                                   : v1::MAP_ACCESS_READ_WRITE);
  absl::StatusOr<MapSocketAnswer> answer = CallMapSocket(map_socket, request, timeout);
  if (!answer.ok()) return answer.status();
  return MapAll(*std::move(answer), access);
}

}  // namespace pagoda
