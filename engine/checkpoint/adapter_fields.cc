#include "engine/checkpoint/adapter_fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/checkpoint/config/decoder_fields.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr uint32_t kMaxRank = 1u << 16;
// More than the modules of the largest model.
constexpr size_t kMaxNames = 1u << 13;

// They do not change what a trained adapter computes: bookkeeping, and options of the training.
constexpr std::string_view kWithoutEffect[] = {
    "auto_mapping",   "base_model_name_or_path", "corda_config", "ensure_weight_tying",
    "eva_config",     "inference_mode",          "loftq_config", "lora_dropout",
    "lora_ga_config", "megatron_core",           "peft_version", "qalora_group_size",
    "revision",       "runtime_config"};
constexpr std::string_view kRead[] = {
    "alpha_pattern",       "bias",           "init_lora_weights", "layers_pattern",
    "layers_to_transform", "lora_alpha",     "peft_type",         "r",
    "rank_pattern",        "target_modules", "task_type",         "use_rslora"};
// Ways to draw the first weights. The others also change the base model's weights.
constexpr std::string_view kPlainStarts[] = {"gaussian", "eva", "orthogonal"};

template <size_t size>
bool IsOneOf(const std::string_view (&names)[size], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// A name of modules, not a regular expression that means more than itself.
bool IsPlainName(std::string_view name) {
  if (!name.empty() && name.front() == '^') name.remove_prefix(1);
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  });
}

bool IsEmpty(const json& value) {
  return value.is_null() || value == false ||
         ((value.is_structured() || value.is_string()) && value.empty());
}

void ReadTargets(FieldReader& reader, AdapterOptions& options) {
  constexpr char kWanted[] = "\"all-linear\" or a list of names of modules";
  const json& targets = reader.Find("target_modules");
  if (targets == "all-linear") {
    options.all_linear = true;
    return;
  }
  if (!targets.is_array() || targets.empty() || targets.size() > kMaxNames) {
    return reader.Refuse("target_modules", kWanted);
  }
  for (const json& name : targets) {
    const bool plain = name.is_string() && IsPlainName(name.get_ref<const std::string&>()) &&
                       name.get_ref<const std::string&>().front() != '^';
    if (!plain) return reader.Refuse("target_modules", kWanted);
    options.targets.emplace_back(name.get<std::string>());
  }
}

template <class Number, class Read>
void ReadPattern(FieldReader& reader, const std::string& name, const Read& read,
                 AdapterOptions::Pattern<Number>& pattern) {
  if (reader.IsNull(name)) return;
  FieldReader inside = reader.Inside(name);
  if (inside.object().size() > kMaxNames) return reader.Refuse(name, "shorter");
  for (const auto& [module, value] : inside.object().items()) {
    if (!IsPlainName(module)) {
      return reader.Refuse(name, "an object whose keys are names of modules, no patterns");
    }
    pattern.emplace_back(ModuleSuffix(module), read(inside, module));
  }
}

void ReadLayers(FieldReader& reader, AdapterOptions& options) {
  const json& pattern = reader.Find("layers_pattern");
  if (!IsEmpty(pattern) && pattern != "layers" && pattern != json::array({"layers"})) {
    reader.Refuse("layers_pattern", "\"layers\"");
  }
  const json& layers = reader.Find("layers_to_transform");
  if (layers.is_null()) return;
  const json list = layers.is_array() ? layers : json::array({layers});
  const bool good =
      list.size() <= kMaxLayers && std::all_of(list.begin(), list.end(), [](const json& layer) {
        return layer.is_number_unsigned() && layer.get<uint64_t>() < kMaxLayers;
      });
  if (!good) return reader.Refuse("layers_to_transform", "numbers of layers");
  options.layers = list.get<std::vector<uint32_t>>();
}

void RefuseOtherKinds(FieldReader& reader) {
  if (reader.TextOr("peft_type", "") != "LORA") reader.Refuse("peft_type", "\"LORA\"");
  if (!reader.IsNull("task_type") && reader.Find("task_type") != "CAUSAL_LM") {
    reader.Refuse("task_type", "\"CAUSAL_LM\"");
  }
  if (reader.TextOr("bias", "none") != "none") reader.Refuse("bias", "\"none\"");
  const json& start = reader.Find("init_lora_weights");
  const bool plain =
      start.is_null() || start.is_boolean() ||
      (start.is_string() && IsOneOf(kPlainStarts, start.get_ref<const std::string&>()));
  if (!plain) {
    reader.Refuse("init_lora_weights",
                  "true: other ways to begin can change the base model's weights");
  }
  for (const auto& [name, value] : reader.object().items()) {
    if (IsOneOf(kRead, name) || IsOneOf(kWithoutEffect, name) || IsEmpty(value)) continue;
    reader.Refuse(name, "absent, null, false or empty: the engine runs only plain LoRA");
  }
}

// The number of the entries that name the module; nothing if there is none.
template <class Number>
absl::StatusOr<std::optional<Number>> NumberIn(const AdapterOptions::Pattern<Number>& pattern,
                                               const char* name, std::string_view module) {
  std::optional<Number> found;
  for (const auto& [suffix, number] : pattern) {
    if (!suffix.Matches(module)) continue;
    if (found.has_value() && *found != number) {
      return MakeError(Reason::kInvalidCheckpoint,
                       absl::StrCat(name, " has several entries for ", std::string(module)));
    }
    found = number;
  }
  return found;
}

}  // namespace

bool ModuleSuffix::IsWhole(std::string_view module) const {
  const std::string_view text = text_;
  return (text.starts_with('^') ? text.substr(1) : text) == module;
}

bool ModuleSuffix::Matches(std::string_view module) const {
  if (IsWhole(module)) return true;
  if (text_.size() >= module.size() || !module.ends_with(text_)) return false;
  return module[module.size() - text_.size() - 1] == '.';
}

bool AdapterOptions::Targets(std::string_view module, uint32_t layer) const {
  const bool in_layer =
      !layers.has_value() || std::find(layers->begin(), layers->end(), layer) != layers->end();
  if (all_linear) return in_layer;
  return std::any_of(targets.begin(), targets.end(), [&](const ModuleSuffix& target) {
    return target.IsWhole(module) || (in_layer && target.Matches(module));
  });
}

absl::StatusOr<AdapterOptions::Rank> AdapterOptions::RankOf(std::string_view module) const {
  const auto own_rank = NumberIn(ranks, "rank_pattern", module);
  if (!own_rank.ok()) return own_rank.status();
  const auto own_alpha = NumberIn(alphas, "alpha_pattern", module);
  if (!own_alpha.ok()) return own_alpha.status();
  const uint32_t its_rank = own_rank->value_or(rank);
  const auto divisor = static_cast<double>(its_rank);
  const double scale = own_alpha->value_or(alpha) / (scales_by_root ? std::sqrt(divisor) : divisor);
  return Rank{its_rank, static_cast<float>(scale)};
}

AdapterOptions ReadAdapterOptions(FieldReader& reader) {
  AdapterOptions options;
  RefuseOtherKinds(reader);
  options.rank = reader.CountOr("r", kMaxRank, options.rank);
  options.alpha = reader.PositiveOr("lora_alpha", options.alpha);
  options.scales_by_root = reader.FlagOr("use_rslora", false);
  const auto count = [](FieldReader& inside, const std::string& name) {
    return inside.Count(name, kMaxRank);
  };
  const auto positive = [](FieldReader& inside, const std::string& name) {
    return inside.Positive(name);
  };
  ReadPattern(reader, "rank_pattern", count, options.ranks);
  ReadPattern(reader, "alpha_pattern", positive, options.alphas);
  ReadTargets(reader, options);
  ReadLayers(reader, options);
  return options;
}

}  // namespace pagoda
