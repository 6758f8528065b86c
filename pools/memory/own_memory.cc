#include "pools/memory/own_memory.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/thread.h"
#include "pools/memory/available_memory.h"

namespace pagoda {
namespace {

// The memory that is taken at a time.
constexpr uint64_t kPieceBytes = uint64_t{1} << 26;
constexpr uint64_t kMostThreads = 8;

std::atomic<uint64_t> taken_bytes = 0;

// Those that this process can run on.
uint64_t Processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? static_cast<uint64_t>(CPU_COUNT(&set)) : 1;
}

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

uint64_t TakenMemoryBytes() { return taken_bytes; }

int TakePages(std::byte* data, uint64_t size_bytes, int advice) {
  std::atomic<uint64_t> next = 0;
  std::atomic<int> error = 0;
  const auto take = [&] {
    while (error == 0) {
      const uint64_t begin = next.fetch_add(kPieceBytes);
      if (begin >= size_bytes) return;
      const uint64_t bytes = std::min(kPieceBytes, size_bytes - begin);
      if (madvise(data + begin, bytes, advice) != 0) {
        error = errno;
      } else {
        taken_bytes += bytes;
      }
    }
  };
  std::vector<Thread> threads;
  const uint64_t pieces = (size_bytes + kPieceBytes - 1) / kPieceBytes;
  const uint64_t useful = std::min<uint64_t>({pieces, kMostThreads, Processors()});
  // This thread takes the pages that missing threads do not take.
  if (useful > 1) (void)StartThreads("pagoda-memory", useful - 1, take, &threads);
  take();
  threads.clear();
  return error;
}

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
  // In pieces, for TakenMemoryBytes. More threads would not help: the kernel lets one at a time
  // allocate in a file. If it does not fit, the kernel refuses it as a whole and takes no page.
  const uint64_t piece_bytes = missing > free_bytes ? size_bytes : kPieceBytes;
  uint64_t uncounted = missing;
  int error = 0;
  for (uint64_t begin = 0; begin < size_bytes && error == 0; begin += piece_bytes) {
    const uint64_t bytes = std::min(piece_bytes, size_bytes - begin);
    error = posix_fallocate(fd, static_cast<off_t>(begin), static_cast<off_t>(bytes));
    const uint64_t counted = std::min(uncounted, bytes);
    if (error == 0) taken_bytes += counted;
    uncounted -= counted;
  }
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
