#include "engine/checkpoint/rotary_fields.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

using nlohmann::json;
using Scaling = RotaryConfig::Scaling;

constexpr char kFull[] = "full_attention";
constexpr char kSliding[] = "sliding_attention";

// Refuses options outside `known`: they belong to other variants of the embedding.
void RefuseOtherKeys(FieldReader& options, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : options.object().items()) {
    if (key == "rope_type" || key == "type" || key == "rope_theta") continue;
    if (key == "partial_rotary_factor" && value == 1) continue;
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      options.RefuseUnlessNull(key,
                               "this type of rotary embedding has no such option, or the "
                               "engine does not support it");
    }
  }
}

// Files from before transformers 4.43 call the rope_type `type`; some have both.
Scaling ReadType(FieldReader& options) {
  Scaling scaling = Scaling::kNone;
  if (options.IsMissing("rope_type") && options.IsMissing("type")) {
    options.Refuse("rope_type", R"("default", "linear" or "llama3")");
  }
  for (const char* name : {"type", "rope_type"}) {
    if (options.IsMissing(name)) continue;
    const json& type = options.Find(name);
    if (type == "linear") {
      scaling = Scaling::kLinear;
    } else if (type == "llama3") {
      scaling = Scaling::kLlama3;
    } else if (type != "default") {
      options.Refuse(name, R"("default", "linear" or "llama3"; others are not supported)");
    }
  }
  if (!options.IsMissing("type") && !options.IsMissing("rope_type") &&
      options.Find("type") != options.Find("rope_type")) {
    options.Refuse("type", "the same as rope_type");
  }
  return scaling;
}

// One object of options.
RotaryConfig ReadOptions(FieldReader& options, float theta, uint32_t max_positions) {
  if (!options.IsMissing("rope_theta")) theta = options.AtLeastOne("rope_theta");
  RotaryConfig rotary = {.theta = theta, .scaling = ReadType(options)};
  if (rotary.scaling == Scaling::kNone) {
    RefuseOtherKeys(options, {});
  } else if (rotary.scaling == Scaling::kLinear) {
    RefuseOtherKeys(options, {"factor"});
    rotary.factor = options.AtLeastOne("factor");
  } else {
    RefuseOtherKeys(options, {"factor", "low_freq_factor", "high_freq_factor",
                              "original_max_position_embeddings"});
    rotary.factor = options.AtLeastOne("factor");
    rotary.low_freq_factor = options.Positive("low_freq_factor");
    rotary.high_freq_factor = options.Positive("high_freq_factor");
    rotary.original_max_position_embeddings =
        options.CountOr("original_max_position_embeddings", kMaxPositionEmbeddings, max_positions);
    if (rotary.high_freq_factor <= rotary.low_freq_factor) {
      options.Refuse("high_freq_factor", "more than low_freq_factor");
    }
  }
  return rotary;
}

// One object for all layers; without one, a plain embedding.
RotaryConfig ReadFlat(FieldReader& reader, const char* name, float theta, uint32_t max_positions) {
  if (name == nullptr) return {.theta = theta};
  FieldReader options = reader.Inside(name);
  return ReadOptions(options, theta, max_positions);
}

// The object of a type of layer. If it is missing where transformers allows that, a plain
// embedding.
RotaryConfig ReadNested(FieldReader& options, const char* layer_type, float theta,
                        bool may_be_missing, uint32_t max_positions) {
  if (may_be_missing && options.IsNull(layer_type)) return {.theta = theta};
  FieldReader inner = options.Inside(layer_type);
  return ReadOptions(inner, theta, max_positions);
}

}  // namespace

void ReadRotaries(FieldReader& reader, const RotaryDefaults& defaults, ModelConfig& config) {
  if (reader.Find("partial_rotary_factor") != 1) {
    reader.RefuseUnlessNull("partial_rotary_factor", "only whole heads can be rotated");
  }
  const bool has_sliding_theta = defaults.sliding_theta != 0.0f;
  float theta = defaults.theta;
  if (!reader.IsNull("rope_theta")) theta = reader.AtLeastOne("rope_theta");
  float sliding_theta = has_sliding_theta ? defaults.sliding_theta : theta;
  if (has_sliding_theta && !reader.IsNull("rope_local_base_freq")) {
    sliding_theta = reader.AtLeastOne("rope_local_base_freq");
  }

  // If both are there, transformers uses rope_scaling.
  const char* name = nullptr;
  for (const char* candidate : {"rope_parameters", "rope_scaling"}) {
    if (!reader.IsNull(candidate)) name = candidate;
  }
  const json& options = name == nullptr ? reader.Find("") : reader.Find(name);
  const uint32_t max_positions = config.max_position_embeddings;
  const bool is_nested = options.contains(kFull) || options.contains(kSliding);
  if (is_nested) {
    FieldReader inner = reader.Inside(name);
    config.rotaries = {
        ReadNested(inner, kFull, theta, has_sliding_theta, max_positions),
        ReadNested(inner, kSliding, sliding_theta, has_sliding_theta, max_positions)};
  } else {
    if (name != nullptr && std::string_view(name) == "rope_scaling" && options.is_object() &&
        !options.contains("rope_theta") && reader.Find("rope_parameters").is_object()) {
      // The base can be in the other object.
      FieldReader other = reader.Inside("rope_parameters");
      if (!other.IsMissing("rope_theta")) theta = other.AtLeastOne("rope_theta");
    }
    config.rotaries = {ReadFlat(reader, name, theta, max_positions)};
    if (has_sliding_theta) config.rotaries.push_back({.theta = sliding_theta});
  }
  for (LayerConfig& layer : config.layers) {
    layer.rotary = config.rotaries.size() > 1 && layer.window != kFullAttention ? 1 : 0;
  }
}

}  // namespace pagoda
