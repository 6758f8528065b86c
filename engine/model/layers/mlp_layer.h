// The MLP of one layer.
#ifndef PAGODA_ENGINE_MODEL_LAYERS_MLP_LAYER_H_
#define PAGODA_ENGINE_MODEL_LAYERS_MLP_LAYER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/backend.h"
#include "engine/model/layers/growing_rows.h"
#include "engine/model/layers/layer_input.h"
#include "engine/model/weights/weights.h"

namespace pagoda {

// One MLP, gated or plain. Its activations serve one layer after the other.
class MlpLayer {
 public:
  // For steps of `tokens` rows and MLPs of up to `intermediate_size`. Errors: those of
  // Backend::Allocate.
  absl::Status Resize(Backend& backend, const ModelConfig& config, uint64_t tokens,
                      uint64_t intermediate_size);

  // The product for gate and up, with the activation. Run computes it so if the backend fuses it,
  // which it must if the input still needs its norm.
  FusedProduct FirstProduct(const Backend& backend, const ModelConfig& config,
                            const ModelWeights::Mlp& weights, const LayerInput& input) const;

  Addition Run(Backend& backend, const ModelConfig& config, const ModelWeights::Mlp& weights,
               const LayerInput& input, const Residual& residual);

 private:
  GrowingRows gate_up_;  // [N][I + I]; a smaller MLP uses the first columns.
  GrowingRows gated_;    // [N][I]
};

// A mixture of experts. The router's outputs go to the host, which chooses the experts; each expert
// then computes its own tokens only, in the order of the experts: a product can spoil the rows of
// later ones (RowsView::room). The experts' results are added in the same order.
// The other tokens of the step change a token's result only by the number of rows of each product
// (matmul.h, invariant 3): in fp32 by the last bits at most, in other types by other factors too.
class ExpertsLayer {
 public:
  absl::Status Resize(Backend& backend, const ModelConfig& config, uint64_t tokens);

  void Run(Backend& backend, const ModelConfig& config, const ModelWeights::Experts& weights,
           const RowsView& input, const RowsView& output);

 private:
  MlpLayer shared_;
  GrowingRows scores_;   // [N][count]
  GrowingRows taken_;    // [N * chosen][H]: the inputs, expert by expert.
  GrowingRows gate_up_;  // [N * chosen][I + I]
  GrowingRows gated_;    // [N * chosen][I]
  GrowingRows results_;  // [N * chosen][H]
  std::vector<uint32_t> rows_;
  std::vector<float> factors_;
  std::vector<ProductOfRows> up_products_;
  std::vector<ProductOfRows> down_products_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_LAYERS_MLP_LAYER_H_
