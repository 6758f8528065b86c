// The attention of one layer, up to the matrix behind it.
#ifndef PAGODA_ENGINE_MODEL_LAYERS_ATTENTION_LAYER_H_
#define PAGODA_ENGINE_MODEL_LAYERS_ATTENTION_LAYER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/backend.h"
#include "engine/model/layers/growing_rows.h"
#include "engine/model/layers/layer_input.h"
#include "engine/model/weights/weights.h"
#include "kernels/types.h"

namespace pagoda {

// Queries, keys and values per head; several query heads can share a KV head. Its activations serve
// one layer after the other.
class GroupedAttention {
 public:
  // For steps of `tokens` rows. Errors: those of Backend::Allocate.
  absl::Status Resize(Backend& backend, const ModelConfig& config, uint64_t tokens);

  // The product for queries, keys and values. Run computes it with the input's norm if the input
  // still needs that. REQUIRES of Run: the backend then fuses this product.
  FusedProduct FirstProduct(const ModelConfig& config, const LayerConfig& layer,
                            const ModelWeights::Attention& weights, const LayerInput& input) const;

  // Writes K and V of the rows into the cache, and attends. Returns [N][num_heads * head_dim] of
  // the type `output`, valid until the next call. `shape` has the window, and the slopes if the
  // model has any.
  RowsView Run(Backend& backend, const ModelConfig& config, const LayerConfig& layer,
               const ModelWeights::Attention& weights, AttentionShape shape,
               const LayerInput& input, const kernels::KvLayer& kv, kernels::ElementType output);

 private:
  GrowingRows qkv_;       // [N][Q + K + K]; a layer with fewer KV heads uses the first columns.
  GrowingRows attended_;  // [N][Q]; queries of 16 bits before that.
};

// Multi-head latent attention (DeepSeek-AI, 2024), with the matrices to keys and values absorbed:
// the heads attend over the latents themselves, which are all that the cache holds.
class LatentAttention {
 public:
  absl::Status Resize(Backend& backend, const ModelConfig& config, uint64_t tokens);

  // Does what GroupedAttention::Run does. Returns [N][num_heads * value_dim] of fp32.
  RowsView Run(Backend& backend, const ModelConfig& config, const LayerConfig& layer,
               const ModelWeights::LatentAttention& weights, const AttentionShape& shape,
               const RowsView& input, const kernels::KvLayer& kv);

 private:
  // The queries of the latent, and the rotated parts.
  void MakeQueries(Backend& backend, const ModelConfig& config, const LayerConfig& layer,
                   const ModelWeights::LatentAttention& weights, const RowsView& input);

  GrowingRows rank_;      // [N][query_rank]
  GrowingRows plain_;     // [N][num_heads * (plain_dim + rotary_dim)]
  GrowingRows queries_;   // [N][num_heads * (latent_dim + rotary_dim)]
  GrowingRows keys_;      // [N][latent_dim + rotary_dim]
  GrowingRows latents_;   // [N][num_heads * latent_dim], attended
  GrowingRows attended_;  // [N][num_heads * value_dim]
  std::vector<ProductOfRows> products_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_LAYERS_ATTENTION_LAYER_H_
