// A mapping of shared memory: a POSIX object with a name, or memory in huge pages without one.
#ifndef PAGODA_POOLS_SHARED_MEMORY_H_
#define PAGODA_POOLS_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pools/file_descriptor.h"
#include "pools/huge_pages.h"
#include "pools/own_memory.h"

namespace pagoda {

// How long shared memory lives.
enum class MemoryLifetime : uint8_t {
  kProcess,  // As long as its owner: it starts as zeros, and the owner's end takes it away.
  kKept,     // Beyond it, from KeepName on: what a dead owner left is adopted, and is left again.
};

enum class MemoryAccess : uint8_t { kRead, kReadWrite };

// Owns the mapping; the creator owns the name too, and an OwnerLock as long as it lives, so that a
// name left by a dead process is told from one in use. What is found under a name is used only
// where CheckOwnMemory has nothing against it. A mapping for writing is not inherited by children
// of the process: one of them that touches it gets SIGSEGV. Movable. A moved-from or default object
// holds nothing.
class SharedMemory {
 public:
  // Reserves `size_bytes` zeroed bytes under `name` ("/x"). A dead owner's object of that name is
  // replaced. With `pages` the memory may have no name (MakeNamelessMemory) and end in whole pages;
  // the name is still owned, and no other process maps by it. Missing huge pages are no error.
  // Errors: OUT_OF_MEMORY (with what is needed and what is free), INVALID_ARGUMENT (a living
  // process owns the name, or no bytes), PERMISSION_DENIED (another user made what is there, or may
  // write it).
  static absl::StatusOr<SharedMemory> Create(std::string name, uint64_t size_bytes,
                                             const PageRequest& pages = {});
  // As Create, but a dead owner's object of that name and size is taken over in place: its bytes
  // stay, and whoever maps it maps the same object. adopted() says which of the two happened. What
  // is adopted stays when its new owner ends; what is made goes, unless KeepName says otherwise. So
  // a start that fails leaves nothing of its own, and everything that it found. It always has the
  // name, and so only the huge pages that /dev/shm gives; it is never sparse.
  static absl::StatusOr<SharedMemory> CreateOrAdopt(std::string name, uint64_t size_bytes,
                                                    const PageRequest& pages = {});
  // Removes a dead owner's object of that name, unless it has `unless_bytes` bytes. None of that
  // name is no error. Errors: INVALID_ARGUMENT (a living process owns the name), PERMISSION_DENIED
  // as Create.
  static absl::Status RemoveLeftover(const std::string& name, uint64_t unless_bytes = 0);
  // Maps an existing object whole. Errors: NotFound where there is none of that name;
  // PermissionDenied where its owner does not let this process have the access.
  static absl::StatusOr<SharedMemory> Open(std::string name,
                                           MemoryAccess access = MemoryAccess::kReadWrite);
  // Maps the memory behind a descriptor whole. It has no name. Huge pages of the kernel's pool are
  // taken at once where `probe` (null: the system) says that this process might be refused some.
  // Errors: PermissionDenied where the descriptor is not open for the access; INVALID_ARGUMENT
  // where nothing can be mapped behind it; ResourceExhausted where a huge page is refused.
  static absl::StatusOr<SharedMemory> FromDescriptor(FileDescriptor fd, MemoryAccess access,
                                                     const HugePageProbe* probe = nullptr);

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;

  // The owner's end leaves the object and its name behind, for CreateOrAdopt.
  void KeepName() { keeps_name_ = true; }

  // Whether any process has the object open or mapped by another opening than this one: what a
  // client of an earlier owner may still write. True also where the system cannot tell; on some,
  // readers count. For an owner.
  bool HasOtherUsers() const;

  const std::string& name() const { return name_; }
  // What an owner's memory consists of; of a guest's, the kernel's huge pages alone are told.
  MemoryPages pages() const { return pages_; }
  // Why an owner's memory has no larger pages, for people; empty where it was asked for none.
  const std::string& shortfall() const { return shortfall_; }
  // Whether the bytes are those of an earlier owner.
  bool adopted() const { return adopted_; }
  // Where the memory was mapped with kRead, a write to it ends the process (SIGSEGV).
  absl::Span<std::byte> bytes() const { return {data_, size_bytes_}; }

  // A new descriptor of the memory, for another process. It is an opening of its own: one that was
  // opened for reading cannot be mapped for writing. Errors: those of opening it.
  absl::StatusOr<FileDescriptor> OpenDescriptor(MemoryAccess access) const;

 private:
  enum class Role { kNone, kOwner, kGuest };

  // The owner's end of an object that is open. The destructor takes the name and the descriptor
  // away.
  SharedMemory(std::string name, int fd, OwnerLock lock)
      : role_(Role::kOwner), lock_(std::move(lock)), name_(std::move(name)), fd_(fd) {}
  static absl::StatusOr<SharedMemory> CreateLocked(std::string name, uint64_t size_bytes,
                                                   OwnerLock lock, const PageRequest& pages,
                                                   std::string shortfall);
  // Reserves the pages, and maps them.
  absl::Status ReserveAndMap(uint64_t size_bytes, const PageRequest& pages);
  absl::Status MapWhole(uint64_t size_bytes);
  // Makes the pages huge that /dev/shm gave small, where huge ones are asked for by name: who asks
  // for them so waits for the copying.
  void CollapseIfNamed(const PageRequest& pages);
  // Maps `fd` whole, as a guest. `name` may be empty.
  static absl::StatusOr<SharedMemory> MapGuest(FileDescriptor fd, std::string name,
                                               MemoryAccess access, const HugePageProbe& probe);

  Role role_ = Role::kNone;
  bool adopted_ = false;
  bool keeps_name_ = false;
  bool has_name_ = true;  // Of an owner: whether the object is found under the name.
  MemoryPages pages_ = MemoryPages::kPlain;
  std::string shortfall_;
  OwnerLock lock_;  // The owner's; given up after all else.
  std::string name_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

// The bytes that new shared memory can take now: the least of what the file system of shared memory
// and the machine have. Others may take them first. Errors: those of reading the two.
absl::StatusOr<uint64_t> FreeSharedMemoryBytes();

}  // namespace pagoda

#endif  // PAGODA_POOLS_SHARED_MEMORY_H_
