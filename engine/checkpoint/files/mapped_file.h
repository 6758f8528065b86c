#ifndef PAGODA_ENGINE_CHECKPOINT_FILES_MAPPED_FILE_H_
#define PAGODA_ENGINE_CHECKPOINT_FILES_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace pagoda {

// A file of a checkpoint, mapped read-only as long as this object exists. Its bytes are read from
// disk at their first use. It can be moved but not assigned to, because a mapping ends only with
// its object.
//
// Others can shorten or overwrite the file meanwhile. All files that others may change are mapped
// here:
// 1. The first object installs a handler of SIGBUS for the process, in front of the previous one.
//    If a mapped page has no bytes any more, or cannot be read, the handler puts zeroes there and
//    records it. The process goes on.
// 2. So bytes are what they were at Open only if CheckUnchanged says so after they were read.
//    Nobody may use what was computed from them before it has.
class MappedFile {
 public:
  // Errors: INVALID_CHECKPOINT (with the path: no such file, not a file, empty).
  static absl::StatusOr<MappedFile> Open(std::string path);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  absl::Span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

  // DATA_LOSS, with the path, if bytes were missing, or if the file's size or time of change is
  // another one than at Open; then for ever. A file that another one replaces under its name does
  // not matter here. Costs one fstat. Thread-safe.
  absl::Status CheckUnchanged() const;

 private:
  struct Mapping;

  MappedFile(std::string path, std::unique_ptr<Mapping> mapping);

  std::string path_;
  std::unique_ptr<Mapping> mapping_;
  absl::Span<const std::byte> bytes_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FILES_MAPPED_FILE_H_
