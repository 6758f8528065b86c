// A model's tensors, from files of any supported format.
#ifndef PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_
#define PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/files/tensor.h"
#include "engine/checkpoint/gguf/gguf.h"

namespace pagoda {

// The tensors by their names in Hugging Face transformers. Immutable, safe to read from several
// threads, movable. Its files stay mapped as long as it exists.
class Checkpoint {
 public:
  // Opens a Hugging Face folder DIR: DIR/model.safetensors, or the files that
  // DIR/model.safetensors.index.json names, which are in DIR itself. Or opens a GGUF file: its
  // path, or a folder without config.json that has one. For a Llama in GGUF it copies q and k into
  // memory at once, because their rows have another order; for a gpt-oss of MXFP4 in safetensors
  // it copies the experts, because their bytes have. It reads no other tensor yet. Errors:
  // INVALID_CHECKPOINT with the file and, if one is at fault, the tensor.
  static absl::StatusOr<Checkpoint> Open(const std::string& model_dir);

  // A tensor of this shape. Its bytes are valid as long as this object exists, also after a move.
  // Errors: INVALID_CHECKPOINT with the tensor's name: no such tensor, another shape, or elements
  // that are not of a TensorType.
  absl::StatusOr<TensorInfo> Find(const std::string& name, absl::Span<const uint64_t> shape) const;

  // The same as fp32 in row-major order (ToFloats).
  absl::StatusOr<std::vector<float>> ReadFloats(const std::string& name,
                                                absl::Span<const uint64_t> shape) const;

  // Whether there is a tensor of this name, whatever its type.
  bool Has(const std::string& name) const;

  // Distinguishes models whose KV must not be mixed. The same configuration and weights give the
  // same fingerprint, however they are split into files. Reads every byte, and the result is not
  // kept. A process that makes the cache and the engine computes it for both; the second time the
  // bytes are in the page cache. It is no defence against a model made to collide.
  std::string Fingerprint(const ModelConfig& config) const;

  // Whether all that was read from the files so far is what they had at Open: see
  // MappedFile::CheckUnchanged. Errors: DATA_LOSS with the file.
  absl::Status CheckUnchanged() const;

 private:
  explicit Checkpoint(std::string model_dir) : model_dir_(std::move(model_dir)) {}

  static absl::StatusOr<Checkpoint> OpenGguf(const std::string& model_dir, const std::string& path);

  // Adds a file's tensors. Errors: INVALID_CHECKPOINT if another file has one of them.
  absl::Status Add(SafetensorsFile file);
  // Adds the MXFP4 tensors that pairs of byte tensors make (files/mxfp4_pairs.h).
  absl::Status JoinPairs();

  std::string model_dir_;
  std::vector<SafetensorsFile> files_;
  std::optional<GgufFile> gguf_;
  std::vector<std::vector<std::byte>> copies_;
  TensorMap tensors_;                          // Into the members above.
  std::map<std::string, std::string> unread_;  // The file's names for their types, by name.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_
