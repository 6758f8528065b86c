// A model's tensors, whatever files they lie in.
#ifndef PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_
#define PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/tensor.h"

namespace pagoda {

// The tensors by their names in Hugging Face transformers. Immutable, safe to read from several
// threads, movable. Its files stay mapped as long as it lives.
class Checkpoint {
 public:
  // Opens the Hugging Face folder DIR: DIR/model.safetensors, or the files that
  // DIR/model.safetensors.index.json names, which lie in DIR itself. Or a GGUF file: the path of
  // one, or a folder without config.json that has one. Of a Llama in GGUF, q and k are copied into
  // memory at once, because their rows lie in another order; nothing else is read yet.
  // Errors: INVALID_CHECKPOINT with the file and, where one is to blame, the tensor.
  static absl::StatusOr<Checkpoint> Open(const std::string& model_dir);

  // A tensor of that shape; its bytes are valid as long as this lives, wherever it is moved.
  // Errors: INVALID_CHECKPOINT with the tensor's name: none of that name, another shape, elements
  // that are not of a TensorType.
  absl::StatusOr<TensorInfo> Find(const std::string& name, absl::Span<const uint64_t> shape) const;

  // The same as fp32 in row-major order, which for kQ8_0 is each block's scale times its integers.
  absl::StatusOr<std::vector<float>> ReadFloats(const std::string& name,
                                                absl::Span<const uint64_t> shape) const;

  // Whether there is one of that name, whatever its type.
  bool Has(const std::string& name) const;

  // Tells models apart whose KV may not be mixed: the same for the same configuration and weights,
  // however they are cut into files. Reads every byte, and is not kept: a process that makes the
  // cache and the engine does it for both, the second time from the page cache. Not a defence
  // against a model that is made to collide.
  std::string Fingerprint(const ModelConfig& config) const;

 private:
  explicit Checkpoint(std::string model_dir) : model_dir_(std::move(model_dir)) {}

  static absl::StatusOr<Checkpoint> OpenGguf(const std::string& model_dir, const std::string& path);

  // Takes over a file's tensors. Errors: INVALID_CHECKPOINT where another file has one of them.
  absl::Status Add(SafetensorsFile file);

  std::string model_dir_;
  std::vector<SafetensorsFile> files_;
  std::optional<GgufFile> gguf_;
  std::vector<std::vector<std::byte>> copies_;
  TensorMap tensors_;                          // Into what is above.
  std::map<std::string, std::string> unread_;  // Their types as the file names them, by name.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_
