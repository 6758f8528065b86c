// A LoRA adapter: small matrices that change some of a model's matrices (Hu et al., 2021).
#ifndef PAGODA_ENGINE_CHECKPOINT_ADAPTER_H_
#define PAGODA_ENGINE_CHECKPOINT_ADAPTER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/files/tensor.h"

namespace pagoda {

// A matrix of a model that adapters can change. In ModelWeights, some are rows of a larger matrix.
struct AdaptableModule {
  enum class Matrix : uint8_t { kQueryKeyValue, kAttentionOutput, kGateUp, kDown };

  std::string name;  // In transformers: "model.layers.0.self_attn.q_proj".
  uint32_t layer = 0;
  Matrix matrix = Matrix::kQueryKeyValue;
  uint64_t first_output = 0;  // In that matrix.
  uint64_t outputs = 0;
  uint64_t inputs = 0;
};

// The projections of attention and of plain MLPs. Latent attention has only its output projection
// here. Experts and BLOOM have none.
std::vector<AdaptableModule> AdaptableModulesOf(const ModelConfig& config,
                                                const Checkpoint& checkpoint);

// An adapter as PEFT saves it: DIR/adapter_config.json and DIR/adapter_model.safetensors.
// Immutable, movable. It owns a copy of its tensors, so the files can change meanwhile.
class Adapter {
 public:
  // output += scale * input * transpose(down) * transpose(up)
  struct Change {
    AdaptableModule module;
    TensorInfo down;  // [rank][inputs], F32, F16 or BF16; lora_A in PEFT.
    TensorInfo up;    // [outputs][rank]; lora_B.
    float scale = 0.0f;
  };

  Adapter(Adapter&&) = default;
  Adapter& operator=(Adapter&&) = default;

  // `modules`: those of the base model. Errors: INVALID_CHECKPOINT with the file and the field or
  // the tensor: an option that would change the result and is not supported; a target that is none
  // of the modules; a tensor that is missing, has another shape, or belongs to no target.
  static absl::StatusOr<Adapter> Open(const std::string& dir,
                                      absl::Span<const AdaptableModule> modules);
  // The same for files of any names.
  static absl::StatusOr<Adapter> OpenFiles(const std::string& config_path,
                                           const std::string& tensors_path,
                                           absl::Span<const AdaptableModule> modules);

  // At least one, in the order of `modules`. The bytes are valid as long as this object exists,
  // also after a move.
  const std::vector<Change>& changes() const { return changes_; }

  // Distinguishes adapters of a model whose KV must not be mixed, as Checkpoint::Fingerprint does
  // models. It depends on what the adapter computes, and not on its name. Below 2^63, so that it is
  // positive in formats with signed numbers.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  Adapter() = default;

  TensorInfo Keep(const TensorInfo& tensor);

  std::vector<std::vector<std::byte>> bytes_;
  std::vector<Change> changes_;
  uint64_t fingerprint_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_ADAPTER_H_
