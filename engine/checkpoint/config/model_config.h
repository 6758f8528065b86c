// The configuration of a model, without its weights.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_MODEL_CONFIG_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/words/rotary_range.h"
#include "pools/layout.h"
#include "pools/types.h"

namespace pagoda {

// The longest context that a model's files may state.
inline constexpr uint32_t kMaxPositionEmbeddings = 1u << 26;

// kClampedSilu is gpt-oss': gate = min(gate, limit), up = clamp(up, -limit, limit), and the result
// is (up + 1) * gate / (1 + exp(-alpha * gate)).
enum class Activation : uint8_t { kSilu, kGeluTanh, kClampedSilu };

// A rotary embedding's frequencies: theta^(-2i / d) for i = 0 to d / 2 - 1, scaled, where d is the
// number of rotated elements.
struct RotaryConfig {
  enum class Scaling : uint8_t {
    kNone,
    kLinear,  // Every frequency is divided by `factor`.
    // Llama 3.1's: frequencies whose wavelength is above original_max_position_embeddings /
    // low_freq_factor are divided by `factor`. Those below .../ high_freq_factor stay. Between the
    // two the scaling is linear.
    kLlama3,
    kDivisors,  // Frequency i is divided by divisors[i]. A GGUF file has only these for kLlama3.
    // YaRN (Peng et al., 2023): frequencies that turn less than beta_slow times within
    // original_max_position_embeddings are divided by `factor`. Those that turn more than beta_fast
    // times stay. Between the two the scaling is linear.
    kYarn,
    // LongRoPE (Ding et al., 2024): frequency i is divided by divisors[i] in a sequence of at most
    // original_max_position_embeddings tokens, and by long_divisors[i] in a longer one. The limit
    // of the whole sequence decides (RotaryRangeOf), because K is kept rotated.
    kLongRope,
  };
  // The elements that are rotated with each other: i and i + d / 2, or 2i and 2i + 1.
  enum class Pairs : uint8_t { kHalves, kNeighbours };
  float theta = 10000.0f;
  Scaling scaling = Scaling::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  uint32_t original_max_position_embeddings = 0;
  // kDivisors and kLongRope: a number for each frequency. Otherwise empty.
  std::vector<float> divisors;
  std::vector<float> long_divisors;  // kLongRope: a number for each frequency.
  float beta_fast = 32.0f;           // kYarn.
  float beta_slow = 1.0f;
  bool truncate = true;           // kYarn: the bounds of the linear part are whole indices.
  float attention_factor = 1.0f;  // Multiplies cosines and sines.
  uint32_t rotary_dim = 0;        // The rotated elements of a head. 0: all of them.
  Pairs pairs = Pairs::kHalves;
  friend bool operator==(const RotaryConfig&, const RotaryConfig&) = default;
};

// Multi-head latent attention (DeepSeek-AI, 2024). A token's K is a latent of `latent_dim` elements
// and `rotary_dim` rotated ones, for all heads together; its V is the latent. A head's query has
// `plain_dim` elements, which its matrix turns into a query of the latent, and `rotary_dim` rotated
// ones. Another matrix turns the attended latent into `value_dim` elements.
struct LatentAttentionConfig {
  uint32_t query_rank = 0;  // Queries come from a vector of this size. 0: from the hidden state.
  uint32_t latent_dim = 0;
  uint32_t plain_dim = 0;
  uint32_t rotary_dim = 0;
  uint32_t value_dim = 0;
  friend bool operator==(const LatentAttentionConfig&, const LatentAttentionConfig&) = default;
};

// A mixture of experts: a router chooses some of many gated MLPs for each token, and adds their
// results with weights.
struct ExpertsConfig {
  enum class Scores : uint8_t {
    kSoftmax,  // The softmax over all experts.
    kSigmoid,  // The sigmoid for each. The correction acts on the choice, not on the weights.
    kSoftmaxOfChosen,  // The experts are chosen by the router's numbers: gpt-oss.
  };
  // How a group of experts is rated, if only the experts of the best groups can be chosen.
  enum class GroupRating : uint8_t { kBest, kSumOfBestTwo };

  uint32_t count = 0;
  uint32_t chosen = 0;             // Experts of a token.
  uint32_t intermediate_size = 0;  // The MLP width of each expert.
  // The width of an MLP that all tokens go through; 0: none.
  uint32_t shared_intermediate_size = 0;
  Scores scores = Scores::kSoftmax;
  bool normalize = false;  // The weights of the chosen experts are divided by their sum,
  float scale = 1.0f;      // and multiplied by this.
  uint32_t groups = 1;
  uint32_t chosen_groups = 1;
  GroupRating group_rating = GroupRating::kBest;
  bool has_correction = false;  // The router has a number per expert that is added for the choice.
  bool has_bias = false;        // The router and the experts' matrices have biases.
  friend bool operator==(const ExpertsConfig&, const ExpertsConfig&) = default;
};

struct LayerConfig {
  WindowSize window = kFullAttention;  // The keys that a query sees, its own included.
  uint32_t num_kv_heads = 0;           // A divisor of ModelConfig::num_heads.
  uint32_t rotary = 0;                 // Index in ModelConfig::rotaries.
  // K and V, or K only (multi-head latent attention, whose values are the first elements of keys).
  KvKind kind = KvKind::kKeyAndValue;
  // For K only: how many of a key's first elements are the value, up to head_dim. 0: all.
  uint32_t value_dim = 0;
  bool has_experts = false;  // The MLP is a mixture of experts: ModelConfig::experts.
  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

// How a checkpoint names its tensors: as Llama in Hugging Face transformers, or as BLOOM.
enum class TensorNames : uint8_t { kLlama, kBloom };

// A decoder: the differences from Llama. The graph is in model/layers/transformer.h.
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
  std::optional<LatentAttentionConfig> latent;  // All layers, or none.
  std::optional<ExpertsConfig> experts;         // The experts of the layers that have experts.
  float rms_norm_eps = 1e-6f;                   // The epsilon of all norms.
  float query_scale = 1.0f;                     // A score is query_scale * (q . k).
  float attention_soft_cap = 0.0f;              // The soft cap of scores; 0: none.
  float final_soft_cap = 0.0f;                  // The soft cap of logits; 0: none.
  // Gemma multiplies embeddings by the root of hidden_size, rounded to bf16 if the checkpoint's
  // type is bf16.
  float embedding_scale = 1.0f;
  Activation activation = Activation::kSilu;
  float activation_alpha = 0.0f;  // kClampedSilu.
  float activation_limit = 0.0f;
  TensorNames names = TensorNames::kLlama;
  bool gated_mlp = true;                // False: the MLP is down(activation(up(x))): BLOOM.
  bool layer_norms = false;             // Norms subtract the mean and have a bias: BLOOM.
  bool embedding_norm = false;          // The embeddings are normed: BLOOM.
  bool alibi = false;                   // ALiBi's slopes instead of rotary embeddings: BLOOM.
  bool attention_sinks = false;         // Each head has a sink: gpt-oss.
  bool attention_bias = false;          // q, k and v have a bias: Qwen 2.
  bool output_bias = false;             // So has the output of attention.
  bool mlp_bias = false;                // So have the matrices of the MLP.
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

// The elements of a head that are rotated.
uint32_t RotaryDim(const RotaryConfig& rotary, uint32_t head_dim);

// theta^(-2i / d) for i = 0 to d / 2 - 1 with d = RotaryDim, scaled, in radians per position.
// Computed in fp32 as in transformers, because the last bits change the angles of far positions.
std::vector<float> RotaryFrequencies(const RotaryConfig& rotary, uint32_t head_dim,
                                     RotaryRange range = RotaryRange::kShort);

// The range of a sequence whose K is computed for at most `tokens` tokens. kLong if these are more
// than original_max_position_embeddings of a kLongRope.
RotaryRange RotaryRangeOf(const ModelConfig& config, uint64_t tokens);

// ALiBi's slope of each head (Press et al., 2021): the powers of 2^(-8 / n), where n is the number
// of heads; if n is no power of two, those of the next lower one, then every other one of the next
// higher one.
std::vector<float> AlibiSlopes(uint32_t num_heads);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_MODEL_CONFIG_H_
