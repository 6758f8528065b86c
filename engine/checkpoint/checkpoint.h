// A Hugging Face directory's tensors, in one file or in several.
#ifndef PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_
#define PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/safetensors.h"

namespace pagoda {

// How a tensor's elements lie in the file.
enum class TensorType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kQ8_0,  // Blocks of 32 elements of a row: an fp16 scale, then 32 int8.
};

// A tensor that a model can use.
struct TensorInfo {
  TensorType type = TensorType::kFloat32;
  std::vector<uint64_t> shape;        // Outermost first; rows are contiguous.
  absl::Span<const std::byte> bytes;  // In the mapped file; not aligned to the elements.
};

// Immutable; movable. Its files stay mapped as long as it lives.
class Checkpoint {
 public:
  // Opens DIR/model.safetensors, or the files that DIR/model.safetensors.index.json names; the
  // index's files lie in DIR itself. Errors: INVALID_CHECKPOINT with the file and, where one is to
  // blame, the tensor.
  static absl::StatusOr<Checkpoint> Open(const std::string& model_dir);

  bool Has(const std::string& name) const { return tensors_.contains(name); }
  // A tensor's place, valid as long as this lives, also when it has moved. Errors:
  // INVALID_CHECKPOINT with the tensor's name: none of that name, another shape, elements of
  // another type than TensorType's.
  absl::StatusOr<TensorInfo> Find(const std::string& name, absl::Span<const uint64_t> shape) const;
  // A tensor as fp32 in row-major order. Errors: those of Find.
  absl::StatusOr<std::vector<float>> ReadFloats(const std::string& name,
                                                absl::Span<const uint64_t> shape) const;

  // Tells models apart whose KV may not be mixed: the same for the same configuration and weights,
  // however they are cut into files. Reads every byte, and is not kept: a process that makes the
  // cache and the engine does it for both, the second time from the page cache. Not a defence
  // against a model that is made to collide.
  std::string Fingerprint(const ModelConfig& config) const;

 private:
  Checkpoint(std::string model_dir, std::vector<SafetensorsFile> files);

  std::string model_dir_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const TensorView*> tensors_;  // Into files_.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CHECKPOINT_H_
