// A mapping of shared memory: a POSIX object with a name, or memory in huge pages without one.
#ifndef PAGODA_POOLS_MEMORY_SHARED_MEMORY_H_
#define PAGODA_POOLS_MEMORY_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "pools/memory/huge_pages.h"
#include "pools/memory/own_memory.h"

namespace pagoda {

// The lifetime of shared memory.
enum class MemoryLifetime : uint8_t {
  kProcess,  // Starts as zeros, and is removed at its owner's end.
  kKept,     // Stays after KeepName. The next owner adopts a dead owner's memory.
};

enum class MemoryAccess : uint8_t { kRead, kReadWrite };

// Owns the mapping. The creator also owns the name, and holds an OwnerLock while it exists; the
// lock distinguishes a name left by a dead process from a name in use. An existing object of the
// name is used only if CheckOwnMemory accepts it. Child processes do not inherit a mapping for
// writing: a child that touches it gets SIGSEGV. Movable. A moved-from or default object holds
// nothing.
class SharedMemory {
 public:
  // Reserves `size_bytes` zeroed bytes under `name` ("/x"). Replaces a dead owner's object of that
  // name. With `pages`, the memory may have no name (MakeNamelessMemory) and its size may be
  // rounded up to whole pages. The name is still owned then, but no other process can map by it.
  // Missing huge pages are not an error. Errors: OUT_OF_MEMORY (with the needed and the free
  // bytes), INVALID_ARGUMENT (a living process owns the name, or no bytes), PERMISSION_DENIED
  // (another user made the existing object, or can write it).
  static absl::StatusOr<SharedMemory> Create(std::string name, uint64_t size_bytes,
                                             const PageRequest& pages = {});
  // Does what Create does, but adopts a dead owner's object of that name and size in place: its
  // bytes stay, and its other mappings remain mappings of the same object. adopted() says whether
  // that happened. Adopted memory stays when its new owner ends. New memory is removed at its
  // owner's end, unless KeepName was called. A start that fails thus leaves everything that it
  // found, and nothing that it made. The memory always has the name, so its only huge pages are
  // those of /dev/shm. It is never sparse.
  static absl::StatusOr<SharedMemory> CreateOrAdopt(std::string name, uint64_t size_bytes,
                                                    const PageRequest& pages = {});
  // Removes a dead owner's object of that name, unless it has `unless_bytes` bytes. A missing
  // object is not an error. Errors: INVALID_ARGUMENT (a living process owns the name),
  // PERMISSION_DENIED as Create.
  static absl::Status RemoveLeftover(const std::string& name, uint64_t unless_bytes = 0);
  // Maps an existing object whole. Errors: NotFound if no object has that name; PermissionDenied if
  // this process does not have the access.
  static absl::StatusOr<SharedMemory> Open(std::string name,
                                           MemoryAccess access = MemoryAccess::kReadWrite);
  // Maps the memory behind a descriptor whole. The result has no name. Huge pages of the kernel's
  // pool are taken at once if `probe` (null: the system) says that the system could refuse some to
  // this process. Errors: PermissionDenied if the descriptor is not open for the access;
  // INVALID_ARGUMENT if the descriptor cannot be mapped; ResourceExhausted if the system refuses a
  // huge page.
  static absl::StatusOr<SharedMemory> FromDescriptor(FileDescriptor fd, MemoryAccess access,
                                                     const HugePageProbe* probe = nullptr);

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;

  // Keeps the object and its name after the owner's end, for CreateOrAdopt.
  void KeepName() { keeps_name_ = true; }

  // Whether another opening of the object is open or mapped in any process: a client of an earlier
  // owner could still write through it. Returns true if the system does not know; on some systems
  // readers count too. For an owner.
  bool HasOtherUsers() const;

  const std::string& name() const { return name_; }
  // The pages of the memory. For a guest, only huge pages of the kernel's pool are recognized.
  MemoryPages pages() const { return pages_; }
  // Why an owner's memory has no larger pages, for people. Empty if none were requested.
  const std::string& shortfall() const { return shortfall_; }
  // Whether the bytes are those of an earlier owner.
  bool adopted() const { return adopted_; }
  // If the memory was mapped with kRead, a write to it ends the process (SIGSEGV).
  absl::Span<std::byte> bytes() const { return {data_, size_bytes_}; }

  // A new descriptor of the memory, for another process. It is opened anew, so a descriptor for
  // reading cannot be mapped for writing. Errors: those of opening it.
  absl::StatusOr<FileDescriptor> OpenDescriptor(MemoryAccess access) const;

 private:
  enum class Role { kNone, kOwner, kGuest };

  // Owns an open object. The destructor removes the name and closes the descriptor.
  SharedMemory(std::string name, FileDescriptor fd, OwnerLock lock)
      : role_(Role::kOwner), lock_(std::move(lock)), name_(std::move(name)), fd_(std::move(fd)) {}
  static absl::StatusOr<SharedMemory> CreateLocked(std::string name, uint64_t size_bytes,
                                                   OwnerLock lock, const PageRequest& pages,
                                                   std::string shortfall);
  // Reserves the pages, and maps them.
  absl::Status ReserveAndMap(uint64_t size_bytes, const PageRequest& pages);
  absl::Status MapWhole(uint64_t size_bytes);
  // If huge pages were requested by size, turns the small pages of /dev/shm into huge ones. The
  // start then waits for the kernel's copies.
  void CollapseIfNamed(const PageRequest& pages);
  // Maps `fd` whole, as a guest. `name` may be empty.
  static absl::StatusOr<SharedMemory> MapGuest(FileDescriptor fd, std::string name,
                                               MemoryAccess access, const HugePageProbe& probe);

  Role role_ = Role::kNone;
  bool adopted_ = false;
  bool keeps_name_ = false;
  bool has_name_ = true;  // Owner: whether the object is found under the name.
  MemoryPages pages_ = MemoryPages::kPlain;
  std::string shortfall_;
  OwnerLock lock_;  // The owner's; released last.
  std::string name_;
  FileDescriptor fd_;
  std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

// The bytes that new shared memory can take now: the smaller of the free space of its file system
// and AvailableMemoryBytes (of the machine and the cgroup). Other processes may take them first.
// Errors: those of reading the two.
absl::StatusOr<uint64_t> FreeSharedMemoryBytes();

}  // namespace pagoda

#endif  // PAGODA_POOLS_MEMORY_SHARED_MEMORY_H_
