// The safetensors format: eight bytes with the header's length, a JSON header, then the tensors'
// bytes.
#ifndef PAGODA_ENGINE_CHECKPOINT_FILES_SAFETENSORS_H_
#define PAGODA_ENGINE_CHECKPOINT_FILES_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/files/mapped_file.h"
#include "engine/checkpoint/files/tensor.h"

namespace pagoda {

// A tensor of bytes ("U8"): quantised weights in a form of their own. Invariant: the number of
// bytes is the shape's.
struct ByteTensor {
  std::vector<uint64_t> shape;
  absl::Span<const std::byte> bytes;
};
using ByteTensorMap = std::map<std::string, ByteTensor>;

// One file. The header is not trusted: every tensor that Open accepts is inside the file, overlaps
// no other, and has as many bytes as its shape says. Immutable; movable.
class SafetensorsFile {
 public:
  // Errors: INVALID_CHECKPOINT with the path and, if one is at fault, the tensor.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // See MappedFile.
  absl::Status CheckUnchanged() const { return file_.CheckUnchanged(); }
  // The tensors of types that the engine reads, by name. The bytes are valid as long as this object
  // exists.
  const TensorMap& tensors() const { return tensors_; }
  // Those of bytes; unread() has them too.
  const ByteTensorMap& byte_tensors() const { return byte_tensors_; }
  // The types of the other tensors as the file names them ("I64"), by name.
  const std::map<std::string, std::string>& unread() const { return unread_; }
  // The file's own metadata in the header, texts only.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile(MappedFile file, TensorMap tensors, ByteTensorMap byte_tensors,
                  std::map<std::string, std::string> unread,
                  std::map<std::string, std::string> metadata);

  MappedFile file_;
  TensorMap tensors_;
  ByteTensorMap byte_tensors_;
  std::map<std::string, std::string> unread_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FILES_SAFETENSORS_H_
