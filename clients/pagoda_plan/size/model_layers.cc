#include "clients/pagoda_plan/size/model_layers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

constexpr uint32_t kMaxLayers = 1024;

// The layers of published checkpoints. Equal layers are grouped, because their order changes no
// size. Gemma 3 has one layer of full attention after five with a window. In gpt-oss every other
// layer has full attention. DeepSeek-V3 caches 512 latent and 64 rotary elements.
struct Preset {
  const char* name;
  const char* layers;
};
constexpr std::array kPresets = {
    Preset{"deepseek-v3", "61x1x576k"},
    Preset{"gemma-3-27b", "52x16x128@1024,10x16x128"},
    Preset{"gpt-oss-20b", "12x8x64@128,12x8x64"},
    Preset{"gpt-oss-120b", "18x8x64@128,18x8x64"},
    Preset{"llama-3.1-8b", "32x8x128"},
    Preset{"llama-3.1-70b", "80x8x128"},
    Preset{"mistral-7b-v0.1", "32x8x128@4096"},
    Preset{"qwen3-0.6b", "28x8x128"},
    Preset{"qwen3-8b", "36x8x128"},
    Preset{"qwen3-32b", "64x8x128"},
};

// --- Numbers ---

// Reads "COUNTxHEADSxDIM", without "@WINDOW" and "k".
bool ReadShape(absl::string_view text, uint32_t* count, LayerSpec* layer) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, 'x');
  return parts.size() == 3 && absl::SimpleAtoi(parts[0], count) &&
         absl::SimpleAtoi(parts[1], &layer->num_kv_heads) &&
         absl::SimpleAtoi(parts[2], &layer->head_dim);
}

bool ReadGroup(absl::string_view text, uint32_t* count, LayerSpec* layer) {
  if (absl::ConsumeSuffix(&text, "k")) layer->kind = KvKind::kKeyOnly;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '@');
  uint32_t window = kFullAttention.value();
  if (parts.size() > 2 || (parts.size() == 2 && !absl::SimpleAtoi(parts[1], &window))) return false;
  layer->window = WindowSize(window);
  return window > 0 && ReadShape(parts[0], count, layer) && *count > 0 && *count <= kMaxLayers;
}

// --- config.json ---

// Reads the fields of a model's configuration and keeps the first error.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& config, std::string path)
      : config_(config), path_(std::move(path)) {}

  const absl::Status& status() const { return status_; }

  const nlohmann::json* Find(const char* name) const {
    const auto it = config_.find(name);
    return it == config_.end() || it->is_null() ? nullptr : &*it;
  }

  std::optional<uint32_t> Optional(const char* name) {
    const nlohmann::json* value = Find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_number_unsigned() && value->get<uint64_t>() >= 1 &&
        value->get<uint64_t>() <= std::numeric_limits<uint32_t>::max()) {
      return value->get<uint32_t>();
    }
    Refuse(name, "is not a positive number");
    return std::nullopt;
  }

  uint32_t Count(const char* name) {
    if (Find(name) == nullptr) Refuse(name, "is missing");
    return Optional(name).value_or(1);
  }

  void Refuse(const char* name, const std::string& what) {
    if (!status_.ok()) return;
    status_ = MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path_, ": ", name, " ", what));
  }

 private:
  const nlohmann::json& config_;
  const std::string path_;
  absl::Status status_;
};

// Other types, such as quantised ones, do not determine the cache's dtype.
DType DTypeOf(const ConfigReader& config) {
  for (const char* name : {"dtype", "torch_dtype"}) {
    const nlohmann::json* value = config.Find(name);
    if (value == nullptr || !value->is_string()) continue;
    if (*value == "float32") return DType::kFloat32;
    if (*value == "float16") return DType::kFloat16;
  }
  return DType::kBFloat16;
}

LayerSpec ShapeOf(ConfigReader& config) {
  LayerSpec layer{.dtype = DTypeOf(config)};
  if (const auto latent = config.Optional("kv_lora_rank")) {
    layer.kind = KvKind::kKeyOnly;
    layer.num_kv_heads = 1;
    layer.head_dim = *latent + config.Count("qk_rope_head_dim");
    return layer;
  }
  const uint32_t num_heads = config.Count("num_attention_heads");
  layer.num_kv_heads = config.Optional("num_key_value_heads").value_or(num_heads);
  const auto head_dim = config.Optional("head_dim");
  layer.head_dim = head_dim.has_value() ? *head_dim : config.Count("hidden_size") / num_heads;
  return layer;
}

// Sets the window of the layers whose type is "sliding_attention".
void SetWindowsByType(ConfigReader& config, const nlohmann::json& types, WindowSize window,
                      std::vector<LayerSpec>& layers) {
  if (!types.is_array() || types.size() != layers.size()) {
    return config.Refuse("layer_types", "is not a list with an entry for each layer");
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (types[i] == "sliding_attention") {
      layers[i].window = window;
    } else if (types[i] != "full_attention") {
      config.Refuse("layer_types", absl::StrCat("has ", types[i].dump(),
                                                ", a layer type whose cache is not known"));
    }
  }
}

// Every n-th layer has full attention. If the file does not have n, the model type decides.
std::optional<uint32_t> PatternOf(ConfigReader& config) {
  if (const auto pattern = config.Optional("sliding_window_pattern")) return pattern;
  const nlohmann::json* type = config.Find("model_type");
  if (type == nullptr) return std::nullopt;
  if (*type == "gemma2") return 2;
  if (*type == "gemma3_text") return 6;
  return std::nullopt;
}

void SetWindows(ConfigReader& config, std::vector<LayerSpec>& layers) {
  const auto window = config.Optional("sliding_window");
  const nlohmann::json* use = config.Find("use_sliding_window");
  if (use != nullptr && *use == false) return;
  if (const nlohmann::json* types = config.Find("layer_types")) {
    const bool sliding = types->is_array() && std::find(types->begin(), types->end(),
                                                        "sliding_attention") != types->end();
    if (sliding && !window.has_value()) return config.Refuse("sliding_window", "is missing");
    return SetWindowsByType(config, *types, WindowSize(window.value_or(1)), layers);
  }
  if (!window.has_value()) return;
  const auto pattern = PatternOf(config);
  // The convention of Qwen 2: the first layers have full attention.
  const uint32_t full_layers = config.Optional("max_window_layers").value_or(0);
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool full = pattern.has_value() ? (i + 1) % *pattern == 0 : i < full_layers;
    if (!full) layers[i].window = WindowSize(*window);
  }
}

std::string NameOf(const std::string& model_dir) {
  const std::filesystem::path path = std::filesystem::path(model_dir).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

absl::StatusOr<ModelLayers> ReadModelLayers(const std::string& model_dir) {
  const std::string path = absl::StrCat(model_dir, "/config.json");
  std::ifstream file(path);
  if (!file) return MakeError(Reason::kInvalidCheckpoint, absl::StrCat("cannot read ", path));
  const nlohmann::json root = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": is not a JSON object"));
  }
  const auto text = root.find("text_config");
  ConfigReader config(text != root.end() && text->is_object() ? *text : root, path);
  const uint32_t count = config.Count("num_hidden_layers");
  if (count > kMaxLayers) config.Refuse("num_hidden_layers", absl::StrCat("is above ", kMaxLayers));
  const LayerSpec shape = ShapeOf(config);
  if (!config.status().ok()) return config.status();
  ModelLayers model{.name = NameOf(model_dir), .layers = std::vector<LayerSpec>(count, shape)};
  SetWindows(config, model.layers);
  if (!config.status().ok()) return config.status();
  return model;
}

absl::StatusOr<ModelLayers> ParseModelLayers(const std::string& text) {
  ModelLayers model{.name = text, .layers = {}};
  for (absl::string_view group : absl::StrSplit(text, ',')) {
    uint32_t count = 0;
    LayerSpec layer{.dtype = DType::kBFloat16};
    if (!ReadGroup(group, &count, &layer)) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("\"", group,
                                    "\" is not LAYERSxHEADSxDIM, followed by @WINDOW if the layers "
                                    "have a window and by k if they have no V; at most ",
                                    kMaxLayers, " layers"));
    }
    model.layers.insert(model.layers.end(), count, layer);
  }
  return model;
}

absl::StatusOr<ModelLayers> PresetModelLayers(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (name != preset.name) continue;
    absl::StatusOr<ModelLayers> model = ParseModelLayers(preset.layers);
    if (model.ok()) model->name = preset.name;
    return model;
  }
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("unknown preset \"", std::string(name), "\"; the presets are ",
                                absl::StrJoin(PresetNames(), ", ")));
}

const std::vector<std::string>& PresetNames() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const Preset& preset : kPresets) all->emplace_back(preset.name);
    return all;
  }();
  return *names;
}

std::string DescribeLayers(const std::vector<LayerSpec>& layers) {
  std::vector<std::pair<LayerSpec, uint32_t>> kinds;  // In the order of their first layer.
  for (const LayerSpec& layer : layers) {
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&layer](const auto& kind) { return kind.first == layer; });
    if (known == kinds.end()) {
      kinds.emplace_back(layer, 1);
    } else {
      ++known->second;
    }
  }
  return absl::StrJoin(kinds, ", ", [](std::string* out, const auto& kind) {
    const auto& [layer, count] = kind;
    absl::StrAppend(out, count, count == 1 ? " layer of " : " layers of ", layer.num_kv_heads,
                    " x ", layer.head_dim);
    if (layer.kind == KvKind::kKeyOnly) absl::StrAppend(out, ", K only");
    if (layer.window != kFullAttention) {
      absl::StrAppend(out, " in a window of ", FormatCounted(layer.window.value(), "token"));
    }
  });
}

}  // namespace pagoda
