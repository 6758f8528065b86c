// Which caches clients had opened, for the next daemon.
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

// A cache as it was opened: its tiers have bytes.
struct BroughtCache {
  uint32_t number = 0;
  std::string tenant;  // Its name; empty: everybody's.
  OpenCacheCall call;
};

struct BroughtCaches {
  uint32_t next_number = 1;  // Above every number that was ever given.
  std::vector<BroughtCache> caches;
};

// A file of JSON, written anew as a whole. What is in it is believed, so it has to be this user's
// alone, and nobody else may write it.
class BroughtCachesFile {
 public:
  // Nothing is touched yet.
  explicit BroughtCachesFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // None at all where there is no file. Errors: PERMISSION_DENIED (it is not this user's alone),
  // INVALID_ARGUMENT (it is damaged).
  absl::StatusOr<BroughtCaches> Read() const;
  // The file holds this, or what it held before. Errors: those of the system.
  absl::Status Write(const BroughtCaches& caches) const;
  // Errors: those of the system. No file is no error.
  absl::Status Remove() const;

 private:
  const std::string path_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_BROUGHT_CACHES_H_
