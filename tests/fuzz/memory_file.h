// A file that is nowhere on disk.
#ifndef PAGODA_TESTS_FUZZ_MEMORY_FILE_H_
#define PAGODA_TESTS_FUZZ_MEMORY_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace pagoda::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : fd_(memfd_create("pagoda-fuzz", MFD_CLOEXEC)) {
    PAGODA_CHECK(fd_ >= 0, "a memory file can be made");
    PAGODA_CHECK(write(fd_, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
                 "a memory file can be written");
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_MEMORY_FILE_H_
