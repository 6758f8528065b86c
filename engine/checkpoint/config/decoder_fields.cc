#include "engine/checkpoint/config/decoder_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config/architectures.h"
#include "engine/checkpoint/config/rotary_fields.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr uint32_t kMaxWindow = 1u << 26;
// transformers' default, for all architectures.
constexpr uint32_t kDefaultMaxWindowLayers = 28;

// One number for all layers, or a list with one per layer.
void ReadKvHeads(FieldReader& reader, const Architecture& architecture, ModelConfig& config) {
  constexpr char kName[] = "num_key_value_heads";
  const json& value = reader.Find(kName);
  const auto divides = [&](uint32_t kv_heads) { return config.num_heads % kv_heads == 0; };
  const std::string wanted = absl::StrCat("a divisor of num_attention_heads ", config.num_heads);
  if (value.is_array() && architecture.has_kv_heads_by_layer) {
    if (value.size() != config.layers.size()) return reader.Refuse(kName, "one number per layer");
    for (size_t i = 0; i < value.size(); ++i) {
      if (!value[i].is_number_unsigned() || value[i].get<uint64_t>() < 1 ||
          value[i].get<uint64_t>() > kMaxHeads || !divides(value[i].get<uint32_t>())) {
        return reader.Refuse(kName, absl::StrCat("one number per layer, each ", wanted));
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
      reader.Refuse("hidden_size",
                    absl::StrCat("a multiple of num_attention_heads ", config.num_heads,
                                 ", because there is no head_dim"));
    }
    config.head_dim = std::clamp(config.hidden_size / config.num_heads, 1u, kMaxHeadDim);
  } else if (!reader.IsMissing("head_dim")) {
    config.head_dim = reader.Count("head_dim", kMaxHeadDim);
  }
  if (config.head_dim % 2 != 0) reader.Refuse("head_dim", "even, because of the rotary embeddings");
}

void ReadShape(FieldReader& reader, const Architecture& architecture, ModelConfig& config) {
  config.vocab_size = reader.Count("vocab_size", kMaxVocabSize);
  config.hidden_size = reader.Count("hidden_size", kMaxHiddenSize);
  config.intermediate_size = reader.Count("intermediate_size", kMaxIntermediateSize);
  config.num_heads = reader.Count("num_attention_heads", kMaxHeads);
  config.layers.resize(reader.Count("num_hidden_layers", kMaxLayers));
  ReadKvHeads(reader, architecture, config);
  ReadHeadDim(reader, architecture, config);
  config.max_position_embeddings = reader.CountOr("max_position_embeddings", kMaxPositionEmbeddings,
                                                  architecture.max_position_embeddings);
  config.rms_norm_eps = reader.PositiveOr("rms_norm_eps", architecture.rms_norm_eps);
  config.tie_word_embeddings =
      reader.FlagOr("tie_word_embeddings", architecture.tie_word_embeddings);
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
}

// The window of the layers that have one, or none.
std::optional<WindowSize> ReadWindowSize(FieldReader& reader, const Architecture& architecture) {
  if (architecture.window_rule == WindowRule::kNone) return std::nullopt;
  const bool is_qwen = architecture.window_rule == WindowRule::kUpperLayers;
  if (is_qwen && !reader.FlagOr("use_sliding_window", false)) return std::nullopt;
  if (!reader.IsMissing("sliding_window") && reader.IsNull("sliding_window")) return std::nullopt;
  if (reader.IsMissing("sliding_window") && architecture.window == 0) return std::nullopt;
  return WindowSize(reader.CountOr("sliding_window", kMaxWindow, architecture.window));
}

bool HasWindow(FieldReader& reader, const Architecture& architecture, uint32_t layer) {
  switch (architecture.window_rule) {
    case WindowRule::kNone:
      return false;
    case WindowRule::kEvery:
      return true;
    case WindowRule::kUpperLayers: {
      // 0 means all layers.
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
    return reader.Refuse("layer_types", "a list with one type per layer");
  }
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    bool has_window = window.has_value() && HasWindow(reader, architecture, i);
    if (!types.is_null()) {
      if (types[i] != "full_attention" && types[i] != "sliding_attention") {
        return reader.Refuse("layer_types", absl::StrCat("\"full_attention\" or "
                                                         "\"sliding_attention\" in every layer"));
      }
      const bool said = types[i] == "sliding_attention";
      // Any layer of a Gemma can have a window. For the others the rule holds, because transformers
      // does not read layer_types.
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

}  // namespace

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

namespace {

// Refuses options that would change the result and are not supported. Dropout is only for training.
void RefuseOptions(FieldReader& reader, const Architecture& architecture) {
  const auto is_own = [&](std::string_view name) {
    const auto& own = architecture.own_options;
    return std::find(own.begin(), own.end(), name) != own.end();
  };
  for (const char* name : {"attention_bias", "mlp_bias", "use_bidirectional_attention"}) {
    if (!is_own(name)) reader.RefuseUnlessFalse(name);
  }
  if (!is_own("quantization_config")) {
    reader.RefuseUnlessNull("quantization_config", "this quantisation of weights is not supported");
  }
  if (!is_own("original_max_position_embeddings")) {
    reader.RefuseUnlessNull("original_max_position_embeddings",
                            "it belongs in the rotary embedding's options");
  }
}

}  // namespace

ModelConfig ReadDecoder(FieldReader& reader) {
  ModelConfig config;
  const Architecture& architecture = FindArchitecture(reader);
  config.architecture = architecture.name;
  if (architecture.read != nullptr) {
    architecture.read(reader, config);
    ReadEosTokens(reader, config);
    return config;
  }
  ReadShape(reader, architecture, config);
  ReadWindows(reader, architecture, config);
  ReadRotaries(reader, architecture.rotary, config);
  ReadActivation(reader, architecture, config);
  ReadEosTokens(reader, config);
  RefuseOptions(reader, architecture);
  architecture.fill(reader, config);
  return config;
}

}  // namespace pagoda
