// The file that lists the caches that clients opened, so that the next daemon reopens them.
#ifndef PAGODA_SERVER_CACHE_BROUGHT_CACHES_H_
#define PAGODA_SERVER_CACHE_BROUGHT_CACHES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/caches.h"

namespace pagoda::server {

// A cache that a client opened. The tiers of `call` have sizes in bytes.
struct BroughtCache {
  uint32_t number = 0;
  std::string tenant;  // The name of its tenant; empty: every tenant may use it.
  OpenCacheCall call;
};

struct BroughtCaches {
  uint32_t next_number = 1;  // Above the number of every cache so far.
  std::vector<BroughtCache> caches;
};

// A JSON file, replaced as a whole. The daemon trusts its content, so the file must belong to this
// user and no other user may write it.
class BroughtCachesFile {
 public:
  // Does not touch the file.
  explicit BroughtCachesFile(std::string path) : path_(std::move(path)) {}

  // No caches if there is no file. Errors: PERMISSION_DENIED (the file belongs to another user, or
  // another user may write it), INVALID_ARGUMENT (it is damaged).
  absl::StatusOr<BroughtCaches> Read() const;
  // Atomic: after an error the file holds its earlier content. Errors: those of the system.
  absl::Status Write(const BroughtCaches& caches) const;

 private:
  const std::string path_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_BROUGHT_CACHES_H_
