#include "pools/memory/shared_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "pools/memory/available_memory.h"
#include "pools/memory/huge_page_memory.h"

namespace pagoda {
namespace {

absl::Status SystemError(std::string_view call, const std::string& name) {
  return absl::ErrnoToStatus(errno, absl::StrCat(std::string(call), "(", name, ")"));
}

int OpenFlags(MemoryAccess access) { return access == MemoryAccess::kRead ? O_RDONLY : O_RDWR; }

// Returns 0 if the size is unknown.
uint64_t SizeBytes(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

// Whether the object can grow to that size. Its existing pages count.
bool HasSpaceFor(int fd, uint64_t size_bytes) {
  struct stat info;
  const absl::StatusOr<uint64_t> free_bytes = FreeSharedMemoryBytes();
  if (!free_bytes.ok() || fstat(fd, &info) != 0) return false;
  return *free_bytes + static_cast<uint64_t>(info.st_blocks) * 512 >= size_bytes;
}

// Removes a dead owner's object, so that a new one can be made. The caller holds the name's lock.
absl::Status RemoveLocked(const std::string& name, uint64_t new_size_bytes) {
  if (new_size_bytes == 0) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat("shared memory ", name, " of 0 bytes"));
  }
  const absl::StatusOr<FileDescriptor> leftover = OpenOwnMemory(name, O_RDWR);
  if (leftover.ok()) {
    shm_unlink(name.c_str());
  } else if (!absl::IsNotFound(leftover.status())) {
    return leftover.status();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> FreeSharedMemoryBytes() {
  struct statvfs fs;
  if (statvfs(kSharedMemoryFolder, &fs) != 0) return SystemError("statvfs", kSharedMemoryFolder);
  const absl::StatusOr<uint64_t> memory = AvailableMemoryBytes();
  if (!memory.ok()) return memory.status();
  return std::min(uint64_t{fs.f_bavail} * fs.f_frsize, *memory);
}

absl::Status SharedMemory::RemoveLeftover(const std::string& name, uint64_t unless_bytes) {
  absl::StatusOr<FileDescriptor> fd = OpenOwnMemory(name, O_RDWR);
  if (absl::IsNotFound(fd.status())) return absl::OkStatus();
  if (!fd.ok()) return fd.status();
  const absl::StatusOr<OwnerLock> lock = OwnerLock::Take(name);
  if (!lock.ok()) return lock.status();
  if (unless_bytes > 0 && SizeBytes(fd->get()) == unless_bytes) return absl::OkStatus();
  // Meanwhile the name can belong to another object, whose owner this process did not check.
  if (IsNamed(fd->get(), name)) shm_unlink(name.c_str());
  return absl::OkStatus();
}

absl::StatusOr<SharedMemory> SharedMemory::Create(std::string name, uint64_t size_bytes,
                                                  const PageRequest& pages) {
  absl::StatusOr<OwnerLock> lock = OwnerLock::Take(name);
  if (!lock.ok()) return lock.status();
  if (absl::Status status = RemoveLocked(name, size_bytes); !status.ok()) return status;
  std::string shortfall;
  std::optional<NamelessMemory> made = MakeNamelessMemory(name, size_bytes, pages, &shortfall);
  if (!made.has_value()) {
    return CreateLocked(std::move(name), size_bytes, *std::move(lock), pages, std::move(shortfall));
  }
  SharedMemory memory(std::move(name), std::move(made->fd), *std::move(lock));
  memory.has_name_ = false;
  memory.data_ = made->data;
  memory.size_bytes_ = made->size_bytes;
  memory.pages_ = made->pages;
  memory.shortfall_ = std::move(shortfall);
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::CreateLocked(std::string name, uint64_t size_bytes,
                                                        OwnerLock lock, const PageRequest& pages,
                                                        std::string shortfall) {
  absl::StatusOr<FileDescriptor> fd = OpenOwnMemory(name, O_RDWR | O_CREAT | O_EXCL);
  if (!fd.ok()) return fd.status();
  SharedMemory memory(std::move(name), *std::move(fd), std::move(lock));
  memory.shortfall_ = std::move(shortfall);
  if (absl::Status status = memory.ReserveAndMap(size_bytes, pages); !status.ok()) return status;
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::CreateOrAdopt(std::string name, uint64_t size_bytes,
                                                         const PageRequest& pages) {
  absl::StatusOr<OwnerLock> lock = OwnerLock::Take(name);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<FileDescriptor> fd = OpenOwnMemory(name, O_RDWR);
  if (!fd.ok() && !absl::IsNotFound(fd.status())) return fd.status();
  std::string shortfall;
  if (pages.huge_pages != HugePages::kOff) {
    shortfall = "kept memory needs a name, and the kernel's pool of huge pages has no names";
  }
  if (!fd.ok() || size_bytes == 0 || SizeBytes(fd->get()) != size_bytes) {
    if (absl::Status status = RemoveLocked(name, size_bytes); !status.ok()) return status;
    return CreateLocked(std::move(name), size_bytes, *std::move(lock), pages, std::move(shortfall));
  }
  SharedMemory memory(std::move(name), *std::move(fd), *std::move(lock));
  memory.adopted_ = true;
  memory.KeepName();
  memory.shortfall_ = std::move(shortfall);
  // The object can have holes if another program made it.
  if (absl::Status status = memory.ReserveAndMap(size_bytes, pages); !status.ok()) return status;
  return memory;
}

// The kernel grants a write lease (fcntl(2), "Leases") only if no other opening of the file exists;
// a mapping keeps its opening alive. The lease is given back at once. A process that opens the file
// in between waits until then, and the kernel sends a signal to the holder: by default SIGIO, which
// would end this process.
bool SharedMemory::HasOtherUsers() const {
  if (fcntl(fd_.get(), F_SETSIG, SIGURG) != 0 || fcntl(fd_.get(), F_SETLEASE, F_WRLCK) != 0)
    return true;
  fcntl(fd_.get(), F_SETLEASE, F_UNLCK);
  return false;
}

absl::Status SharedMemory::ReserveAndMap(uint64_t size_bytes, const PageRequest& pages) {
  const bool transparent = pages.huge_pages != HugePages::kOff &&
                           size_bytes >= kTransparentPageBytes && TransparentInShm(pages.system());
  absl::Status asked = absl::OkStatus();
  // If the size does not fit, ReserveMemory refuses it below, before any page is taken.
  if (transparent && !HasSpaceFor(fd_.get(), size_bytes)) {
    asked = absl::ResourceExhaustedError("there is not enough free memory");
  } else if (transparent) {
    // Before ReserveMemory, which would take small pages.
    if (ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0)
      return SystemError("ftruncate", name_);
    if (absl::Status status = MapWhole(size_bytes); !status.ok()) return status;
    asked = AskForTransparent(data_, size_bytes, Reservation::kWhole);
  }
  absl::Status reserved = ReserveMemory(fd_.get(), name_, size_bytes);
  if (!reserved.ok()) return reserved;
  if (data_ == nullptr) {
    if (absl::Status status = MapWhole(size_bytes); !status.ok()) return status;
  }
  if (transparent && asked.ok()) {
    pages_ = MemoryPages::kTransparent;
  } else if (pages.huge_pages != HugePages::kOff) {
    absl::StrAppend(&shortfall_, shortfall_.empty() ? "" : "; ", "no transparent ones in ",
                    kSharedMemoryFolder, ", because ",
                    transparent ? std::string(asked.message())
                    : size_bytes < kTransparentPageBytes
                        ? std::string("it is too small")
                        : absl::StrCat("its mount option huge is ", pages.system().ShmMount()));
    CollapseIfNamed(pages);
  }
  return absl::OkStatus();
}

absl::Status SharedMemory::MapWhole(uint64_t size_bytes) {
  absl::StatusOr<std::byte*> data =
      MapShared(fd_.get(), size_bytes, name_, MemoryAccess::kReadWrite);
  if (!data.ok()) return data.status();
  data_ = *data;
  size_bytes_ = size_bytes;
  return absl::OkStatus();
}

void SharedMemory::CollapseIfNamed(const PageRequest& pages) {
  if (pages.huge_pages == HugePages::kAuto || size_bytes_ < kTransparentPageBytes) return;
  const absl::Status collapsed = Collapse(data_, size_bytes_);
  if (collapsed.ok()) {
    pages_ = MemoryPages::kTransparent;
  } else {
    absl::StrAppend(&shortfall_, "; small pages were not turned into huge ones, because ",
                    std::string(collapsed.message()));
  }
}

absl::StatusOr<SharedMemory> SharedMemory::Open(std::string name, MemoryAccess access) {
  FileDescriptor fd(shm_open(name.c_str(), OpenFlags(access), 0));
  if (!fd.valid()) return SystemError("shm_open", name);
  return MapGuest(std::move(fd), std::move(name), access, HugePageProbe::System());
}

absl::StatusOr<SharedMemory> SharedMemory::FromDescriptor(FileDescriptor fd, MemoryAccess access,
                                                          const HugePageProbe* probe) {
  return MapGuest(std::move(fd), "", access, probe == nullptr ? HugePageProbe::System() : *probe);
}

absl::StatusOr<SharedMemory> SharedMemory::MapGuest(FileDescriptor fd, std::string name,
                                                    MemoryAccess access,
                                                    const HugePageProbe& probe) {
  const std::string what = name.empty() ? absl::StrCat("descriptor ", fd.get()) : name;
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemError("fstat", what);
  if (!S_ISREG(info.st_mode) || info.st_size == 0) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(what, " has no memory to map"));
  }
  const auto size_bytes = static_cast<uint64_t>(info.st_size);
  absl::StatusOr<std::byte*> data = MapShared(fd.get(), size_bytes, what, access);
  if (!data.ok()) return data.status();
  SharedMemory memory;
  memory.role_ = Role::kGuest;
  memory.name_ = std::move(name);
  memory.fd_ = std::move(fd);
  memory.data_ = *data;
  memory.size_bytes_ = size_bytes;
  const uint64_t page_bytes = HugetlbPageBytesOf(memory.fd_.get());
  if (page_bytes == 0) return memory;
  memory.pages_ =
      page_bytes >= HugetlbPageBytes(MemoryPages::k1GiB) ? MemoryPages::k1GiB : MemoryPages::k2MiB;
  absl::Status taken = TakeWhereLimited(*data, size_bytes, page_bytes, access, probe);
  if (!taken.ok()) return taken;
  return memory;
}

absl::StatusOr<FileDescriptor> SharedMemory::OpenDescriptor(MemoryAccess access) const {
  // Opens the memory anew, which works without a name too. A duplicate would share this opening.
  const std::string path = absl::StrCat("/proc/self/fd/", fd_.get());
  FileDescriptor fd(open(path.c_str(), OpenFlags(access) | O_CLOEXEC));
  if (!fd.valid()) return SystemError("open", absl::StrCat(path, ", ", name_));
  return fd;
}

SharedMemory::~SharedMemory() {
  if (role_ == Role::kNone) return;
  if (data_ != nullptr) munmap(data_, size_bytes_);
  if (role_ == Role::kOwner && has_name_ && !keeps_name_) shm_unlink(name_.c_str());
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : role_(std::exchange(other.role_, Role::kNone)),
      adopted_(other.adopted_),
      keeps_name_(other.keeps_name_),
      has_name_(other.has_name_),
      pages_(other.pages_),
      shortfall_(std::move(other.shortfall_)),
      lock_(std::move(other.lock_)),
      name_(std::move(other.name_)),
      fd_(std::move(other.fd_)),
      data_(other.data_),
      size_bytes_(other.size_bytes_) {}

}  // namespace pagoda
