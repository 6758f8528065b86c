#include "server/callers/watched_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_descriptor.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr mode_t kOthers = S_IROTH | S_IWOTH;

absl::Status CannotRead(const std::string& path, const std::string& why) {
  return MakeError(Reason::kInvalidArgument, absl::StrCat("cannot read ", path, ": ", why));
}

// Checks the mode of the open file, so that the checked file is the one that is read.
absl::Status CheckSecret(const std::string& path, mode_t mode, Exposure exposure) {
  if ((mode & kOthers) == 0) return absl::OkStatus();
  const std::string open = absl::StrCat("every user of this machine can read or write ", path,
                                        " (its mode is ", absl::Hex((mode >> 6) & 7),
                                        absl::Hex((mode >> 3) & 7), absl::Hex(mode & 7), ")");
  if (exposure == Exposure::kWarned) {
    Log(LogLevel::kWarning, open);
    return absl::OkStatus();
  }
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat(open, "; chmod o= ", path, ", or allow it with server.insecure"));
}

absl::StatusOr<std::string> ReadAll(const std::string& path, int fd) {
  std::string text(kMostBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(fd, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path, std::strerror(errno));
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > kMostBytes) return CannotRead(path, absl::StrCat("more than ", kMostBytes, " bytes"));
  text.resize(size);
  return text;
}

}  // namespace

FileStamp StampOf(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return {};
  return {.device = found.st_dev,
          .inode = found.st_ino,
          .size = static_cast<uint64_t>(found.st_size),
          .modified_ns = int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec};
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return CannotRead(path, std::strerror(errno));
  return ReadAll(path, fd.get());
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, Exposure exposure) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return CannotRead(path, std::strerror(errno));
  struct stat found;
  if (fstat(fd.get(), &found) != 0) return CannotRead(path, std::strerror(errno));
  if (absl::Status status = CheckSecret(path, found.st_mode, exposure); !status.ok()) return status;
  return ReadAll(path, fd.get());
}

}  // namespace pagoda::server
