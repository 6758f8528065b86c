#include "engine/checkpoint/architectures.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "engine/checkpoint/rotary_fields.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxHeads = 1024;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxPositions = 1u << 26;
constexpr uint32_t kMaxWindow = 1u << 26;

// Which layers have the sliding window where config.json has no layer_types.
enum class WindowRule : uint8_t {
  kNone,
  kEvery,        // Mistral: all, if sliding_window is not null.
  kUpperLayers,  // Qwen: those from max_window_layers on, if use_sliding_window is true.
  kPeriodic,     // Gemma: all but every sliding_window_pattern-th.
};

// An architecture: what its config.json may leave out, as transformers 5.23 has it, and how it
// differs from the Llama that all of them are.
struct Architecture {
  const char* name;
  void (*fill)(FieldReader&, ModelConfig&);  // Called last.
  // Defaults.
  uint32_t num_kv_heads = 0;  // 0: as many as heads.
  uint32_t head_dim = 0;      // 0: hidden_size / num_attention_heads.
  uint32_t max_position_embeddings = 32768;
  RotaryDefaults rotary;
  bool tie_word_embeddings = false;
  WindowRule window_rule = WindowRule::kNone;
  uint32_t window = 4096;
  uint32_t window_period = 0;
  Activation activation = Activation::kSilu;
  const char* activation_field = "hidden_act";
};

constexpr float kDefaultRmsNormEps = 1e-6f;  // Of all architectures.
constexpr uint32_t kDefaultMaxWindowLayers = 28;
constexpr float kDefaultQueryPreAttnScalar = 256.0f;
constexpr float kGemma2AttentionSoftCap = 50.0f;
constexpr float kGemma2FinalSoftCap = 30.0f;

// A number, or none where it is null.
float SoftCap(FieldReader& reader, const char* name, float where_missing) {
  if (reader.IsMissing(name)) return where_missing;
  return reader.IsNull(name) ? 0.0f : reader.Positive(name);
}

void FillLlama(FieldReader&, ModelConfig&) {}

void FillQwen2(FieldReader&, ModelConfig& config) { config.attention_bias = true; }

void FillQwen3(FieldReader&, ModelConfig& config) { config.query_key_norm = true; }

// transformers multiplies embeddings by the root in the type that it computes in, which is the
// checkpoint's unless the user says otherwise.
float EmbeddingScale(FieldReader& reader, uint32_t hidden_size) {
  const float root = std::sqrt(static_cast<float>(hidden_size));
  const std::string dtype = reader.TextOr("dtype", reader.TextOr("torch_dtype", ""));
  if (dtype == "bfloat16") return kernels::ToFloat(kernels::ToBFloat16(root));
  if (dtype == "float16") return kernels::ToFloat(kernels::ToHalf(root));
  return root;
}

void FillGemma2(FieldReader& reader, ModelConfig& config) {
  config.query_scale =
      1.0f / std::sqrt(reader.PositiveOr("query_pre_attn_scalar", kDefaultQueryPreAttnScalar));
  config.attention_soft_cap = SoftCap(reader, "attn_logit_softcapping", kGemma2AttentionSoftCap);
  config.final_soft_cap = SoftCap(reader, "final_logit_softcapping", kGemma2FinalSoftCap);
  config.embedding_scale = EmbeddingScale(reader, config.hidden_size);
  config.norm_weight_plus_one = true;
  config.post_norms = true;
}

// Without caps where config.json has none; attention's is in its config, and not in its attention.
void FillGemma3(FieldReader& reader, ModelConfig& config) {
  FillGemma2(reader, config);
  reader.RefuseUnlessNull("attn_logit_softcapping", "Gemma 3 has no cap of scores");
  config.attention_soft_cap = 0.0f;
  config.final_soft_cap = SoftCap(reader, "final_logit_softcapping", 0.0f);
  config.query_key_norm = true;
}

constexpr Architecture kArchitectures[] = {
    {.name = "LlamaForCausalLM", .fill = FillLlama, .max_position_embeddings = 2048},
    {.name = "MistralForCausalLM",
     .fill = FillLlama,
     .num_kv_heads = 8,
     .max_position_embeddings = 131072,
     .window_rule = WindowRule::kEvery},
    {.name = "Qwen2ForCausalLM",
     .fill = FillQwen2,
     .num_kv_heads = 32,
     .window_rule = WindowRule::kUpperLayers},
    {.name = "Qwen3ForCausalLM",
     .fill = FillQwen3,
     .num_kv_heads = 32,
     .head_dim = 128,
     .window_rule = WindowRule::kUpperLayers},
    // Ours: a Qwen 3 whose num_key_value_heads is a list, one a layer.
    {.name = "PagodaQwen3ForCausalLM",
     .fill = FillQwen3,
     .head_dim = 128,
     .window_rule = WindowRule::kUpperLayers},
    {.name = "Gemma2ForCausalLM",
     .fill = FillGemma2,
     .num_kv_heads = 4,
     .head_dim = 256,
     .max_position_embeddings = 8192,
     .tie_word_embeddings = true,
     .window_rule = WindowRule::kPeriodic,
     .window_period = 2,
     .activation = Activation::kGeluTanh,
     .activation_field = "hidden_activation"},
    {.name = "Gemma3ForCausalLM",
     .fill = FillGemma3,
     .num_kv_heads = 4,
     .head_dim = 256,
     .max_position_embeddings = 131072,
     .rotary = {.theta = 1e6f, .sliding_theta = 1e4f},
     .tie_word_embeddings = true,
     .window_rule = WindowRule::kPeriodic,
     .window_period = 6,
     .activation = Activation::kGeluTanh,
     .activation_field = "hidden_activation"},
};

// Llama's where it is none of them: the other complaints are then never read.
const Architecture& FindArchitecture(FieldReader& reader) {
  const json& names = reader.Find("architectures");
  for (const Architecture& architecture : kArchitectures) {
    if (names == json::array({architecture.name})) return architecture;
  }
  std::vector<std::string> quoted;
  for (const Architecture& a : kArchitectures) quoted.push_back(absl::StrCat("[\"", a.name, "\"]"));
  // A list of one name is shown as that name.
  const bool is_one = names.is_array() && names.size() == 1 && names[0].is_string();
  const std::string given =
      is_one ? absl::StrCat(" (", names[0].get<std::string>().substr(0, 80), " is not run)") : "";
  reader.Refuse("architectures", absl::StrCat("one of ", absl::StrJoin(quoted, ", "), given));
  return kArchitectures[0];
}

// One number for all layers, or a list of one a layer.
void ReadKvHeads(FieldReader& reader, const Architecture& architecture, ModelConfig& config) {
  constexpr char kName[] = "num_key_value_heads";
  const json& value = reader.Find(kName);
  const auto divides = [&](uint32_t kv_heads) { return config.num_heads % kv_heads == 0; };
  const std::string wanted = absl::StrCat("a divisor of num_attention_heads ", config.num_heads);
  if (value.is_array() && architecture.name == std::string_view("PagodaQwen3ForCausalLM")) {
    if (value.size() != config.layers.size()) return reader.Refuse(kName, "one number a layer");
    for (size_t i = 0; i < value.size(); ++i) {
      if (!value[i].is_number_unsigned() || value[i].get<uint64_t>() < 1 ||
          value[i].get<uint64_t>() > kMaxHeads || !divides(value[i].get<uint32_t>())) {
        return reader.Refuse(kName, absl::StrCat("one number a layer, each ", wanted));
      }
      config.layers[i].num_kv_heads = value[i].get<uint32_t>();
    }
    return;
  }
  uint32_t kv_heads = architecture.num_kv_heads == 0 ? config.num_heads : architecture.num_kv_heads;
  if (!reader.IsMissing(kName)) {
    kv_heads = reader.IsNull(kName) ? config.num_heads : reader.Count(kName, kMaxHeads);
  }
  if (!divides(kv_heads)) reader.Refuse(kName, wanted);
  for (LayerConfig& layer : config.layers) layer.num_kv_heads = kv_heads;
}

void ReadHeadDim(FieldReader& reader, const Architecture& architecture, ModelConfig& config) {
  config.head_dim = architecture.head_dim;
  const bool is_derived = architecture.head_dim == 0;
  if (is_derived && reader.IsNull("head_dim")) {
    if (config.hidden_size % config.num_heads != 0) {
      reader.Refuse("hidden_size", absl::StrCat("a multiple of num_attention_heads ",
                                                config.num_heads, ", as there is no head_dim"));
    }
    config.head_dim = std::clamp(config.hidden_size / config.num_heads, 1u, kMaxHeadDim);
  } else if (!reader.IsMissing("head_dim")) {
    config.head_dim = reader.Count("head_dim", kMaxHeadDim);
  }
  if (config.head_dim % 2 != 0) reader.Refuse("head_dim", "even, as rotary embeddings need");
}

void ReadShape(FieldReader& reader, const Architecture& architecture, ModelConfig& config) {
  config.vocab_size = reader.Count("vocab_size", 1u << 24);
  config.hidden_size = reader.Count("hidden_size", 1u << 17);
  config.intermediate_size = reader.Count("intermediate_size", 1u << 20);
  config.num_heads = reader.Count("num_attention_heads", kMaxHeads);
  config.layers.resize(reader.Count("num_hidden_layers", kMaxLayers));
  ReadKvHeads(reader, architecture, config);
  ReadHeadDim(reader, architecture, config);
  config.max_position_embeddings = reader.CountOr("max_position_embeddings", kMaxPositions,
                                                  architecture.max_position_embeddings);
  config.rms_norm_eps = reader.PositiveOr("rms_norm_eps", kDefaultRmsNormEps);
  config.tie_word_embeddings =
      reader.FlagOr("tie_word_embeddings", architecture.tie_word_embeddings);
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
}

// The window of those layers that have one, or none.
std::optional<WindowSize> ReadWindowSize(FieldReader& reader, const Architecture& architecture) {
  if (architecture.window_rule == WindowRule::kNone) return std::nullopt;
  const bool is_qwen = architecture.window_rule == WindowRule::kUpperLayers;
  if (is_qwen && !reader.FlagOr("use_sliding_window", false)) return std::nullopt;
  if (!reader.IsMissing("sliding_window") && reader.IsNull("sliding_window")) return std::nullopt;
  return WindowSize(reader.CountOr("sliding_window", kMaxWindow, architecture.window));
}

bool HasWindow(FieldReader& reader, const Architecture& architecture, uint32_t layer) {
  switch (architecture.window_rule) {
    case WindowRule::kNone:
      return false;
    case WindowRule::kEvery:
      return true;
    case WindowRule::kUpperLayers: {
      // 0 means all of them.
      if (reader.Find("max_window_layers") == 0) return true;
      return layer >= reader.CountOr("max_window_layers", kMaxLayers, kDefaultMaxWindowLayers);
    }
    case WindowRule::kPeriodic: {
      const uint32_t period =
          reader.CountOr("sliding_window_pattern", kMaxLayers, architecture.window_period);
      return (layer + 1) % period != 0;
    }
  }
  return false;
}

void ReadWindows(FieldReader& reader, const Architecture& architecture, ModelConfig& config) {
  const std::optional<WindowSize> window = ReadWindowSize(reader, architecture);
  const json& types = reader.Find("layer_types");
  if (!types.is_null() && (!types.is_array() || types.size() != config.layers.size())) {
    return reader.Refuse("layer_types", "a list of one type a layer");
  }
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    bool has_window = window.has_value() && HasWindow(reader, architecture, i);
    if (!types.is_null()) {
      if (types[i] != "full_attention" && types[i] != "sliding_attention") {
        return reader.Refuse("layer_types", absl::StrCat("\"full_attention\" or "
                                                         "\"sliding_attention\" in every layer"));
      }
      const bool said = types[i] == "sliding_attention";
      // Gemma's layers may be any. Elsewhere the rule holds, and transformers does not look.
      if (said && !window.has_value()) {
        return reader.Refuse("layer_types",
                             "\"full_attention\" in every layer of a model "
                             "without a sliding window");
      }
      if (architecture.window_rule == WindowRule::kEvery && said != has_window) {
        return reader.Refuse("layer_types", "the same in every layer");
      }
      has_window = said;
    }
    config.layers[i].window = has_window ? *window : kFullAttention;
  }
}

void ReadActivation(FieldReader& reader, const Architecture& architecture, ModelConfig& config) {
  config.activation = architecture.activation;
  const char* name = architecture.activation_field;
  if (reader.IsMissing(name)) return;
  const json& value = reader.Find(name);
  if (value == "silu") {
    config.activation = Activation::kSilu;
  } else if (value == "gelu_pytorch_tanh") {
    config.activation = Activation::kGeluTanh;
  } else {
    reader.Refuse(name, "\"silu\" or \"gelu_pytorch_tanh\"");
  }
}

// One id, a list of them, or none.
void ReadEosTokens(FieldReader& reader, ModelConfig& config) {
  const json& eos = reader.Find("eos_token_id");
  if (eos.is_null()) return;
  for (const json& id : eos.is_array() ? eos : json::array({eos})) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= config.vocab_size) {
      return reader.Refuse("eos_token_id", "a token or a list of tokens of the vocabulary");
    }
    config.eos_token_ids.push_back(id.get<uint32_t>());
  }
}

// What would change the result and is not run. Dropout is for training.
void RefuseOptions(FieldReader& reader) {
  for (const char* name : {"attention_bias", "mlp_bias", "use_bidirectional_attention"}) {
    reader.RefuseUnlessFalse(name);
  }
  reader.RefuseUnlessNull("quantization_config", "weights quantised that way are not run");
  reader.RefuseUnlessNull("original_max_position_embeddings",
                          "it belongs in the rotary embedding's options");
}

}  // namespace

ModelConfig ReadArchitecture(FieldReader& reader) {
  ModelConfig config;
  const Architecture& architecture = FindArchitecture(reader);
  config.architecture = architecture.name;
  ReadShape(reader, architecture, config);
  ReadWindows(reader, architecture, config);
  ReadRotaries(reader, architecture.rotary, config);
  ReadActivation(reader, architecture, config);
  ReadEosTokens(reader, config);
  RefuseOptions(reader);
  architecture.fill(reader, config);
  return config;
}

}  // namespace pagoda
