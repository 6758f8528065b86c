// The decoder of the Llama family, as one graph: what its members differ in is in ModelConfig.
#ifndef PAGODA_ENGINE_MODEL_TRANSFORMER_H_
#define PAGODA_ENGINE_MODEL_TRANSFORMER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/backend.h"
#include "engine/model/model_input.h"
#include "engine/model/weights.h"
#include "kernels/types.h"

namespace pagoda {

// A model whose weights are where its backend computes. Thread-compatible: one Forward at a time,
// on whichever thread.
class Transformer {
 public:
  // Loads the weights, which takes seconds for models of a GB. The checkpoint stays mapped as long
  // as the model lives: embeddings are read from it. Errors: INVALID_CHECKPOINT with the tensor
  // that is missing or has another shape; INVALID_ARGUMENT for a configuration that no graph has
  // (heads that do not divide); those of the backend.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(ModelConfig config,
                                                             Checkpoint checkpoint,
                                                             std::unique_ptr<Backend> backend);
  ~Transformer();

  const ModelConfig& config() const { return config_; }
  // WindowsOf(config()): what ModelInput::windows have to be.
  absl::Span<const WindowSize> windows() const { return windows_; }
  const Backend& backend() const { return *backend_; }

  // Runs the tokens through all layers. Writes their K and V into `kv`, one entry a layer in the
  // model's order (KvPools::layers), and attends over the blocks of the input's tables. Returns the
  // wanted logits, [logit_rows][vocab_size] fp32 on the host, behind the model's own soft cap,
  // valid until the next call. No allocation in a step that is no larger than one before, but
  // those of the attention kernel.
  //
  // REQUIRES: tokens below vocab_size, windows of the model, rows below N; the pools are in the
  // backend's memory. Errors: INTERNAL where a kernel or a product fails or refuses its arguments;
  // the KV of the tokens is then undefined.
  absl::StatusOr<absl::Span<const float>> Forward(const ModelInput& input,
                                                  absl::Span<const kernels::KvLayer> kv);

 private:
  struct Activations;

  Transformer(ModelConfig config, Checkpoint checkpoint, std::unique_ptr<Backend> backend,
              ModelWeights weights);

  void Attend(const LayerConfig& layer, const ModelWeights::Layer& weights,
              const kernels::KvLayer& kv);
  void ApplyMlp(const ModelWeights::Layer& weights);
  void ApplyHead(const ModelInput& input);

  const ModelConfig config_;
  const std::vector<WindowSize> windows_;
  const Checkpoint checkpoint_;
  const std::unique_ptr<Backend> backend_;
  const ModelWeights weights_;  // Before the backend's end, and the checkpoint's.
  std::unique_ptr<Activations> activations_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_TRANSFORMER_H_
