// A file that is nowhere on disk.
#ifndef PAGODA_TESTS_FUZZ_MEMORY_FILE_H_
#define PAGODA_TESTS_FUZZ_MEMORY_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file_descriptor.h"

namespace pagoda::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : fd_(memfd_create("pagoda-fuzz", MFD_CLOEXEC)) {
    PAGODA_CHECK(fd_.valid(), "a memory file can be made");
    PAGODA_CHECK(
        write(fd_.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()),
        "a memory file can be written");
  }

  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

 private:
  const FileDescriptor fd_;
};

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_MEMORY_FILE_H_
