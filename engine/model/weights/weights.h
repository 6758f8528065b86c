// A model's weights in its backend's memory.
#ifndef PAGODA_ENGINE_MODEL_WEIGHTS_WEIGHTS_H_
#define PAGODA_ENGINE_MODEL_WEIGHTS_WEIGHTS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/backend.h"

namespace pagoda {

// H: hidden_size, D: head_dim, I: intermediate_size, V: vocab_size, Q: num_heads * D, K: the
// layer's num_kv_heads * D. Matrices are [outputs][inputs]. Matrices with the same input are one
// matrix, with concatenated outputs.
struct ModelWeights {
  using Linear = std::unique_ptr<LinearWeights>;
  using Vector = std::unique_ptr<VectorWeights>;

  struct Norm {
    Vector weight;  // [H]
    Vector bias;    // [H], null without ModelConfig::layer_norms.
  };
  struct Attention {
    Linear query_key_value;  // [Q + K + K][H]
    Vector query_norm;       // [D], null without ModelConfig::query_key_norm.
    Vector key_norm;         // [D], with the same condition.
    Vector sinks;            // [num_heads], null without ModelConfig::attention_sinks.
  };
  // L: latent_dim, R: rotary_dim, P: plain_dim and S: value_dim of ModelConfig::latent.
  struct LatentAttention {
    Linear query_down;  // [query_rank][H], null if queries come from the hidden state.
    Vector query_norm;  // [query_rank], with the same condition.
    Linear query_up;    // [num_heads * (P + R)][query_rank or H]
    Linear key_down;    // [L + R][H]
    Vector key_norm;    // [L]
    std::vector<Linear> absorb_keys;  // For each head [L][P]: a query of the latent.
    std::vector<Linear> value_up;     // For each head [S][L].
  };
  struct Mlp {
    Linear gate_up;  // [I + I][H]; [I][H] without ModelConfig::gated_mlp.
    Linear down;     // [H][I]
  };
  struct Experts {
    Linear router;                  // [count][H]
    std::vector<float> correction;  // [count], on the host; empty if there is none.
    std::vector<Mlp> experts;
    std::optional<Mlp> shared;
  };
  struct Layer {
    Norm attention_norm;
    Attention attention;                    // Without ModelConfig::latent.
    std::optional<LatentAttention> latent;  // With it.
    Linear attention_output;                // [H][Q], or [H][num_heads * S].
    Norm attention_post_norm;               // Null without ModelConfig::post_norms.
    Norm mlp_norm;
    Mlp mlp;                         // Without LayerConfig::has_experts.
    std::optional<Experts> experts;  // With it.
    Norm mlp_post_norm;              // Null without ModelConfig::post_norms.
  };

  // Matrices that the checkpoint has in another form. The layers can refer to their bytes.
  std::vector<std::vector<std::byte>> made;

  std::unique_ptr<EmbeddingWeights> embedding;  // [V][H]
  Norm embedding_norm;                          // Null without ModelConfig::embedding_norm.
  Vector alibi_slopes;                          // [num_heads], null without ModelConfig::alibi.
  std::vector<Layer> layers;
  Norm final_norm;
  Linear head;  // [V][H]: the embedding's if they are tied.
};

// Loads the checkpoint's weights into the backend. Errors: INVALID_CHECKPOINT with the tensor's
// name (Checkpoint::Find); those of the backend.
absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                         Backend& backend);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_WEIGHTS_WEIGHTS_H_
