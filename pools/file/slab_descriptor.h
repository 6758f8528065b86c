// The file below a slab file: whose it is, its lock, its space, how it is opened. For slab_file.cc.
#ifndef PAGODA_POOLS_FILE_SLAB_DESCRIPTOR_H_
#define PAGODA_POOLS_FILE_SLAB_DESCRIPTOR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pools/file_descriptor.h"

namespace pagoda::slab {

struct OpenedFile {
  FileDescriptor fd;  // Locked, as long as it is open.
  uint64_t size_bytes = 0;
};

// Opens the file, or makes it with mode 0600, and locks it. Errors: PermissionDenied (another
// user's, no plain file, or other users may write it), FailedPrecondition (another owner has the
// lock and keeps it for `patience`), those of open(2).
absl::StatusOr<OpenedFile> OpenLocked(const std::string& path, absl::Duration patience);

// Drops all bytes of the file. Errors: those of ftruncate(2).
absl::Status Empty(int fd, const std::string& path);

// Reserves the space, and makes the file's name durable. What is there stays. Errors:
// ResourceExhausted (with what is needed and what is free), those of the calls.
absl::Status Reserve(int fd, const std::string& path, uint64_t size_bytes);

// Sets O_DIRECT. Returns what the address and the length of each piece must be a multiple of; 0
// where the file system refuses O_DIRECT.
uint32_t EnableDirect(int fd);

// Whether the path still names the file and the file still has the bytes. Errors: NotFound,
// DataLoss.
absl::Status CheckPresent(int fd, const std::string& path, uint64_t size_bytes);

}  // namespace pagoda::slab

#endif  // PAGODA_POOLS_FILE_SLAB_DESCRIPTOR_H_
