// The configuration of a model, without its weights.
#ifndef PAGODA_ENGINE_CHECKPOINT_MODEL_CONFIG_H_
#define PAGODA_ENGINE_CHECKPOINT_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/layout.h"
#include "pools/types.h"

namespace pagoda {

// The longest context that a model's files may state.
inline constexpr uint32_t kMaxPositionEmbeddings = 1u << 26;

enum class Activation : uint8_t { kSilu, kGeluTanh };

// A rotary embedding's frequencies: theta^(-2i / head_dim) for i = 0 to head_dim / 2 - 1, scaled.
struct RotaryConfig {
  enum class Scaling : uint8_t {
    kNone,
    kLinear,  // Every frequency is divided by `factor`.
    // Llama 3.1's: frequencies whose wavelength is above original_max_position_embeddings /
    // low_freq_factor are divided by `factor`. Those below .../ high_freq_factor stay. Between the
    // two the scaling is linear.
    kLlama3,
    kDivisors,  // Frequency i is divided by divisors[i]. A GGUF file has only these for kLlama3.
  };
  float theta = 10000.0f;
  Scaling scaling = Scaling::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  uint32_t original_max_position_embeddings = 0;
  std::vector<float> divisors;  // kDivisors: head_dim / 2 numbers, from 1 on. Otherwise empty.
  friend bool operator==(const RotaryConfig&, const RotaryConfig&) = default;
};

struct LayerConfig {
  WindowSize window = kFullAttention;  // The keys that a query sees, its own included.
  uint32_t num_kv_heads = 0;           // A divisor of ModelConfig::num_heads.
  uint32_t rotary = 0;                 // Index in ModelConfig::rotaries.
  // K and V, or K only (multi-head latent attention, whose values are the first elements of keys).
  KvKind kind = KvKind::kKeyAndValue;
  // For K only: how many of a key's first elements are the value, up to head_dim. 0: all.
  uint32_t value_dim = 0;
  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

// A decoder of the Llama family: the differences between its members. The graph is in
// model/transformer.h.
struct ModelConfig {
  std::string architecture;  // config.json's name: "Qwen3ForCausalLM".
  uint32_t vocab_size = 0;
  uint32_t hidden_size = 0;
  uint32_t intermediate_size = 0;
  uint32_t num_heads = 0;
  uint32_t head_dim = 0;
  uint32_t max_position_embeddings = 0;
  std::vector<LayerConfig> layers;
  std::vector<RotaryConfig> rotaries;
  float rms_norm_eps = 1e-6f;
  float query_scale = 1.0f;         // A score is query_scale * (q . k).
  float attention_soft_cap = 0.0f;  // Of scores; 0: none.
  float final_soft_cap = 0.0f;      // Of logits; 0: none.
  // Gemma multiplies embeddings by the root of hidden_size, rounded to bf16 if the checkpoint's
  // type is bf16.
  float embedding_scale = 1.0f;
  Activation activation = Activation::kSilu;
  bool attention_bias = false;          // q, k and v have a bias: Qwen 2.
  bool query_key_norm = false;          // Each head of q and k is normed before it is rotated.
  bool norm_weight_plus_one = false;    // The stored weights of norms are one too small: Gemma.
  bool post_norms = false;              // The results of attention and MLP are normed too: Gemma.
  bool tie_word_embeddings = false;     // The head is the embedding.
  std::vector<uint32_t> eos_token_ids;  // Empty if the model names none.
};

// The configuration of the checkpoint at this path (as for Checkpoint::Open), from config.json or
// from a GGUF file's metadata. Defaults of config.json are those of Hugging Face transformers
// (architectures.cc). Errors: INVALID_CHECKPOINT with the field's name: missing file, missing or
// absurd field, unsupported architecture or option.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model_dir);

// theta^(-2i / head_dim) for i = 0 to head_dim / 2 - 1, scaled, in radians per position. Computed
// in fp32 as in transformers, because the last bits change the angles of far positions.
std::vector<float> RotaryFrequencies(const RotaryConfig& rotary, uint32_t head_dim);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_MODEL_CONFIG_H_
