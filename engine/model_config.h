#ifndef PAGODA_ENGINE_MODEL_CONFIG_H_
#define PAGODA_ENGINE_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pagoda {

// What the engine reads of a Hugging Face config.json.
struct ModelConfig {
  std::string architecture;  // "Qwen3ForCausalLM"
  uint32_t vocab_size = 0;
  uint32_t hidden_size = 0;
  uint32_t intermediate_size = 0;
  uint32_t num_layers = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  float rope_theta = 10000.0f;
  bool tie_word_embeddings = false;
  std::vector<uint32_t> eos_token_ids;  // Empty where the model names none.
};

// Reads DIR/config.json.
// Errors: INVALID_CHECKPOINT with the field's name: missing file, missing or absurd field, an
// architecture or option that the engine does not run (sliding windows, RoPE scaling, attention
// bias, quantised weights).
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model_dir);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CONFIG_H_
