// The weights of a Qwen3 model in fp32.
#ifndef PAGODA_ENGINE_MODEL_WEIGHTS_H_
#define PAGODA_ENGINE_MODEL_WEIGHTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/matmul.h"

namespace pagoda {

// H: hidden_size, D: head_dim, I: intermediate_size, V: vocab_size. Matrices are [outputs][inputs].
struct Qwen3Weights {
  struct Layer {
    std::vector<float> attention_norm;  // [H]
    Matrix query;                       // [num_heads * D][H]
    Matrix key;                         // [num_kv_heads * D][H]
    Matrix value;                       // [num_kv_heads * D][H]
    std::vector<float> query_norm;      // [D]
    std::vector<float> key_norm;        // [D]
    Matrix attention_output;            // [H][num_heads * D]
    std::vector<float> mlp_norm;        // [H]
    Matrix gate;                        // [I][H]
    Matrix up;                          // [I][H]
    Matrix down;                        // [H][I]
  };

  Matrix embedding;  // [V][H]
  std::vector<Layer> layers;
  std::vector<float> final_norm;  // [H]
  Matrix untied_head;             // [V][H]; empty where the head is the embedding.

  const Matrix& head() const { return untied_head.values.empty() ? embedding : untied_head; }
};

// Copies the weights out of the checkpoint. Errors: those of Checkpoint::ReadFloats.
absl::StatusOr<Qwen3Weights> LoadQwen3Weights(const ModelConfig& config,
                                              const Checkpoint& checkpoint);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_WEIGHTS_H_
