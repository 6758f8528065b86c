// Whose a shared memory object is: this user's, and the process's that owns its name.
#ifndef PAGODA_POOLS_OWN_MEMORY_H_
#define PAGODA_POOLS_OWN_MEMORY_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/file_descriptor.h"

namespace pagoda {

// Where the C library keeps shared memory.
inline constexpr char kSharedMemoryFolder[] = "/dev/shm";

// Whether the object that `fd` has open under `name` ("/x") is this process's user's alone. Anybody
// may put a file where shared memory lies, and what is in memory that is adopted is believed. So it
// has to be a plain file of this user, which no other user may write, with one name.
// Errors: PERMISSION_DENIED, with what is wrong.
absl::Status CheckOwnMemory(int fd, const std::string& name);

// shm_open, and CheckOwnMemory of what it opened; `flags` and a mode as there, 0600 where it makes
// the object. Errors: NotFound; PERMISSION_DENIED; those of the call.
absl::StatusOr<FileDescriptor> OpenOwnMemory(const std::string& name, int flags);

// Makes the object as large as that, and reserves its pages: without that a full file system would
// be a SIGBUS at the first write. What is there stays. Errors: OUT_OF_MEMORY.
absl::Status ReserveMemory(int fd, const std::string& name, uint64_t size_bytes);

// Says that a living process owns the name of a shared memory object: a lock on a file beside it.
// Not on the object itself, whose descriptors are handed out: whoever has one can lock what is
// behind it, also if it is open for reading only, and would keep the next owner out. The file goes
// with the lock; a dead owner's is taken over. Movable. A moved-from one holds nothing.
class OwnerLock {
 public:
  // Errors: INVALID_ARGUMENT where a living process owns the name; those of OpenOwnMemory.
  static absl::StatusOr<OwnerLock> Take(const std::string& name);

  OwnerLock() = default;
  ~OwnerLock();
  OwnerLock(OwnerLock&& other) noexcept = default;
  OwnerLock& operator=(OwnerLock&& other) = delete;

 private:
  OwnerLock(std::string file, FileDescriptor fd) : file_(std::move(file)), fd_(std::move(fd)) {}

  std::string file_;
  FileDescriptor fd_;
};

// Whether `name` still names the object that `fd` has open.
bool IsNamed(int fd, const std::string& name);

}  // namespace pagoda

#endif  // PAGODA_POOLS_OWN_MEMORY_H_
