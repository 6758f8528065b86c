// The GGUF format, versions 2 and 3, little-endian: metadata as keys and values, a table of
// tensors, then the tensors' bytes. After llama.cpp's description of it (ggml/docs/gguf.md).
#ifndef PAGODA_ENGINE_CHECKPOINT_GGUF_H_
#define PAGODA_ENGINE_CHECKPOINT_GGUF_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/tensor.h"

namespace pagoda {

// Stepped over: an array of texts, of floating-point numbers or of more than 4,096 integers, a text
// of more than 64 KiB. Tokenizers have such.
struct GgufSkipped {
  friend bool operator==(GgufSkipped, GgufSkipped) = default;
};

// Integers and booleans of every width are int64_t (GGUF's u64 above its range is refused).
using GgufValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, GgufSkipped>;

// One file. It is not trusted: every tensor that Open lets through lies inside the file, beside
// every other, and its bytes are as many as its shape says. Memory for it is bounded by a small
// multiple of the file's header. Immutable; movable.
class GgufFile {
 public:
  // Errors: INVALID_CHECKPOINT with the path and, where one is to blame, the key or the tensor:
  // damage, a version or byte order that is not read, a tensor of another type than TensorType's.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  // By their names in the file. The bytes are valid as long as the file.
  const TensorMap& tensors() const { return tensors_; }

 private:
  GgufFile(MappedFile file, std::map<std::string, GgufValue> metadata, TensorMap tensors);

  MappedFile file_;
  std::map<std::string, GgufValue> metadata_;
  TensorMap tensors_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_GGUF_H_
