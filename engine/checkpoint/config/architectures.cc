#include "engine/checkpoint/config/architectures.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/config/bloom_fields.h"
#include "engine/checkpoint/config/expert_fields.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr float kDefaultQueryPreAttnScalar = 256.0f;
constexpr float kGemma2AttentionSoftCap = 50.0f;
constexpr float kGemma2FinalSoftCap = 30.0f;

// A number; 0, for no cap, if it is null.
float SoftCap(FieldReader& reader, const char* name, float where_missing) {
  if (reader.IsMissing(name)) return where_missing;
  return reader.IsNull(name) ? 0.0f : reader.Positive(name);
}

void FillLlama(FieldReader&, ModelConfig&) {}

void FillQwen2(FieldReader&, ModelConfig& config) { config.attention_bias = true; }

void FillQwen3(FieldReader&, ModelConfig& config) { config.query_key_norm = true; }

// transformers multiplies embeddings by the root in its type of computation, which is the
// checkpoint's by default.
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

// No caps if config.json has none. transformers' config has attention's cap, but its attention does
// not use it.
void FillGemma3(FieldReader& reader, ModelConfig& config) {
  FillGemma2(reader, config);
  reader.RefuseUnlessNull("attn_logit_softcapping", "Gemma 3 has no cap of scores");
  config.attention_soft_cap = 0.0f;
  config.final_soft_cap = SoftCap(reader, "final_logit_softcapping", 0.0f);
  config.query_key_norm = true;
}

// gpt-oss' embedding if config.json has none of its options.
const RotaryConfig& GptOssRotary() {
  static const RotaryConfig rotary = [] {
    RotaryConfig yarn;
    yarn.theta = 150000.0f;
    yarn.scaling = RotaryConfig::Scaling::kYarn;
    yarn.factor = 32.0f;
    yarn.original_max_position_embeddings = 4096;
    yarn.truncate = false;
    yarn.attention_factor = YarnScale(yarn.factor, 1.0f);
    return yarn;
  }();
  return rotary;
}

const Architecture kArchitectures[] = {
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
    // Our variant: a Qwen 3 whose num_key_value_heads is a list with one number per layer.
    {.name = "PagodaQwen3ForCausalLM",
     .fill = FillQwen3,
     .has_kv_heads_by_layer = true,
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
    {.name = "Phi3ForCausalLM",
     .fill = FillLlama,
     .max_position_embeddings = 4096,
     .rotary = {.can_be_partial = true, .phi3_original_positions = 4096},
     .window_rule = WindowRule::kEvery,
     .window = 0,
     .rms_norm_eps = 1e-5f,
     .own_options = {"original_max_position_embeddings"}},
    {.name = "Qwen3MoeForCausalLM",
     .fill = FillQwen3Moe,
     .num_kv_heads = 4,
     .window_rule = WindowRule::kUpperLayers},
    {.name = "DeepseekV2ForCausalLM", .fill = FillDeepseekV2, .max_position_embeddings = 2048},
    {.name = "DeepseekV3ForCausalLM", .fill = FillDeepseekV3, .max_position_embeddings = 4096},
    {.name = "GptOssForCausalLM",
     .fill = FillGptOss,
     .num_kv_heads = 8,
     .head_dim = 64,
     .max_position_embeddings = 131072,
     .rotary = {.theta = 150000.0f, .whole = &GptOssRotary()},
     .window_rule = WindowRule::kPeriodic,
     .window = 128,
     .window_period = 2,
     .rms_norm_eps = 1e-5f,
     .own_options = {"attention_bias", "quantization_config"}},
    // ALiBi instead of rotary embeddings.
    {.name = "BloomForCausalLM", .fill = FillLlama, .read = ReadBloom},
};

}  // namespace

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
      is_one ? absl::StrCat(" (", names[0].get<std::string>().substr(0, 80), " is not supported)")
             : "";
  reader.Refuse("architectures", absl::StrCat("one of ", absl::StrJoin(quoted, ", "), given));
  return kArchitectures[0];
}

}  // namespace pagoda
