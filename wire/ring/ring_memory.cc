#include "wire/ring/ring_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace pagoda::ring {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// nullptr with errno.
char* MapShared(int fd, size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  if (madvise(base, bytes, MADV_DONTFORK) != 0) {
    const int error = errno;
    munmap(base, bytes);
    errno = error;
    return nullptr;
  }
  return static_cast<char*>(base);
}

}  // namespace

Memory::Memory(char* base, uint32_t bytes) : base_(base), bytes_(bytes), owner_(getpid()) {}

std::unique_ptr<Memory> Memory::Create(uint32_t bytes, FileDescriptor* fd) {
  FileDescriptor file(memfd_create("pagoda-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const size_t total = MemoryBytes(bytes);
  if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(total)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return nullptr;
  }
  char* base = MapShared(file.get(), total);
  if (base == nullptr) return nullptr;
  auto* control = new (base) Control{};
  control->version = kVersion;
  control->bytes = bytes;
  *fd = std::move(file);
  return std::unique_ptr<Memory>(new Memory(base, bytes));
}

std::unique_ptr<Memory> Memory::Map(const FileDescriptor& fd, uint32_t version, uint32_t bytes,
                                    std::string* error) {
  if (version != kVersion) {
    *error = "the rings have version " + std::to_string(version) + ", this client knows " +
             std::to_string(kVersion);
    return nullptr;
  }
  if (!IsRingSize(bytes)) {
    *error = "a ring cannot have " + std::to_string(bytes) + " bytes";
    return nullptr;
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) != MemoryBytes(bytes)) {
    *error = "the rings' memory has another size than the daemon says";
    return nullptr;
  }
  // Otherwise the other side could cut the memory off, and an access would end this process.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    *error = "the rings' memory is not sealed";
    return nullptr;
  }
  char* base = MapShared(fd.get(), MemoryBytes(bytes));
  if (base == nullptr) {
    *error = std::string("the rings' memory cannot be mapped: ") + std::strerror(errno);
    return nullptr;
  }
  return std::unique_ptr<Memory>(new Memory(base, bytes));
}

// In a forked child the addresses can belong to other memory.
Memory::~Memory() {
  if (InOwner()) munmap(base_, MemoryBytes(bytes_));
}

Control& Memory::control() const { return *std::launder(reinterpret_cast<Control*>(base_)); }

bool Memory::InOwner() const { return getpid() == owner_; }

}  // namespace pagoda::ring
