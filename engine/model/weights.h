// A model's weights in its backend's memory.
#ifndef PAGODA_ENGINE_MODEL_WEIGHTS_H_
#define PAGODA_ENGINE_MODEL_WEIGHTS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/backend.h"

namespace pagoda {

// H: hidden_size, D: head_dim, I: intermediate_size, V: vocab_size, Q: num_heads * D, K: the
// layer's num_kv_heads * D. Matrices are [outputs][inputs], as in checkpoints. Matrices with the
// same input are one matrix, with concatenated outputs.
struct ModelWeights {
  using Linear = std::unique_ptr<LinearWeights>;
  using Vector = std::unique_ptr<VectorWeights>;

  struct Layer {
    Vector attention_norm;       // [H]
    Linear query_key_value;      // [Q + K + K][H], with a bias if the model has one.
    Vector query_norm;           // [D], null without ModelConfig::query_key_norm.
    Vector key_norm;             // [D], likewise.
    Linear attention_output;     // [H][Q]
    Vector attention_post_norm;  // [H], null without ModelConfig::post_norms.
    Vector mlp_norm;             // [H]
    Linear gate_up;              // [I + I][H]
    Linear down;                 // [H][I]
    Vector mlp_post_norm;        // [H], null without ModelConfig::post_norms.
  };

  std::unique_ptr<EmbeddingWeights> embedding;  // [V][H]
  std::vector<Layer> layers;
  Vector final_norm;  // [H]
  Linear head;        // [V][H]: the embedding's if they are tied.
};

// Loads the checkpoint's weights into the backend. Names are those of Hugging Face transformers.
// Errors: INVALID_CHECKPOINT with the tensor's name (Checkpoint::Find); those of the backend.
absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                         Backend& backend);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_WEIGHTS_H_
