#ifndef PAGODA_ENGINE_CHECKPOINT_MAPPED_FILE_H_
#define PAGODA_ENGINE_CHECKPOINT_MAPPED_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace pagoda {

// A file of a checkpoint, mapped read-only as long as this object exists. Its bytes are read from
// disk at their first use. If the file is shortened meanwhile, the process dies with SIGBUS. It can
// be moved but not assigned to, because a mapping ends only with its object.
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

 private:
  MappedFile(std::string path, absl::Span<const std::byte> bytes);

  std::string path_;
  absl::Span<const std::byte> bytes_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_MAPPED_FILE_H_
