// A mapping of a POSIX shared memory object.
#ifndef PAGODA_POOLS_SHARED_MEMORY_H_
#define PAGODA_POOLS_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace pagoda {

// Owns the mapping; the creator owns the name too, and holds a lock on the object as long as it
// lives, so that a name left by a dead process is told from one in use. Movable. A moved-from or
// default object holds nothing.
class SharedMemory {
 public:
  // Reserves `size_bytes` zeroed bytes under `name` ("/x"). A dead owner's object of that name is
  // replaced. Errors: OUT_OF_MEMORY (with what is needed and what is free), INVALID_ARGUMENT (a
  // living process owns the name, or no bytes).
  static absl::StatusOr<SharedMemory> Create(std::string name, uint64_t size_bytes);
  // Maps an existing object whole, for reading and writing.
  // Errors: NotFound where there is none of that name.
  static absl::StatusOr<SharedMemory> Open(std::string name);

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;

  const std::string& name() const { return name_; }
  absl::Span<std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  enum class Role { kNone, kOwner, kGuest };

  Role role_ = Role::kNone;
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
