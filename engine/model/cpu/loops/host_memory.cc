#include "engine/model/cpu/loops/host_memory.h"

#include <sys/mman.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

absl::StatusOr<HostMemory> HostMemory::Allocate(uint64_t bytes) {
  if (bytes == 0) return HostMemory();
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (memory == MAP_FAILED) {
    return MakeError(Reason::kOutOfMemory, absl::StrCat("no memory for ", bytes, " bytes"));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // Optional: only makes it faster.
  return HostMemory(static_cast<std::byte*>(memory), bytes);
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace pagoda
