#include "engine/checkpoint/model_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/mapped_file.h"
#include "pools/error.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr char kArchitecture[] = "Qwen3ForCausalLM";

// Reads a config's fields and keeps the first complaint, so that the reading itself stays a list.
class FieldReader {
 public:
  FieldReader(const json& config, std::string path) : config_(config), path_(std::move(path)) {}

  const absl::Status& status() const { return status_; }

  // Null where there is none.
  const json& Find(const char* name) const {
    static const json kNull;
    const auto it = config_.find(name);
    return it == config_.end() ? kNull : *it;
  }

  // `wanted` completes "NAME is VALUE; it must be ...".
  void Refuse(const char* name, const std::string& wanted) { Refuse(name, Find(name), wanted); }

  // The same of a value inside a field, whose name is then FIELD.KEY.
  void Refuse(const std::string& name, const json& value, const std::string& wanted) {
    if (!status_.ok()) return;
    std::string what = " is not a plain value";
    if (value.is_null()) what = " is missing";
    if (value.is_primitive() && !value.is_null()) {
      what = absl::StrCat(" is ", value.dump().substr(0, 80));
    }
    status_ = MakeError(Reason::kInvalidCheckpoint,
                        absl::StrCat(path_, ": ", name, what, "; it must be ", wanted));
  }

  uint32_t Count(const char* name, uint32_t max) {
    const json& value = Find(name);
    if (value.is_number_unsigned() && value.get<uint64_t>() >= 1 && value.get<uint64_t>() <= max) {
      return value.get<uint32_t>();
    }
    Refuse(name, absl::StrCat("an integer from 1 to ", max));
    return 1;
  }

  // False where the field is missing.
  bool Flag(const char* name) {
    const json& value = Find(name);
    if (!value.is_null() && !value.is_boolean()) Refuse(name, "true or false");
    return value.is_boolean() && value.get<bool>();
  }

  // The value may lie inside a field, as for Refuse.
  float Positive(const std::string& name, const json& value) {
    const float number = value.is_number() ? value.get<float>() : 0.0f;
    if (!(number > 0 && std::isfinite(number))) Refuse(name, value, "a positive number");
    return number;
  }

 private:
  const json& config_;
  const std::string path_;
  absl::Status status_;
};

void ReadShape(FieldReader& reader, ModelConfig& config) {
  config.vocab_size = reader.Count("vocab_size", 1u << 24);
  config.hidden_size = reader.Count("hidden_size", 1u << 17);
  config.intermediate_size = reader.Count("intermediate_size", 1u << 20);
  config.num_heads = reader.Count("num_attention_heads", 1024);
  const uint32_t num_kv_heads = reader.Count("num_key_value_heads", 1024);
  config.layers.assign(reader.Count("num_hidden_layers", 1024), {.num_kv_heads = num_kv_heads});
  config.head_dim = reader.Count("head_dim", 1024);
  config.max_position_embeddings = reader.Count("max_position_embeddings", 1u << 26);
  config.rms_norm_eps = reader.Positive("rms_norm_eps", reader.Find("rms_norm_eps"));
  config.tie_word_embeddings = reader.Flag("tie_word_embeddings");
  if (config.num_heads % num_kv_heads != 0) {
    reader.Refuse("num_key_value_heads",
                  absl::StrCat("a divisor of num_attention_heads ", config.num_heads));
  }
  if (config.head_dim % 2 != 0) reader.Refuse("head_dim", "even, as rotary embeddings need");
}

// Plain rotary embeddings have a type, perhaps a base, and no other option. Files from before
// transformers 4.43 call the rope_type `type`.
void RefuseRotaryVariants(FieldReader& reader, const std::string& name, const json& options) {
  if (!options.is_object()) return reader.Refuse(name, options, "an object");
  bool has_type = false;
  for (const auto& [key, value] : options.items()) {
    const std::string field = absl::StrCat(name, ".", key);
    if (key == "rope_type" || key == "type") {
      has_type = true;
      if (value != "default") reader.Refuse(field, value, "\"default\", which is all that is run");
    } else if (key != "rope_theta" && !value.is_null()) {
      reader.Refuse(field, value, "absent: variants of rotary embeddings are not run");
    }
  }
  if (!has_type) reader.Refuse(absl::StrCat(name, ".rope_type"), json(), "\"default\"");
}

// transformers 5 keeps the rotary embedding's options in rope_parameters; before, the base was
// rope_theta and the rest rope_scaling.
void ReadRotary(FieldReader& reader, ModelConfig& config) {
  std::string theta_name = "rope_theta";
  json theta = reader.Find("rope_theta");
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json& options = reader.Find(name);
    if (options.is_null()) continue;
    RefuseRotaryVariants(reader, name, options);
    if (!options.is_object() || !options.contains("rope_theta")) continue;
    theta_name = absl::StrCat(name, ".rope_theta");
    theta = options["rope_theta"];
  }
  config.rotaries = {{.theta = reader.Positive(theta_name, theta)}};
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

// What would change the result and is not run.
void RefuseOptions(FieldReader& reader) {
  if (reader.Find("hidden_act") != "silu") reader.Refuse("hidden_act", "\"silu\"");
  for (const char* name : {"attention_bias", "use_sliding_window"}) {
    if (reader.Flag(name)) reader.Refuse(name, "false, which is all that is run");
  }
  for (const json& type : reader.Find("layer_types")) {
    if (type != "full_attention") {
      reader.Refuse("layer_types", "\"full_attention\" in every layer, which is all that is run");
    }
  }
  if (!reader.Find("quantization_config").is_null()) {
    reader.Refuse("quantization_config", "absent: quantised weights are not run");
  }
}

}  // namespace

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model_dir) {
  const std::string path = absl::StrCat(model_dir, "/config.json");
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const json root = json::parse(file->text(), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": is no JSON object"));
  }

  FieldReader reader(root, path);
  ModelConfig config;
  config.architecture = kArchitecture;
  if (reader.Find("architectures") != json::array({kArchitecture})) {
    reader.Refuse("architectures",
                  absl::StrCat("[\"", kArchitecture, "\"], which is all that is run"));
  }
  ReadShape(reader, config);
  ReadRotary(reader, config);
  ReadEosTokens(reader, config);
  RefuseOptions(reader);
  config.query_key_norm = true;
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  if (!reader.status().ok()) return reader.status();
  return config;
}

}  // namespace pagoda
