#ifndef PAGODA_ENGINE_CHECKPOINT_MAPPED_FILE_H_
#define PAGODA_ENGINE_CHECKPOINT_MAPPED_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace pagoda {

// A file of a checkpoint, mapped read-only as long as this lives. Its bytes are read from disk when
// they are looked at; a file that someone shortens meanwhile stops the process with SIGBUS.
// Can be moved, and not assigned to: a mapping ends with its object only.
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
