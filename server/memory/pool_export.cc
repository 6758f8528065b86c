#include "server/memory/pool_export.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "pagoda/v1/mapping.pb.h"
#include "wire/cache_info.h"

namespace pagoda::server {
namespace {

std::string PoolsAnswer(const std::vector<PoolMapping>& mappings) {
  v1::MapPoolsResponse response;
  for (const PoolMapping& mapping : mappings) PoolMappingToProto(mapping, response.add_pools());
  return response.SerializeAsString();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PoolExport>> PoolExport::Open(const PoolSet& pools) {
  auto pool_export = absl::WrapUnique(new PoolExport());
  for (const auto& [access, descriptors] :
       {std::pair(MemoryAccess::kRead, &pool_export->for_readers_),
        std::pair(MemoryAccess::kReadWrite, &pool_export->for_writers_)}) {
    absl::StatusOr<std::vector<FileDescriptor>> opened = pools.OpenDescriptors(access);
    if (!opened.ok()) return opened.status();
    *descriptors = *std::move(opened);
  }
  if (pool_export->for_readers_.size() > kMaxSegments) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("the cache's pools have ",
                                  Counted(pool_export->for_readers_.size(), "segment"),
                                  "; a map socket hands out at most ", kMaxSegments,
                                  ", so server.map_socket must be empty"));
  }
  pool_export->answer_ = PoolsAnswer(pools.Mappings());
  return pool_export;
}

}  // namespace pagoda::server
