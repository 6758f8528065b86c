// Checks that a shared memory object belongs to this user, and locks its name for the owner
// process.
#ifndef PAGODA_POOLS_MEMORY_OWN_MEMORY_H_
#define PAGODA_POOLS_MEMORY_OWN_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_descriptor.h"

namespace pagoda {

// The directory in which the C library keeps shared memory.
inline constexpr char kSharedMemoryFolder[] = "/dev/shm";
// The mode of files and shared memory with KV bytes: other users have no access.
inline constexpr mode_t kOwnerOnly = 0600;

// Checks that only this process's user can write the object that `fd` has open under `name` ("/x").
// Any user can create files in the directory of shared memory, and adopted memory is trusted. The
// object must therefore be a plain file of this user, with one name, which no other user may write.
// Errors: PERMISSION_DENIED, with the reason.
absl::Status CheckOwnMemory(int fd, const std::string& name);

// Calls shm_open, then CheckOwnMemory. `flags` are those of shm_open; a new object gets mode 0600.
// Errors: NotFound; PERMISSION_DENIED; those of shm_open.
absl::StatusOr<FileDescriptor> OpenOwnMemory(const std::string& name, int flags);

// Sets the object's size and reserves its pages. Without the reservation, a full file system would
// raise SIGBUS at the first write. Existing bytes stay. If the missing pages exceed what the cgroup
// leaves this process, none is taken: the kernel would kill a process. `root` is for tests
// (available_memory.h). Errors: OUT_OF_MEMORY.
absl::Status ReserveMemory(int fd, const std::string& name, uint64_t size_bytes,
                           const std::string& root = "");

// The bytes of shared memory whose pages this process has taken since its start, by ReserveMemory
// and TakePages. It grows while a large object's pages are taken. Thread-safe.
uint64_t TakenMemoryBytes();

// Takes the pages of a shared mapping through it (madvise: MADV_POPULATE_READ or
// MADV_POPULATE_WRITE), on up to eight threads if it is large: the kernel fills pages with zeroes,
// a thread at a time. Returns 0, or the kernel's error; some pages may be taken then.
int TakePages(std::byte* data, uint64_t size_bytes, int advice);

// Marks the name of a shared memory object as owned by a living process: a lock on a file next to
// the object. The object itself cannot carry the lock. Its descriptors are handed out, and every
// process that has one, even one opened for reading only, could lock the object and keep the next
// owner out. The file is removed with the lock; a dead owner's file is adopted. Movable. A
// moved-from object holds nothing.
class OwnerLock {
 public:
  // Errors: INVALID_ARGUMENT if a living process owns the name; those of OpenOwnMemory.
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

#endif  // PAGODA_POOLS_MEMORY_OWN_MEMORY_H_
