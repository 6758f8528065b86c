// The description of a cache that a client gets when it opens a session.
#ifndef PAGODA_WIRE_CACHE_INFO_H_
#define PAGODA_WIRE_CACHE_INFO_H_

#include "absl/status/statusor.h"
#include "manager/api/cache_client.h"
#include "pagoda/v1/cache.pb.h"
#include "pools/layout.h"

namespace pagoda {

void CacheInfoToProto(const CacheInfo& info, v1::CacheInfo* out);
// A medium that this version does not know counts as host memory.
CacheInfo CacheInfoFromProto(const v1::CacheInfo& proto);

// The place and the layout of a pool.
void PoolMappingToProto(const PoolMapping& mapping, v1::PoolMapping* out);
// Error: INTERNAL for a mapping whose strides or enum values this version does not know.
absl::StatusOr<PoolMapping> PoolMappingFromProto(const v1::PoolMapping& proto);

}  // namespace pagoda

#endif  // PAGODA_WIRE_CACHE_INFO_H_
