#include "engine/checkpoint/config/rotary_fields.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

using nlohmann::json;
using Scaling = RotaryConfig::Scaling;

constexpr char kFull[] = "full_attention";
constexpr char kSliding[] = "sliding_attention";
constexpr char kRotaryTypes[] = R"("default", "linear", "llama3", "yarn" or "longrope")";

// The numbers of positions that options can depend on.
struct Positions {
  uint32_t max = 0;
  // original_max_position_embeddings of a Phi 3; 0: another model.
  uint32_t phi3_original = 0;
};

// Refuses options outside `known`: they belong to other variants of the embedding.
void RefuseOtherKeys(FieldReader& options, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : options.object().items()) {
    if (key == "rope_type" || key == "type" || key == "rope_theta") continue;
    if (key == "partial_rotary_factor") continue;  // ReadPart reads it.
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      options.RefuseUnlessNull(key,
                               "this type of rotary embedding has no such option, or the "
                               "engine does not support it");
    }
  }
}

// Files from before transformers 4.43 call the rope_type `type`; some have both.
Scaling ReadType(FieldReader& options, bool is_phi3) {
  Scaling scaling = Scaling::kNone;
  if (options.IsMissing("rope_type") && options.IsMissing("type")) {
    options.Refuse("rope_type", kRotaryTypes);
  }
  for (const char* name : {"type", "rope_type"}) {
    if (options.IsMissing(name)) continue;
    const json& type = options.Find(name);
    if (type == "linear") {
      scaling = Scaling::kLinear;
    } else if (type == "llama3") {
      scaling = Scaling::kLlama3;
    } else if (type == "longrope" || (is_phi3 && (type == "su" || type == "yarn"))) {
      scaling = Scaling::kLongRope;
    } else if (type == "yarn") {
      scaling = Scaling::kYarn;
    } else if (type != "default") {
      options.Refuse(name, absl::StrCat(kRotaryTypes, "; others are not supported"));
    }
  }
  if (!options.IsMissing("type") && !options.IsMissing("rope_type") &&
      options.Find("type") != options.Find("rope_type")) {
    options.Refuse("type", "the same as rope_type");
  }
  return scaling;
}

float AttentionFactor(FieldReader& options, float factor) {
  if (!options.IsNull("attention_factor")) return options.Positive("attention_factor");
  if (options.IsNull("mscale") || options.IsNull("mscale_all_dim")) return YarnScale(factor, 1.0f);
  // transformers takes a 0 as if it were missing.
  if (options.Find("mscale") == 0 || options.Find("mscale_all_dim") == 0) {
    return YarnScale(factor, 1.0f);
  }
  return YarnScale(factor, options.Positive("mscale")) /
         YarnScale(factor, options.Positive("mscale_all_dim"));
}

void ReadYarn(FieldReader& options, uint32_t max_positions, RotaryConfig& rotary) {
  RefuseOtherKeys(options, {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                            "truncate", "attention_factor", "original_max_position_embeddings"});
  rotary.factor = options.AtLeastOne("factor");
  rotary.original_max_position_embeddings =
      options.CountOr("original_max_position_embeddings", kMaxPositionEmbeddings, max_positions);
  if (!options.IsNull("beta_fast")) rotary.beta_fast = options.Positive("beta_fast");
  if (!options.IsNull("beta_slow")) rotary.beta_slow = options.Positive("beta_slow");
  rotary.truncate = options.FlagOr("truncate", true);
  rotary.attention_factor = AttentionFactor(options, rotary.factor);
  if (rotary.theta <= 1.0f) options.Refuse("rope_theta", "more than 1 for yarn");
}

std::vector<float> ReadFactors(FieldReader& options, const char* name) {
  std::vector<float> factors;
  const json& values = options.Find(name);
  bool are_sound = values.is_array();
  for (const json& value : are_sound ? values : json::array()) {
    const double factor = value.is_number() ? value.get<double>() : 0.0;
    are_sound = are_sound && factor >= kSmallestLongRopeFactor &&
                factor <= double{std::numeric_limits<float>::max()};
    factors.push_back(are_sound ? static_cast<float>(factor) : 1.0f);
  }
  if (!are_sound) options.Refuse(name, "a list of numbers from 1/1024 on");
  return factors;
}

void ReadLongRope(FieldReader& options, const Positions& positions, RotaryConfig& rotary) {
  constexpr char kOriginal[] = "original_max_position_embeddings";
  RefuseOtherKeys(options,
                  {"factor", "attention_factor", "short_factor", "long_factor", kOriginal});
  rotary.original_max_position_embeddings =
      positions.phi3_original != 0
          ? positions.phi3_original
          : options.CountOr(kOriginal, kMaxPositionEmbeddings, positions.max);
  const double original = rotary.original_max_position_embeddings;
  if (original < 2) options.Refuse(kOriginal, "more than 1 for longrope");
  rotary.divisors = ReadFactors(options, "short_factor");
  rotary.long_divisors = ReadFactors(options, "long_factor");
  const double factor =
      options.IsNull("factor") ? positions.max / original : double{options.Positive("factor")};
  if (!options.IsNull("attention_factor")) {
    rotary.attention_factor = options.Positive("attention_factor");
  } else if (factor > 1.0) {
    rotary.attention_factor =
        static_cast<float>(std::sqrt(1.0 + std::log(factor) / std::log(original)));
  }
}

// One object of options.
RotaryConfig ReadOptions(FieldReader& options, float theta, const Positions& positions) {
  if (!options.IsMissing("rope_theta")) theta = options.AtLeastOne("rope_theta");
  RotaryConfig rotary;
  rotary.theta = theta;
  rotary.scaling = ReadType(options, positions.phi3_original != 0);
  if (rotary.scaling == Scaling::kNone) {
    RefuseOtherKeys(options, {});
  } else if (rotary.scaling == Scaling::kLinear) {
    RefuseOtherKeys(options, {"factor"});
    rotary.factor = options.AtLeastOne("factor");
  } else if (rotary.scaling == Scaling::kYarn) {
    ReadYarn(options, positions.max, rotary);
  } else if (rotary.scaling == Scaling::kLongRope) {
    ReadLongRope(options, positions, rotary);
  } else {
    RefuseOtherKeys(options, {"factor", "low_freq_factor", "high_freq_factor",
                              "original_max_position_embeddings"});
    rotary.factor = options.AtLeastOne("factor");
    rotary.low_freq_factor = options.Positive("low_freq_factor");
    rotary.high_freq_factor = options.Positive("high_freq_factor");
    rotary.original_max_position_embeddings =
        options.CountOr("original_max_position_embeddings", kMaxPositionEmbeddings, positions.max);
    if (rotary.high_freq_factor <= rotary.low_freq_factor) {
      options.Refuse("high_freq_factor", "more than low_freq_factor");
    }
  }
  return rotary;
}

RotaryConfig Plain(float theta) {
  RotaryConfig rotary;
  rotary.theta = theta;
  return rotary;
}

// One object for all layers; without one, a plain embedding.
RotaryConfig ReadFlat(FieldReader& reader, const char* name, float theta,
                      const Positions& positions) {
  if (name == nullptr) return Plain(theta);
  FieldReader options = reader.Inside(name);
  return ReadOptions(options, theta, positions);
}

// The object of a type of layer. If it is missing where transformers allows that, a plain
// embedding.
RotaryConfig ReadNested(FieldReader& options, const char* layer_type, float theta,
                        bool may_be_missing, const Positions& positions) {
  if (may_be_missing && options.IsNull(layer_type)) return Plain(theta);
  FieldReader inner = options.Inside(layer_type);
  return ReadOptions(inner, theta, positions);
}

// The part of each head that is rotated. It is a field of config.json, or of the options.
void ReadPart(FieldReader& reader, const char* options_name, bool can_be_partial,
              ModelConfig& config) {
  const auto read = [&](FieldReader& fields) {
    constexpr char kName[] = "partial_rotary_factor";
    if (fields.IsNull(kName) || fields.Find(kName) == 1) return;
    if (!can_be_partial) {
      return fields.RefuseUnlessNull(kName, "this architecture rotates whole heads");
    }
    const float part = fields.Positive(kName);
    // A larger part can be more than a uint32_t holds.
    const auto dim =
        part <= 1.0f ? static_cast<uint32_t>(part * static_cast<float>(config.head_dim)) : 0u;
    if (dim < 2 || dim % 2 != 0) {
      return fields.Refuse(kName, "at most 1, and an even number of elements of a head");
    }
    for (RotaryConfig& rotary : config.rotaries) rotary.rotary_dim = dim;
  };
  read(reader);
  if (options_name == nullptr || !reader.Find(options_name).is_object()) return;
  FieldReader options = reader.Inside(options_name);
  read(options);
  for (const char* type : {kFull, kSliding}) {
    if (!options.Find(type).is_object()) continue;
    FieldReader inner = options.Inside(type);
    read(inner);
  }
}

// Each LongRoPE has a factor for each of its frequencies.
void CheckFactors(FieldReader& reader, const char* options_name, const ModelConfig& config) {
  for (const RotaryConfig& rotary : config.rotaries) {
    if (rotary.scaling != Scaling::kLongRope) continue;
    const uint32_t count = RotaryDim(rotary, config.head_dim) / 2;
    if (rotary.divisors.size() == count && rotary.long_divisors.size() == count) continue;
    reader.Refuse(options_name,
                  absl::StrCat("an object with ", count, " numbers in short_factor and ", count,
                               " in long_factor, one for each pair of rotated elements"));
  }
}

}  // namespace

float YarnScale(float factor, float mscale) {
  return factor <= 1.0f ? 1.0f : 0.1f * mscale * std::log(factor) + 1.0f;
}

void ReadRotaries(FieldReader& reader, const RotaryDefaults& defaults, ModelConfig& config) {
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
  Positions positions = {.max = config.max_position_embeddings};
  if (defaults.phi3_original_positions != 0) {
    positions.phi3_original =
        reader.CountOr("original_max_position_embeddings", kMaxPositionEmbeddings,
                       defaults.phi3_original_positions);
  }
  const bool is_nested = options.contains(kFull) || options.contains(kSliding);
  if (is_nested) {
    FieldReader inner = reader.Inside(name);
    config.rotaries = {ReadNested(inner, kFull, theta, has_sliding_theta, positions),
                       ReadNested(inner, kSliding, sliding_theta, has_sliding_theta, positions)};
  } else {
    if (name != nullptr && std::string_view(name) == "rope_scaling" && options.is_object() &&
        !options.contains("rope_theta") && reader.Find("rope_parameters").is_object()) {
      // The base can be in the other object.
      FieldReader other = reader.Inside("rope_parameters");
      if (!other.IsMissing("rope_theta")) theta = other.AtLeastOne("rope_theta");
    }
    config.rotaries = {ReadFlat(reader, name, theta, positions)};
    if (name == nullptr && defaults.whole != nullptr) config.rotaries = {*defaults.whole};
    if (has_sliding_theta) config.rotaries.push_back(Plain(sliding_theta));
  }
  ReadPart(reader, name, defaults.can_be_partial, config);
  CheckFactors(reader, name, config);
  for (LayerConfig& layer : config.layers) {
    layer.rotary = config.rotaries.size() > 1 && layer.window != kFullAttention ? 1 : 0;
  }
}

}  // namespace pagoda
