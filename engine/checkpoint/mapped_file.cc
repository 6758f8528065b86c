#include "engine/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

absl::StatusOr<MappedFile> MappedFile::Open(std::string path) {
  const auto refuse = [&](const char* why) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": ", why));
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return refuse(std::strerror(errno));
  const absl::Cleanup close_fd = [fd] { close(fd); };

  struct stat info;
  if (fstat(fd, &info) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse("not a regular file");
  if (info.st_size == 0) return refuse("the file is empty");
  const auto size = static_cast<size_t>(info.st_size);
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return refuse(std::strerror(errno));
  return MappedFile(std::move(path), {static_cast<const std::byte*>(data), size});
}

MappedFile::MappedFile(std::string path, absl::Span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace pagoda
