// The GGUF format, versions 2 and 3, little-endian: metadata as keys and values, a table of
// tensors, then the tensors' bytes. After llama.cpp's description of it (ggml/docs/gguf.md).
#ifndef PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_H_
#define PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/files/mapped_file.h"
#include "engine/checkpoint/files/tensor.h"
#include "engine/checkpoint/gguf/gguf_values.h"

namespace pagoda {

// One file, which is not trusted. Every tensor that Open accepts is inside the file, overlaps no
// other, and has as many bytes as its shape says. The memory for it is at most a small multiple of
// the file's header. Immutable; movable.
class GgufFile {
 public:
  // Errors: INVALID_CHECKPOINT with the path and, if one is at fault, the key or the tensor:
  // damage, an unsupported version or byte order, a tensor of a type that TensorType lacks.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // See MappedFile.
  absl::Status CheckUnchanged() const { return file_.CheckUnchanged(); }
  const GgufMetadata& metadata() const { return metadata_; }
  // By their names in the file. The bytes are valid as long as this object exists.
  const TensorMap& tensors() const { return tensors_; }

 private:
  GgufFile(MappedFile file, GgufMetadata metadata, TensorMap tensors);

  MappedFile file_;
  GgufMetadata metadata_;
  TensorMap tensors_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_H_
