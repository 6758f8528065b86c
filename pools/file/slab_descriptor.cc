#include "pools/file/slab_descriptor.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace pagoda::slab {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr uint32_t kSafeAlignment = 4096;
constexpr absl::Duration kLockPoll = absl::Milliseconds(5);

absl::Status Failed(const char* call, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(call, "(", path, ")"));
}

absl::Status CheckOwner(int fd, const std::string& path, uint64_t& size_bytes) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed("fstat", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::PermissionDeniedError(absl::StrCat("slab file ", path, " is no plain file"));
  }
  if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "slab file ", path, " is not used, because another user owns or may write it"));
  }
  size_bytes = static_cast<uint64_t>(info.st_size);
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  const FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) return Failed("fsync", folder, errno);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenedFile> OpenLocked(const std::string& path, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  OpenedFile file;
  file.fd = FileDescriptor(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kOwnerOnly));
  if (!file.fd.valid()) return Failed("open", path, errno);
  while (flock(file.fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (absl::Now() < deadline) {
      absl::SleepFor(kLockPoll);
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("slab file ", path, " is in use; is another daemon up with this file? (",
                     strerror(errno), ")"));
  }
  if (absl::Status status = CheckOwner(file.fd.get(), path, file.size_bytes); !status.ok()) {
    return status;
  }
  return file;
}

absl::Status Empty(int fd, const std::string& path) {
  return ftruncate(fd, 0) == 0 ? absl::OkStatus() : Failed("ftruncate", path, errno);
}

absl::Status Reserve(int fd, const std::string& path, uint64_t size_bytes) {
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    struct statvfs fs;
    const uint64_t free_bytes = fstatvfs(fd, &fs) == 0 ? uint64_t{fs.f_bavail} * fs.f_frsize : 0;
    return absl::ResourceExhaustedError(absl::StrCat("slab file ", path, " needs ", size_bytes,
                                                     " bytes and ", free_bytes,
                                                     " are free: ", strerror(error)));
  }
  if (error != 0) return Failed("posix_fallocate", path, error);
  return SyncFolder(path);
}

uint32_t EnableDirect(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) return 0;
#ifdef STATX_DIOALIGN
  // By its number: Debian 12's C library has the call without these fields.
  struct statx info = {};
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_offset_align != 0) {
    // An offset that must be a multiple of more than a page cannot be met.
    if (info.stx_dio_offset_align <= kSafeAlignment) {
      return std::max(info.stx_dio_mem_align, info.stx_dio_offset_align);
    }
    (void)fcntl(fd, F_SETFL, flags);
    return 0;
  }
#endif
  return kSafeAlignment;
}

absl::Status CheckPresent(int fd, const std::string& path, uint64_t size_bytes) {
  struct stat opened, named;
  if (fstat(fd, &opened) != 0) return Failed("fstat", path, errno);
  if (stat(path.c_str(), &named) != 0 || opened.st_ino != named.st_ino ||
      opened.st_dev != named.st_dev) {
    return absl::NotFoundError(absl::StrCat("slab file ", path, " was removed or replaced"));
  }
  if (static_cast<uint64_t>(opened.st_size) < size_bytes) {
    return absl::DataLossError(
        absl::StrCat("slab file ", path, " was cut to ", opened.st_size, " bytes of ", size_bytes));
  }
  return absl::OkStatus();
}

}  // namespace pagoda::slab
