// The safetensors format: eight bytes with the header's length, a JSON header, then the tensors'
// bytes.
#ifndef PAGODA_ENGINE_CHECKPOINT_SAFETENSORS_H_
#define PAGODA_ENGINE_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/mapped_file.h"

namespace pagoda {

// A tensor's place in a mapped file.
struct TensorView {
  std::string dtype;                  // As the file names it: "F32", "BF16", "I64".
  std::vector<uint64_t> shape;        // Outermost first; the elements are contiguous.
  absl::Span<const std::byte> bytes;  // Not aligned to the elements.
};

// One file. The header is not trusted: every tensor that Open lets through lies inside the file,
// and where its dtype is F32, F16 or BF16 its bytes are as many as its shape says. Immutable;
// movable.
class SafetensorsFile {
 public:
  // Errors: INVALID_CHECKPOINT, with the path and, where one is to blame, the tensor.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // By name. The views are valid as long as the file.
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  SafetensorsFile(MappedFile file, std::map<std::string, TensorView> tensors);

  MappedFile file_;
  std::map<std::string, TensorView> tensors_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_SAFETENSORS_H_
