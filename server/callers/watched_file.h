// Files, above all secrets, that can be replaced while the daemon runs.
#ifndef PAGODA_SERVER_CALLERS_WATCHED_FILE_H_
#define PAGODA_SERVER_CALLERS_WATCHED_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::server {

// Two stamps differ if the file was replaced or changed in place. Symbolic links are followed,
// because Kubernetes replaces the files of a volume by changing a link.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// The file's stamp now; FileStamp{} if there is no such file.
FileStamp StampOf(const std::string& path);

// What happens if the machine's other users can read or write a secret: an error, or a warning in
// the log.
enum class Exposure : uint8_t { kRefused, kWarned };

// Reads a whole file of at most 1 MiB.
// Errors: INVALID_ARGUMENT, with the path: the file cannot be read, or is larger.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// Does what ReadFile does, for a secret. Also INVALID_ARGUMENT if users other than the owner and
// the group may read or write the file and `exposure` is kRefused; with kWarned the log has a
// warning instead.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, Exposure exposure);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_WATCHED_FILE_H_
