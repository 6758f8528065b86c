#include "pools/own_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "pools/available_memory.h"

namespace pagoda {
namespace {

absl::Status Refuse(const std::string& name, const std::string& why) {
  return MakeError(Reason::kPermissionDenied,
                   absl::StrCat("shared memory ", name, " is not used, because ", why,
                                ": a user who can write it could put any bytes there; look at ",
                                kSharedMemoryFolder, name, ", and remove it if it is not needed"));
}

absl::Status OtherUser(const std::string& name, uid_t owner) {
  return Refuse(
      name, absl::StrCat("user ", owner, " made it and this process is user ", geteuid(), "'s"));
}

}  // namespace

absl::Status ReserveMemory(int fd, const std::string& name, uint64_t size_bytes,
                           const std::string& root) {
  struct stat info;
  const uint64_t taken = fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
  const uint64_t missing = size_bytes - std::min(size_bytes, taken);
  const std::optional<CgroupLimit> cgroup = TightestCgroupLimit(root);
  if (cgroup.has_value() && missing > cgroup->available_bytes) {
    return MakeError(
        Reason::kOutOfMemory,
        absl::StrCat("shared memory ", name, " needs ", missing, " more bytes and ",
                     cgroup->available_bytes, " are free within the cgroup's limit of ",
                     cgroup->limit_bytes, " bytes (", cgroup->file,
                     "); raise the limit, or make the tiers smaller"));
  }
  struct statvfs fs;
  const uint64_t free_bytes = fstatvfs(fd, &fs) == 0 ? uint64_t{fs.f_bavail} * fs.f_frsize : 0;
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  if (error == 0) return absl::OkStatus();
  return MakeError(Reason::kOutOfMemory,
                   absl::StrCat("shared memory ", name, " needs ", size_bytes, " bytes and ",
                                free_bytes, " are free: ", std::strerror(error)));
}

absl::Status CheckOwnMemory(int fd, const std::string& name) {
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("fstat(", name, ")"));
  if (!S_ISREG(info.st_mode)) return Refuse(name, "it is no plain file");
  if (info.st_uid != geteuid()) return OtherUser(name, info.st_uid);
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Refuse(name, absl::StrCat("its mode (0", absl::Hex((info.st_mode >> 6) & 7),
                                     absl::Hex((info.st_mode >> 3) & 7),
                                     absl::Hex(info.st_mode & 7), ") lets other users write it"));
  }
  if (info.st_nlink > 1) {
    return Refuse(name, absl::StrCat("it has ", info.st_nlink, " names"));
  }
  return absl::OkStatus();
}

// The C library's shm_open does not follow symbolic links, and sets close-on-exec.
absl::StatusOr<FileDescriptor> OpenOwnMemory(const std::string& name, int flags) {
  FileDescriptor fd(shm_open(name.c_str(), flags, kOwnerOnly));
  if (!fd.valid()) {
    const int error = errno;
    // With fs.protected_regular the kernel does not open another user's file there.
    struct stat info;
    if (error == EACCES && lstat(absl::StrCat(kSharedMemoryFolder, name).c_str(), &info) == 0 &&
        info.st_uid != geteuid()) {
      return OtherUser(name, info.st_uid);
    }
    return absl::ErrnoToStatus(error, absl::StrCat("shm_open(", name, ")"));
  }
  if (absl::Status status = CheckOwnMemory(fd.get(), name); !status.ok()) return status;
  return fd;
}

bool IsNamed(int fd, const std::string& name) {
  struct stat opened, named;
  const FileDescriptor other(shm_open(name.c_str(), O_RDONLY, 0));
  return other.valid() && fstat(fd, &opened) == 0 && fstat(other.get(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

absl::StatusOr<OwnerLock> OwnerLock::Take(const std::string& name) {
  std::string file = absl::StrCat(name, ".lock");
  while (true) {
    absl::StatusOr<FileDescriptor> fd = OpenOwnMemory(file, O_RDWR | O_CREAT);
    if (!fd.ok()) return fd.status();
    if (flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
      return MakeError(
          Reason::kInvalidArgument,
          absl::StrCat("shared memory ", name,
                       " belongs to a running process; is another daemon up with this cache "
                       "name?"));
    }
    // Otherwise the previous holder removed the file between the two calls.
    if (IsNamed(fd->get(), file)) return OwnerLock(std::move(file), *std::move(fd));
  }
}

// Unlinks the file before the lock ends: the next owner then creates a new file.
OwnerLock::~OwnerLock() {
  if (fd_.valid()) shm_unlink(file_.c_str());
}

}  // namespace pagoda
