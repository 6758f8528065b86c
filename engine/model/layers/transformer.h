// A decoder as one graph: an embedding, layers of attention and MLP, and a head. ModelConfig has
// the differences between the architectures. attention_layer.h and mlp_layer.h have the parts of a
// layer.
#ifndef PAGODA_ENGINE_MODEL_LAYERS_TRANSFORMER_H_
#define PAGODA_ENGINE_MODEL_LAYERS_TRANSFORMER_H_

#include <initializer_list>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/adapter.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/backend.h"
#include "engine/model/backend/model_input.h"
#include "engine/model/backend/rows_view.h"
#include "engine/model/layers/layer_input.h"
#include "engine/model/weights/weights.h"
#include "kernels/types.h"

namespace pagoda {

// A model with its weights in its backend's memory. Thread-compatible: one Forward at a time, on
// any thread.
class Transformer {
 public:
  // Loads the weights, which takes seconds for models of a GB. The checkpoint stays mapped as long
  // as the model exists, because embeddings are read from it. Errors: INVALID_CHECKPOINT with the
  // tensor that is missing or has another shape; INVALID_ARGUMENT for a configuration that the
  // graph does not support (for example a number of heads that the KV heads do not divide); those
  // of the backend. `adapters` were opened for this checkpoint; ModelInput::adapters are places in
  // this list (adapter_backend.h).
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(ModelConfig config,
                                                             Checkpoint checkpoint,
                                                             std::unique_ptr<Backend> backend,
                                                             std::vector<Adapter> adapters = {});
  ~Transformer();

  const ModelConfig& config() const { return config_; }
  // WindowsOf(config()): ModelInput::windows must be the same.
  absl::Span<const WindowSize> windows() const { return windows_; }
  const Backend& backend() const { return *backend_; }
  // See Checkpoint::CheckUnchanged. After an error every Forward fails with it. Thread-safe.
  absl::Status CheckFiles() const { return checkpoint_.CheckUnchanged(); }

  // Runs the tokens through all layers. Writes their K and V into `kv`, one entry per layer in the
  // model's order (KvPools::layers), and attends over the blocks of the input's tables. Returns the
  // wanted logits, [logit_rows][vocab_size] fp32 on the host, after the model's soft cap, valid
  // until the next call. A step that is not larger than an earlier one allocates nothing, except in
  // the attention kernel.
  //
  // REQUIRES: tokens below vocab_size, windows of the model, rows below N; the pools are in the
  // backend's memory. Errors: INTERNAL if a kernel or a product fails or refuses its arguments;
  // DATA_LOSS if a file of the model has changed, because weights are read from it. The KV of the
  // tokens is then undefined.
  absl::StatusOr<absl::Span<const float>> Forward(const ModelInput& input,
                                                  absl::Span<const kernels::KvLayer> kv);
  // The same, but the backend may choose the tokens of input.draws, which are empty or have one for
  // each of the logit rows.
  absl::StatusOr<ModelOutput> ForwardWithDraws(const ModelInput& input,
                                               absl::Span<const kernels::KvLayer> kv);

 private:
  struct Activations;

  Transformer(ModelConfig config, Checkpoint checkpoint, std::unique_ptr<Backend> backend,
              ModelWeights weights);

  // All of a step before its end.
  absl::Status Compute(const ModelInput& input, absl::Span<const kernels::KvLayer> kv);
  // The operations of that, without BeginStep. `all_rows`: the wanted logits are those of all rows.
  void Operate(const ModelInput& input, absl::Span<const kernels::KvLayer> kv, bool all_rows);
  RowsView Logits(const ModelInput& input) const;
  NormShape Shape(const ModelWeights::Norm& norm) const;
  // What the last part of a layer has left behind, and the norm of its result before the addition.
  struct Before {
    Addition addition = Addition::kAdded;
    const ModelWeights::Norm* post_norm = nullptr;
  };
  // The input of the next part, whose products read it.
  LayerInput AttentionInput(const Before& before, const LayerConfig& layer,
                            const ModelWeights::Layer& weights);
  LayerInput MlpInput(const Before& before, const ModelWeights::Layer& weights);
  LayerInput HeadInput(const Before& before);
  // `first` is the next product, with the norm; without weights there are several. `normed`: where
  // the normed rows go if the product does not norm them.
  LayerInput NextInput(const Before& before, const ModelWeights::Norm& norm,
                       const FusedProduct& first, const RowsView& normed);
  LayerInput Unnormed(const ModelWeights::Norm& norm) const;
  RowsView NormedRows(std::initializer_list<const LinearWeights*> matrices) const;
  FusedProduct HeadProduct(const LayerInput& input) const;
  Residual residual() const;
  Addition Attend(const LayerConfig& layer, const ModelWeights::Layer& weights,
                  const LayerInput& input, const kernels::KvLayer& kv);
  Addition ApplyMlp(const ModelWeights::Layer& weights, const LayerInput& input);
  void ApplyHeadToSome(const ModelInput& input, const Before& before);

  const ModelConfig config_;
  const std::vector<WindowSize> windows_;
  const Checkpoint checkpoint_;
  const std::unique_ptr<Backend> backend_;
  const ModelWeights weights_;  // Destroyed before the backend and the checkpoint.
  std::unique_ptr<Activations> activations_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_LAYERS_TRANSFORMER_H_
