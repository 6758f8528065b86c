// Opens, locks, checks and reserves the file of a slab file. For slab_file.cc.
#ifndef PAGODA_POOLS_FILE_SLAB_DESCRIPTOR_H_
#define PAGODA_POOLS_FILE_SLAB_DESCRIPTOR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"

namespace pagoda::slab {

struct OpenedFile {
  FileDescriptor fd;                   // Locked while it is open.
  std::optional<uint64_t> size_bytes;  // Nothing if the file is new.
};

// Opens the file, or creates it, and locks it. The file has mode 0600 then. Errors:
// PermissionDenied (another user's file, not a plain file, writable by other users, or with a
// second hard link; a folder that every user can write and that has no sticky bit),
// FailedPrecondition (another owner still holds the lock after `patience`), those of the system.
absl::StatusOr<OpenedFile> OpenLocked(const std::string& path, absl::Duration patience);

// Removes all bytes of the file. Errors: those of ftruncate(2).
absl::Status Empty(int fd, const std::string& path);

// Reserves the file's space, and makes its name durable. Existing bytes stay. Errors:
// ResourceExhausted (with the needed and the free bytes), those of the calls.
absl::Status Reserve(int fd, const std::string& path, uint64_t size_bytes);

// Sets O_DIRECT. Returns the alignment of each piece's address and length; 0 if the file system
// refuses O_DIRECT.
uint32_t EnableDirect(int fd);

// Checks that the path still names the file, and that the file still has the bytes. Errors:
// NotFound, DataLoss.
absl::Status CheckPresent(int fd, const std::string& path, uint64_t size_bytes);

}  // namespace pagoda::slab

#endif  // PAGODA_POOLS_FILE_SLAB_DESCRIPTOR_H_
