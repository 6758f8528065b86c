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
#include "pools/memory/own_memory.h"

namespace pagoda::slab {
namespace {

constexpr uint32_t kSafeAlignment = 4096;
constexpr absl::Duration kLockPoll = absl::Milliseconds(5);

absl::Status Failed(const char* call, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(call, "(", path, ")"));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}

// In such a folder another user can put a file in the place of this one. In one with the sticky bit
// only the file's owner can.
absl::Status CheckFolder(const std::string& path) {
  const std::string folder = FolderOf(path);
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) return Failed("stat", folder, errno);
  if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("slab file ", path, " is not used, because every user may write the folder ",
                     folder, "; run: chmod o-w '", folder, "', or name a folder inside it"));
  }
  return absl::OkStatus();
}

// Checks that only this user has the file, and takes other users' right to read it: the file holds
// KV of every tenant's prompts.
absl::Status TakeOwnFile(int fd, const std::string& path, std::optional<uint64_t>& size_bytes) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed("fstat", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::PermissionDeniedError(absl::StrCat("slab file ", path, " is no plain file"));
  }
  if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "slab file ", path, " is not used, because another user owns or may write it"));
  }
  // Under its other name the file can belong to another program, whose bytes a write would replace.
  if (info.st_nlink > 1) {
    return absl::PermissionDeniedError(absl::StrCat("slab file ", path,
                                                    " is not used, because it has ", info.st_nlink,
                                                    " names (hard links); remove the others"));
  }
  if ((info.st_mode & 07777) != kOwnerOnly && fchmod(fd, kOwnerOnly) != 0) {
    return Failed("fchmod", path, errno);
  }
  if (size_bytes.has_value()) size_bytes = static_cast<uint64_t>(info.st_size);
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& path) {
  const std::string folder = FolderOf(path);
  const FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) return Failed("fsync", folder, errno);
  return absl::OkStatus();
}

// Whether the path names this open file.
bool IsNamed(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

absl::StatusOr<OpenedFile> OpenLocked(const std::string& path, absl::Duration patience) {
  if (absl::Status status = CheckFolder(path); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + patience;
  OpenedFile file;
  while (true) {
    // Non-blocking, because the path can name a pipe.
    constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    file.fd = FileDescriptor(open(path.c_str(), kFlags));
    if (file.fd.valid()) {
      file.size_bytes = 0;
    } else if (errno == ENOENT) {
      file.size_bytes.reset();
      file.fd = FileDescriptor(open(path.c_str(), kFlags | O_CREAT, kOwnerOnly));
    }
    if (!file.fd.valid()) return Failed("open", path, errno);
    const int error = flock(file.fd.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    // The file can be removed or replaced between open and flock.
    if (error == 0 && IsNamed(file.fd.get(), path)) break;
    if (absl::Now() >= deadline) {
      return absl::FailedPreconditionError(
          absl::StrCat("slab file ", path, " is in use; is another daemon up with this file? (",
                       error == 0 ? "it is being replaced" : strerror(error), ")"));
    }
    absl::SleepFor(kLockPoll);
  }
  if (absl::Status status = TakeOwnFile(file.fd.get(), path, file.size_bytes); !status.ok()) {
    return status;
  }
  // On a non-blocking file, io_uring ends each request with EAGAIN if it cannot end at once.
  const int flags = fcntl(file.fd.get(), F_GETFL);
  if (flags < 0 || fcntl(file.fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return Failed("fcntl", path, errno);
  }
  return file;
}

absl::Status Empty(int fd, const std::string& path) {
  return ftruncate(fd, 0) == 0 ? absl::OkStatus() : Failed("ftruncate", path, errno);
}

absl::Status Reserve(int fd, const std::string& path, uint64_t size_bytes) {
  int error;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  } while (error == EINTR);
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
  // By its number: the C library of Debian 12 has the call, but not these fields.
  struct statx info = {};
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    // 0: the file has no direct I/O. A larger alignment than a page is not supported.
    const uint32_t alignment = std::max(info.stx_dio_mem_align, info.stx_dio_offset_align);
    if (info.stx_dio_offset_align != 0 && alignment <= kSafeAlignment) return alignment;
    (void)fcntl(fd, F_SETFL, flags);
    return 0;
  }
#endif
  return kSafeAlignment;
}

absl::Status CheckPresent(int fd, const std::string& path, uint64_t size_bytes) {
  struct stat opened;
  if (fstat(fd, &opened) != 0) return Failed("fstat", path, errno);
  if (!IsNamed(fd, path)) {
    return absl::NotFoundError(absl::StrCat("slab file ", path, " was removed or replaced"));
  }
  if (static_cast<uint64_t>(opened.st_size) < size_bytes) {
    return absl::DataLossError(
        absl::StrCat("slab file ", path, " was cut to ", opened.st_size, " bytes of ", size_bytes));
  }
  return absl::OkStatus();
}

}  // namespace pagoda::slab
