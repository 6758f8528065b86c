// Files that hold what the daemon must keep to itself, and that are replaced while it runs.
#ifndef PAGODA_SERVER_CALLERS_WATCHED_FILE_H_
#define PAGODA_SERVER_CALLERS_WATCHED_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::server {

// Tells a file from the one that replaced it, or that it was changed in place. Follows symbolic
// links, as Kubernetes replaces the files of a volume.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Now; FileStamp{} where there is no such file.
FileStamp StampOf(const std::string& path);

// What is said of a secret that the machine's other users can read or write.
enum class Exposure : uint8_t { kRefused, kWarned };

// The whole of a file of at most 1 MiB.
// Errors: INVALID_ARGUMENT, with the path: it cannot be read, or is larger.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// The same of a secret. Errors also: INVALID_ARGUMENT where others, neither its owner nor its
// group, may read or write it, unless that is only to be warned of in the log.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, Exposure exposure);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_WATCHED_FILE_H_
