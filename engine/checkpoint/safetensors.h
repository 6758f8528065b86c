// The safetensors format: eight bytes with the header's length, a JSON header, then the tensors'
// bytes.
#ifndef PAGODA_ENGINE_CHECKPOINT_SAFETENSORS_H_
#define PAGODA_ENGINE_CHECKPOINT_SAFETENSORS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/tensor.h"

namespace pagoda {

// One file. The header is not trusted: every tensor that Open lets through lies inside the file and
// beside every other, and its bytes are as many as its shape says. Immutable; movable.
class SafetensorsFile {
 public:
  // Errors: INVALID_CHECKPOINT, with the path and, where one is to blame, the tensor.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // By name; those of types that the engine reads. The bytes are valid as long as the file.
  const TensorMap& tensors() const { return tensors_; }
  // The types of the others as the file names them ("I64"), by name.
  const std::map<std::string, std::string>& unread() const { return unread_; }

 private:
  SafetensorsFile(MappedFile file, TensorMap tensors, std::map<std::string, std::string> unread);

  MappedFile file_;
  TensorMap tensors_;
  std::map<std::string, std::string> unread_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_SAFETENSORS_H_
