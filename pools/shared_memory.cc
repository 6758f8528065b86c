#include "pools/shared_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

constexpr char kFileSystem[] = "/dev/shm";  // Where the C library keeps shared memory.

absl::Status SystemError(std::string_view call, const std::string& name) {
  return absl::ErrnoToStatus(errno, absl::StrCat(std::string(call), "(", name, ")"));
}

// What the kernel says can be used without swapping.
absl::StatusOr<uint64_t> AvailableMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    unsigned long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kibibytes) == 1) {
      return uint64_t{kibibytes} * 1024;
    }
  }
  return absl::NotFoundError("/proc/meminfo has no MemAvailable");
}

int OpenFlags(MemoryAccess access) { return access == MemoryAccess::kRead ? O_RDONLY : O_RDWR; }

// 0 where that cannot be told.
uint64_t SizeBytes(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

absl::StatusOr<std::byte*> Map(int fd, uint64_t size_bytes, const std::string& name,
                               MemoryAccess access = MemoryAccess::kReadWrite) {
  const int protection = access == MemoryAccess::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = mmap(nullptr, size_bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return SystemError("mmap", name);
  // A child's mapping would outlive this process, and with it the knowledge of who can write.
  if (access == MemoryAccess::kReadWrite) madvise(data, size_bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(data);
}

}  // namespace

absl::StatusOr<uint64_t> FreeSharedMemoryBytes() {
  struct statvfs fs;
  if (statvfs(kFileSystem, &fs) != 0) return SystemError("statvfs", kFileSystem);
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
  // By now the name may be another process's object, of which this one has not seen the owner.
  if (IsNamed(fd->get(), name)) shm_unlink(name.c_str());
  return absl::OkStatus();
}

absl::StatusOr<SharedMemory> SharedMemory::Create(std::string name, uint64_t size_bytes) {
  absl::StatusOr<OwnerLock> lock = OwnerLock::Take(name);
  if (!lock.ok()) return lock.status();
  return CreateLocked(std::move(name), size_bytes, *std::move(lock));
}

absl::StatusOr<SharedMemory> SharedMemory::CreateLocked(std::string name, uint64_t size_bytes,
                                                        OwnerLock lock) {
  if (size_bytes == 0) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat("shared memory ", name, " of 0 bytes"));
  }
  const absl::StatusOr<FileDescriptor> leftover = OpenOwnMemory(name, O_RDWR);
  if (leftover.ok()) {
    shm_unlink(name.c_str());
  } else if (!absl::IsNotFound(leftover.status())) {
    return leftover.status();
  }
  absl::StatusOr<FileDescriptor> fd = OpenOwnMemory(name, O_RDWR | O_CREAT | O_EXCL);
  if (!fd.ok()) return fd.status();
  SharedMemory memory(std::move(name), fd->Release(), std::move(lock));
  if (absl::Status status = memory.ReserveAndMap(size_bytes); !status.ok()) return status;
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::CreateOrAdopt(std::string name, uint64_t size_bytes) {
  absl::StatusOr<OwnerLock> lock = OwnerLock::Take(name);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<FileDescriptor> fd = OpenOwnMemory(name, O_RDWR);
  if (!fd.ok() && !absl::IsNotFound(fd.status())) return fd.status();
  if (!fd.ok() || size_bytes == 0 || SizeBytes(fd->get()) != size_bytes) {
    return CreateLocked(std::move(name), size_bytes, *std::move(lock));
  }
  SharedMemory memory(std::move(name), fd->Release(), *std::move(lock));
  memory.adopted_ = true;
  memory.KeepName();
  // Another program may have made the object, with holes in it.
  if (absl::Status status = memory.ReserveAndMap(size_bytes); !status.ok()) return status;
  return memory;
}

// A write lease (fcntl(2), "Leases") is given only where nobody else has the file open, and a
// mapping keeps its opening open. It is given back at once; who opens the file in between waits so
// long, and the holder gets a signal, by default SIGIO, which would end it.
bool SharedMemory::HasOtherUsers() const {
  if (fcntl(fd_, F_SETSIG, SIGURG) != 0 || fcntl(fd_, F_SETLEASE, F_WRLCK) != 0) return true;
  fcntl(fd_, F_SETLEASE, F_UNLCK);
  return false;
}

absl::Status SharedMemory::ReserveAndMap(uint64_t size_bytes) {
  absl::Status reserved = ReserveMemory(fd_, name_, size_bytes);
  if (!reserved.ok()) return reserved;
  absl::StatusOr<std::byte*> data = Map(fd_, size_bytes, name_);
  if (!data.ok()) return data.status();
  data_ = *data;
  size_bytes_ = size_bytes;
  return absl::OkStatus();
}

absl::StatusOr<SharedMemory> SharedMemory::Open(std::string name, MemoryAccess access) {
  FileDescriptor fd(shm_open(name.c_str(), OpenFlags(access), 0));
  if (!fd.valid()) return SystemError("shm_open", name);
  return MapGuest(std::move(fd), std::move(name), access);
}

absl::StatusOr<SharedMemory> SharedMemory::FromDescriptor(FileDescriptor fd, MemoryAccess access) {
  return MapGuest(std::move(fd), "", access);
}

absl::StatusOr<SharedMemory> SharedMemory::MapGuest(FileDescriptor fd, std::string name,
                                                    MemoryAccess access) {
  const std::string what = name.empty() ? absl::StrCat("descriptor ", fd.get()) : name;
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemError("fstat", what);
  if (!S_ISREG(info.st_mode) || info.st_size == 0) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(what, " has no memory to map"));
  }
  const auto size_bytes = static_cast<uint64_t>(info.st_size);
  absl::StatusOr<std::byte*> data = Map(fd.get(), size_bytes, what, access);
  if (!data.ok()) return data.status();
  SharedMemory memory;
  memory.role_ = Role::kGuest;
  memory.name_ = std::move(name);
  memory.fd_ = fd.Release();
  memory.data_ = *data;
  memory.size_bytes_ = size_bytes;
  return memory;
}

absl::StatusOr<FileDescriptor> SharedMemory::OpenDescriptor(MemoryAccess access) const {
  // Opened anew, also where the name is gone: a duplicate would be the same opening.
  const std::string path = absl::StrCat("/proc/self/fd/", fd_);
  FileDescriptor fd(open(path.c_str(), OpenFlags(access) | O_CLOEXEC));
  if (!fd.valid()) return SystemError("open", absl::StrCat(path, ", ", name_));
  return fd;
}

SharedMemory::~SharedMemory() {
  if (role_ == Role::kNone) return;
  if (data_ != nullptr) munmap(data_, size_bytes_);
  if (role_ == Role::kOwner && !keeps_name_) shm_unlink(name_.c_str());
  close(fd_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : role_(std::exchange(other.role_, Role::kNone)),
      adopted_(other.adopted_),
      keeps_name_(other.keeps_name_),
      lock_(std::move(other.lock_)),
      name_(std::move(other.name_)),
      fd_(other.fd_),
      data_(other.data_),
      size_bytes_(other.size_bytes_) {}

}  // namespace pagoda
