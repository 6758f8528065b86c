#include "engine/checkpoint/config/gguf_config.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"
#include "engine/checkpoint/config/bloom_fields.h"
#include "engine/checkpoint/config/gguf_deepseek_fields.h"
#include "engine/checkpoint/config/gguf_expert_fields.h"
#include "engine/checkpoint/config/gguf_fields.h"
#include "engine/checkpoint/config/gguf_long_rope.h"
#include "engine/checkpoint/config/gguf_names.h"
#include "engine/checkpoint/config/rotary_fields.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

constexpr char kEmbedding[] = "token_embd.weight";
constexpr char kHead[] = "output.weight";
// llama.cpp recognises the largest Gemmas by their number of layers. Their scale is not that of
// head_dim.
constexpr uint32_t kGemma2LargeLayers = 46;
constexpr uint32_t kGemma3LargeLayers = 62;

// llama.cpp's rules for an architecture, beyond the metadata.
struct GgufArchitecture {
  absl::string_view name;
  const char* hugging_face;
  bool attention_bias = false;
  bool query_key_norm = false;
  bool is_gemma = false;
  bool is_phi3 = false;
  bool is_bloom = false;
  uint32_t window_period = 0;  // Every window_period-th layer has no window; 0: all have it.
  float sliding_theta = 0.0f;  // The base for layers with a window; 0: the common base.
  uint32_t large_layers = 0;   // A model with this number of layers scales scores by hidden_size.
  GgufExperts experts = GgufExperts::kNone;
};

constexpr GgufArchitecture kGgufArchitectures[] = {
    {.name = "llama", .hugging_face = "LlamaForCausalLM"},
    {.name = "qwen2", .hugging_face = "Qwen2ForCausalLM", .attention_bias = true},
    {.name = "qwen3", .hugging_face = "Qwen3ForCausalLM", .query_key_norm = true},
    {.name = "qwen3moe",
     .hugging_face = "Qwen3MoeForCausalLM",
     .query_key_norm = true,
     .experts = GgufExperts::kQwen3Moe},
    {.name = "gpt-oss",
     .hugging_face = "GptOssForCausalLM",
     .attention_bias = true,
     .window_period = 2,
     .experts = GgufExperts::kGptOss},
    {.name = "gemma2",
     .hugging_face = "Gemma2ForCausalLM",
     .is_gemma = true,
     .window_period = 2,
     .large_layers = kGemma2LargeLayers},
    {.name = "gemma3",
     .hugging_face = "Gemma3ForCausalLM",
     .query_key_norm = true,
     .is_gemma = true,
     .window_period = 6,
     .sliding_theta = 1e4f,
     .large_layers = kGemma3LargeLayers},
    {.name = "phi3", .hugging_face = "Phi3ForCausalLM", .is_phi3 = true},
    {.name = "bloom", .hugging_face = "BloomForCausalLM", .is_bloom = true},
    {.name = "deepseek2",
     .hugging_face = "DeepseekV2ForCausalLM",
     .experts = GgufExperts::kDeepseek},
};

// One number for all layers, or an array with one per layer.
void ReadKvHeads(GgufFields& reader, ModelConfig& config) {
  const std::string key = "attention.head_count_kv";
  const GgufValue* const value = reader.Find(key);
  std::vector<int64_t> heads;
  if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(*value)) {
    heads = std::get<std::vector<int64_t>>(*value);
    if (heads.size() != config.layers.size()) return reader.Refuse(key, "one number per layer");
  } else {
    heads.assign(config.layers.size(), reader.Count(key, 1024, config.num_heads));
  }
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i] < 1 || heads[i] > int64_t{config.num_heads} || config.num_heads % heads[i] != 0) {
      return reader.Refuse(key, absl::StrCat("a divisor of head_count ", config.num_heads));
    }
    config.layers[i].num_kv_heads = static_cast<uint32_t>(heads[i]);
  }
}

void ReadShape(GgufFields& reader, const GgufArchitecture& architecture, ModelConfig& config) {
  config.hidden_size = reader.Count("embedding_length", 1u << 17);
  // Models whose layers all have experts need not have the size of a plain MLP.
  const bool can_lack_mlp = architecture.experts == GgufExperts::kQwen3Moe ||
                            architecture.experts == GgufExperts::kGptOss;
  if (!can_lack_mlp || reader.Find("feed_forward_length") != nullptr) {
    config.intermediate_size = reader.Count("feed_forward_length", 1u << 20);
  }
  config.num_heads = reader.Count("attention.head_count", 1024);
  config.layers.resize(reader.Count("block_count", 1024));
  config.max_position_embeddings = reader.Count("context_length", 1u << 26);
  config.rms_norm_eps = reader.Positive(architecture.is_bloom ? "attention.layer_norm_epsilon"
                                                              : "attention.layer_norm_rms_epsilon");
  ReadKvHeads(reader, config);
}

// The elements of a head, all of which are rotated except in Phi 3.
void ReadHeadDim(GgufFields& reader, const GgufArchitecture& architecture, ModelConfig& config) {
  const uint32_t derived = config.hidden_size / config.num_heads;
  config.head_dim = reader.Count("attention.key_length", 1024, derived);
  if (config.head_dim < 2 || config.head_dim > 1024 || config.head_dim % 2 != 0) {
    reader.Refuse("attention.key_length", "even and at most 1024");
  }
  if (reader.Count("attention.value_length", 1024, config.head_dim) != config.head_dim) {
    reader.Refuse("attention.value_length", "the same as attention.key_length");
  }
  if (!architecture.is_phi3 &&
      reader.Count("rope.dimension_count", 1024, config.head_dim) != config.head_dim) {
    reader.Refuse("rope.dimension_count", "the size of a head: only whole heads can be rotated");
  }
}

// Sets the layers with a sliding window: from the metadata, or by llama.cpp's rule.
void ReadWindows(GgufFields& reader, const GgufArchitecture& architecture, ModelConfig& config) {
  if (reader.Find("attention.sliding_window") == nullptr) {
    // Without this key, Gemma 3 has only full attention, and Gemma 2 has a window of 4,096.
    if (architecture.name != "gemma2") return;
  } else if (architecture.is_phi3 &&
             *reader.Find("attention.sliding_window") == GgufValue(int64_t{0})) {
    return;
  }
  const WindowSize window(reader.Count("attention.sliding_window", 1u << 26, 4096));
  const std::string pattern_key = "attention.sliding_window_pattern";
  const GgufValue* const pattern = reader.Find(pattern_key);
  if (pattern != nullptr && std::holds_alternative<std::vector<int64_t>>(*pattern)) {
    const auto& has_window = std::get<std::vector<int64_t>>(*pattern);
    if (has_window.size() != config.layers.size()) {
      return reader.Refuse(pattern_key, "one flag per layer");
    }
    for (size_t i = 0; i < has_window.size(); ++i) {
      if (has_window[i] != 0) config.layers[i].window = window;
    }
    return;
  }
  uint32_t period = architecture.window_period;
  if (pattern != nullptr) period = reader.Count(pattern_key, 1024);
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    if (period == 0 || (i + 1) % period != 0) config.layers[i].window = window;
  }
}

// Reads the divisors, which the file has as a tensor.
void ReadDivisors(GgufFields& reader, const GgufFile& file, RotaryConfig& rotary,
                  uint32_t head_dim) {
  const auto it = file.tensors().find(kGgufRotaryDivisors);
  if (it == file.tensors().end()) return;
  if (rotary.scaling != RotaryConfig::Scaling::kNone) {
    return reader.Refuse("rope.scaling.type", "none if there is a tensor rope_freqs.weight");
  }
  rotary.scaling = RotaryConfig::Scaling::kDivisors;
  const bool has_shape = it->second.shape == std::vector<uint64_t>{head_dim / 2};
  if (has_shape) rotary.divisors = ToFloats(it->second);
  bool are_sound = has_shape;
  for (const float divisor : rotary.divisors) {
    are_sound = are_sound && divisor >= 1 && std::isfinite(divisor);
  }
  if (!are_sound) {
    reader.Complain(absl::StrCat("tensor ", kGgufRotaryDivisors, " is not [", head_dim / 2,
                                 "] numbers from 1 on"));
  }
}

// llama.cpp rounds the bounds of the linear part. The real gpt-oss, as Hugging Face runs it, does
// not.
void ReadYarn(GgufFields& reader, const GgufArchitecture& architecture, const ModelConfig& config,
              RotaryConfig& rotary) {
  rotary.scaling = RotaryConfig::Scaling::kYarn;
  rotary.factor = reader.AtLeastOne("rope.scaling.factor");
  rotary.original_max_position_embeddings = reader.Count("rope.scaling.original_context_length",
                                                         1u << 26, config.max_position_embeddings);
  rotary.beta_fast = reader.Positive("rope.scaling.yarn_beta_fast", rotary.beta_fast);
  rotary.beta_slow = reader.Positive("rope.scaling.yarn_beta_slow", rotary.beta_slow);
  rotary.truncate = architecture.experts != GgufExperts::kGptOss;
  rotary.attention_factor = YarnScale(rotary.factor, 1.0f);
  if (rotary.theta <= 1.0f) reader.Refuse("rope.freq_base", "more than 1 for yarn");
  for (const char* key : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor",
                          "rope.scaling.attn_factor"}) {
    const GgufValue* const value = reader.Find(key);
    if (value != nullptr && *value != GgufValue(1.0)) {
      reader.Refuse(key, "absent or 1; other values are not supported");
    }
  }
}

RotaryConfig ReadScaling(GgufFields& reader, const GgufArchitecture& architecture,
                         const ModelConfig& config) {
  RotaryConfig rotary = {.theta = reader.AtLeastOne("rope.freq_base", 10000.0f)};
  const GgufValue* const type = reader.Find("rope.scaling.type");
  const std::string* const name = type == nullptr ? nullptr : std::get_if<std::string>(type);
  if (type == nullptr || (name != nullptr && *name == "none")) return rotary;
  if (name != nullptr && *name == "linear") {
    rotary.scaling = RotaryConfig::Scaling::kLinear;
    rotary.factor = reader.AtLeastOne("rope.scaling.factor");
  } else if (name != nullptr && *name == "yarn") {
    ReadYarn(reader, architecture, config, rotary);
  } else {
    reader.Refuse("rope.scaling.type", "none, linear or yarn; others are not supported");
  }
  return rotary;
}

// A part of each head can be rotated, and the factors of the frequencies can be tensors.
RotaryConfig ReadPhi3Rotary(GgufFields& reader, const GgufFile& file,
                            const GgufArchitecture& architecture, const ModelConfig& config) {
  const uint32_t dim = reader.Count("rope.dimension_count", 1024, config.head_dim);
  if (dim < 2 || dim % 2 != 0 || dim > config.head_dim) {
    reader.Refuse("rope.dimension_count", "even, and at most the size of a head");
  }
  RotaryConfig rotary = HasGgufLongRope(file) ? ReadGgufLongRope(reader, file, dim, config)
                                              : ReadScaling(reader, architecture, config);
  if (dim != config.head_dim) rotary.rotary_dim = dim;
  return rotary;
}

void ReadRotaries(GgufFields& reader, const GgufFile& file, const GgufArchitecture& architecture,
                  ModelConfig& config) {
  if (architecture.is_bloom) return;
  if (architecture.is_phi3) {
    config.rotaries = {ReadPhi3Rotary(reader, file, architecture, config)};
    return;
  }
  RotaryConfig rotary = ReadScaling(reader, architecture, config);
  ReadDivisors(reader, file, rotary, config.head_dim);
  config.rotaries = {std::move(rotary)};
  if (architecture.sliding_theta == 0.0f) return;
  config.rotaries.push_back(
      {.theta = reader.AtLeastOne("rope.freq_base_swa", architecture.sliding_theta)});
  for (LayerConfig& layer : config.layers) layer.rotary = layer.window != kFullAttention ? 1 : 0;
}

void FillGemma(GgufFields& reader, const GgufFile& file, const GgufArchitecture& architecture,
               ModelConfig& config) {
  const bool is_gemma2 = architecture.name == "gemma2";
  config.activation = Activation::kGeluTanh;
  config.post_norms = true;  // The file's norm weights already include the one.
  config.attention_soft_cap = is_gemma2 ? reader.Positive("attn_logit_softcapping", 50.0f) : 0.0f;
  config.final_soft_cap = 0.0f;
  if (is_gemma2 || reader.Find("final_logit_softcapping") != nullptr) {
    config.final_soft_cap = reader.Positive("final_logit_softcapping", 30.0f);
  }
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  const auto embedding = file.tensors().find(kEmbedding);
  if (embedding != file.tensors().end() && embedding->second.type == TensorType::kBFloat16) {
    config.embedding_scale = kernels::ToFloat(kernels::ToBFloat16(config.embedding_scale));
  }
  if (config.layers.size() == architecture.large_layers) {
    config.query_scale =
        1.0f / std::sqrt(static_cast<float>(config.hidden_size / config.num_heads));
  }
}

// Every head of a BLOOM has its own K and V.
void FillBloom(GgufFields& reader, ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    if (layer.num_kv_heads != config.num_heads) {
      reader.Refuse("attention.head_count_kv", absl::StrCat("head_count ", config.num_heads));
    }
  }
  if (config.hidden_size != config.num_heads * config.head_dim) {
    reader.Refuse("embedding_length", absl::StrCat("a multiple of head_count ", config.num_heads));
  }
  SetBloomParts(config);
}

// The size of the vocabulary is the embedding's number of rows. Without a head in the file, the
// head is tied to the embedding.
void ReadVocabulary(GgufFields& reader, const GgufFile& file, ModelConfig& config) {
  const auto embedding = file.tensors().find(kEmbedding);
  if (embedding == file.tensors().end()) {
    return reader.Complain(absl::StrCat("has no tensor ", kEmbedding));
  }
  const std::vector<uint64_t>& shape = embedding->second.shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[0] > 1u << 24) {
    return reader.Complain(
        absl::StrCat("tensor ", kEmbedding, " is not a matrix with one row per token"));
  }
  config.vocab_size = static_cast<uint32_t>(shape[0]);
  config.tie_word_embeddings = !file.tensors().contains(kHead);
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const auto it = file.metadata().find(key);
    if (it == file.metadata().end()) continue;
    const int64_t* const token = std::get_if<int64_t>(&it->second);
    if (token == nullptr || *token < 0 || *token >= int64_t{config.vocab_size}) {
      return reader.Complain(absl::StrCat(key, " is not a token of the vocabulary"));
    }
    config.eos_token_ids.push_back(static_cast<uint32_t>(*token));
  }
}

// Large models are split into several files, each a GGUF file.
absl::Status RefuseSplit(const GgufFile& file) {
  const auto it = file.metadata().find("split.count");
  if (it == file.metadata().end() || it->second == GgufValue(int64_t{1}) ||
      it->second == GgufValue(int64_t{0})) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kInvalidCheckpoint,
                   absl::StrCat(file.path(),
                                ": split.count says that this is a part of a model; "
                                "merge the parts into one file"));
}

absl::StatusOr<const GgufArchitecture*> FindArchitecture(const GgufFile& file) {
  const auto it = file.metadata().find("general.architecture");
  const std::string* const name =
      it == file.metadata().end() ? nullptr : std::get_if<std::string>(&it->second);
  for (const GgufArchitecture& architecture : kGgufArchitectures) {
    if (name != nullptr && *name == architecture.name) return &architecture;
  }
  return MakeError(
      Reason::kInvalidCheckpoint,
      absl::StrCat(file.path(), ": general.architecture is ",
                   name == nullptr ? "missing" : name->substr(0, 80),
                   "; it must be llama, qwen2, qwen3, qwen3moe, gpt-oss, gemma2, gemma3, phi3, "
                   "deepseek2 or bloom"));
}

// Refuses options that would change the result.
void RefuseOptions(GgufFields& reader, const GgufArchitecture& architecture) {
  for (const char* key :
       {"expert_count", "attention.shared_kv_layers", "residual_scale", "embedding_scale",
        "logit_scale", "attention.clamp_kqv", "attention.max_alibi_bias"}) {
    if (architecture.experts != GgufExperts::kNone && key == absl::string_view("expert_count")) {
      continue;
    }
    const GgufValue* const value = reader.Find(key);
    const bool is_off =
        value == nullptr || *value == GgufValue(int64_t{0}) || *value == GgufValue(0.0);
    if (!is_off) reader.Refuse(key, "absent or 0; other values are not supported");
  }
}

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  const absl::StatusOr<const GgufArchitecture*> architecture = FindArchitecture(file);
  if (!architecture.ok()) return architecture.status();
  if (absl::Status split = RefuseSplit(file); !split.ok()) return split;
  GgufFields reader(file, (*architecture)->name);
  ModelConfig config;
  config.architecture = (*architecture)->hugging_face;
  config.attention_bias = (*architecture)->attention_bias;
  config.query_key_norm = (*architecture)->query_key_norm;
  const bool is_deepseek = (*architecture)->experts == GgufExperts::kDeepseek;
  ReadShape(reader, **architecture, config);
  if (!is_deepseek) ReadHeadDim(reader, **architecture, config);
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  if (!is_deepseek) ReadWindows(reader, **architecture, config);
  ReadRotaries(reader, file, **architecture, config);
  if (is_deepseek) {
    FillGgufDeepseek(reader, file, config);
  } else if ((*architecture)->experts != GgufExperts::kNone) {
    FillGgufExperts(reader, (*architecture)->experts, config);
  }
  if ((*architecture)->is_bloom) FillBloom(reader, config);
  if ((*architecture)->is_gemma) FillGemma(reader, file, **architecture, config);
  if (reader.Find("attention.scale") != nullptr) {
    config.query_scale = reader.Positive("attention.scale");
  }
  RefuseOptions(reader, **architecture);
  ReadVocabulary(reader, file, config);
  if (!reader.status().ok()) return reader.status();
  return config;
}

}  // namespace pagoda
