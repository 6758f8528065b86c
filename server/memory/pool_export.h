// What a map socket hands out for one cache.
#ifndef PAGODA_SERVER_MEMORY_POOL_EXPORT_H_
#define PAGODA_SERVER_MEMORY_POOL_EXPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pools/file_descriptor.h"
#include "pools/pool.h"

namespace pagoda::server {

// Descriptors of a cache's pools, opened once, and the answer that goes with them. Immutable.
class PoolExport {
 public:
  // What one packet carries; the kernel's bound.
  static constexpr size_t kMaxSegments = 253;

  // `pools` is not needed afterwards. Errors: INVALID_ARGUMENT where the pools have more than
  // kMaxSegments segments; those of PoolSet::OpenDescriptors.
  static absl::StatusOr<std::unique_ptr<PoolExport>> Open(const PoolSet& pools);

  // A v1::MapPoolsResponse with the pools.
  const std::string& answer() const { return answer_; }
  // In the order of the answer's segments.
  absl::Span<const FileDescriptor> descriptors(MemoryAccess access) const {
    return access == MemoryAccess::kRead ? for_readers_ : for_writers_;
  }

 private:
  PoolExport() = default;

  std::string answer_;
  std::vector<FileDescriptor> for_readers_;
  std::vector<FileDescriptor> for_writers_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_POOL_EXPORT_H_
