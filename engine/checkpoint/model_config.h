// What the engine needs to know of a model beside its weights.
#ifndef PAGODA_ENGINE_CHECKPOINT_MODEL_CONFIG_H_
#define PAGODA_ENGINE_CHECKPOINT_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/layout.h"
#include "pools/types.h"

namespace pagoda {

enum class Activation : uint8_t { kSilu, kGeluTanh };

// A rotary embedding's frequencies: theta^(-2i / head_dim) for i = 0 to head_dim / 2 - 1, scaled.
struct RotaryConfig {
  enum class Scaling : uint8_t {
    kNone,
    kLinear,  // Every frequency is divided by `factor`.
    // Llama 3.1's: those of a wavelength above original_max_position_embeddings / low_freq_factor
    // are divided by `factor`, those below .../ high_freq_factor stay, between them a straight
    // line.
    kLlama3,
    kDivisors,  // Frequency i is divided by divisors[i]: all that a GGUF file tells of kLlama3.
  };
  float theta = 10000.0f;
  Scaling scaling = Scaling::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  uint32_t original_max_position_embeddings = 0;
  std::vector<float> divisors;  // kDivisors: head_dim / 2 of them, from 1 on. Else empty.
  friend bool operator==(const RotaryConfig&, const RotaryConfig&) = default;
};

struct LayerConfig {
  WindowSize window = kFullAttention;  // A query sees as many keys, its own among them.
  uint32_t num_kv_heads = 0;           // A divisor of ModelConfig::num_heads.
  uint32_t rotary = 0;                 // Index in ModelConfig::rotaries.
  // K and V, or K only: multi-head latent attention, whose values are the first elements of keys.
  KvKind kind = KvKind::kKeyAndValue;
  uint32_t value_dim = 0;  // Of K only: elements of a value, up to head_dim; 0: all of a key's.
  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

// A decoder of the Llama family, as a list of what distinguishes its members; the graph is
// model/transformer.h's.
struct ModelConfig {
  std::string architecture;  // As config.json names it: "Qwen3ForCausalLM".
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
  // Gemma multiplies embeddings by the root of hidden_size, in bf16 where the weights are.
  float embedding_scale = 1.0f;
  Activation activation = Activation::kSilu;
  bool attention_bias = false;          // q, k and v have one: Qwen 2.
  bool query_key_norm = false;          // Each head of q and k is normed before it is rotated.
  bool norm_weight_plus_one = false;    // Norms' weights are stored less one: Gemma.
  bool post_norms = false;              // Attention's and the MLP's results are normed, too: Gemma.
  bool tie_word_embeddings = false;     // The head is the embedding.
  std::vector<uint32_t> eos_token_ids;  // Empty where the model names none.
};

// Of the checkpoint at that path, as Checkpoint::Open has it: from config.json or from a GGUF
// file's metadata. What config.json may leave out is as in Hugging Face transformers
// (architectures.cc). Errors: INVALID_CHECKPOINT with the field's name: missing file, missing or
// absurd field, an architecture or option that the engine does not run.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model_dir);

// theta^(-2i / head_dim) for i = 0 to head_dim / 2 - 1, scaled: radians per position. Computed in
// fp32 as transformers does, whose last bits the angles of far positions show.
std::vector<float> RotaryFrequencies(const RotaryConfig& rotary, uint32_t head_dim);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_MODEL_CONFIG_H_
