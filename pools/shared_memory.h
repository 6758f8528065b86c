// A mapping of a POSIX shared memory object.
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
  // replaced. Errors: OUT_OF_MEMORY (with what is needed and what is free), INVALID_ARGUMENT (a
  // living process owns the name, or no bytes), PERMISSION_DENIED (another user made what is there,
  // or may write it).
  static absl::StatusOr<SharedMemory> Create(std::string name, uint64_t size_bytes);
  // As Create, but a dead owner's object of that name and size is taken over in place: its bytes
  // stay, and whoever maps it maps the same object. adopted() says which of the two happened. What
  // is adopted stays when its new owner ends; what is made goes, unless KeepName says otherwise. So
  // a start that fails leaves nothing of its own, and everything that it found.
  static absl::StatusOr<SharedMemory> CreateOrAdopt(std::string name, uint64_t size_bytes);
  // Removes a dead owner's object of that name, unless it has `unless_bytes` bytes. None of that
  // name is no error. Errors: INVALID_ARGUMENT (a living process owns the name), PERMISSION_DENIED
  // as Create.
  static absl::Status RemoveLeftover(const std::string& name, uint64_t unless_bytes = 0);
  // Maps an existing object whole. Errors: NotFound where there is none of that name;
  // PermissionDenied where its owner does not let this process have the access.
  static absl::StatusOr<SharedMemory> Open(std::string name,
                                           MemoryAccess access = MemoryAccess::kReadWrite);
  // Maps the memory behind a descriptor whole. It has no name.
  // Errors: PermissionDenied where the descriptor is not open for the access; INVALID_ARGUMENT
  // where nothing can be mapped behind it.
  static absl::StatusOr<SharedMemory> FromDescriptor(FileDescriptor fd, MemoryAccess access);

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
                                                   OwnerLock lock);
  // Reserves the pages, and maps them.
  absl::Status ReserveAndMap(uint64_t size_bytes);
  // Maps `fd` whole, as a guest. `name` may be empty.
  static absl::StatusOr<SharedMemory> MapGuest(FileDescriptor fd, std::string name,
                                               MemoryAccess access);

  Role role_ = Role::kNone;
  bool adopted_ = false;
  bool keeps_name_ = false;
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
