// What a map socket hands out for one cache: descriptors of its pools, and the answer with them.
#ifndef PAGODA_SERVER_MEMORY_POOL_EXPORT_H_
#define PAGODA_SERVER_MEMORY_POOL_EXPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "pools/pool.h"

namespace pagoda::server {

// A cache's pool descriptors, opened once, and the answer that is sent with them. Immutable.
class PoolExport {
 public:
  // The kernel's limit for one packet.
  static constexpr size_t kMaxSegments = 253;

  // Does not use `pools` afterwards. Errors: INVALID_ARGUMENT if the pools have more than
  // kMaxSegments segments; those of PoolSet::OpenDescriptors.
  static absl::StatusOr<std::unique_ptr<PoolExport>> Open(const PoolSet& pools);

  // A serialized v1::MapPoolsResponse with the pools.
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
