#include "engine/checkpoint/config/expert_fields.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config/decoder_fields.h"
#include "engine/checkpoint/config/rotary_fields.h"

namespace pagoda {
namespace {

using nlohmann::json;
using Scores = ExpertsConfig::Scores;
using GroupRating = ExpertsConfig::GroupRating;

// transformers' defaults.
constexpr uint32_t kQwen3MoeExperts = 128;
constexpr uint32_t kQwen3MoeChosen = 8;
constexpr uint32_t kQwen3MoeIntermediate = 768;
constexpr uint32_t kGptOssExperts = 128;
constexpr uint32_t kGptOssChosen = 4;

// A field that transformers knows by two names.
const char* OneOf(const FieldReader& reader, const char* first, const char* second) {
  return reader.IsMissing(first) ? second : first;
}

void CheckChosen(FieldReader& reader, const ExpertsConfig& experts) {
  if (experts.chosen > experts.count) {
    reader.Refuse("num_experts_per_tok", absl::StrCat("at most the ", experts.count, " experts"));
  }
}

// A number from 0 on. Null or missing: the default.
uint32_t NumberOr(FieldReader& reader, const char* name, uint32_t max, uint32_t where_missing) {
  if (reader.IsNull(name)) return where_missing;
  return reader.Find(name) == 0 ? 0 : reader.Count(name, max);
}

// The experts of both DeepSeeks. The first layers have none.
ExpertsConfig ReadDeepseekExperts(FieldReader& reader, uint32_t default_first_dense,
                                  ModelConfig& config) {
  ExpertsConfig experts;
  experts.count = reader.Count(OneOf(reader, "n_routed_experts", "num_local_experts"), kMaxExperts);
  experts.chosen = reader.Count("num_experts_per_tok", kMaxExperts);
  experts.intermediate_size = reader.Count("moe_intermediate_size", kMaxIntermediateSize);
  const uint64_t shared =
      uint64_t{NumberOr(reader, "n_shared_experts", kMaxExperts, 0)} * experts.intermediate_size;
  if (shared > kMaxIntermediateSize) reader.Refuse("n_shared_experts", "fewer");
  experts.shared_intermediate_size =
      static_cast<uint32_t>(std::min<uint64_t>(shared, kMaxIntermediateSize));
  experts.scale = reader.PositiveOr("routed_scaling_factor", 1.0f);
  CheckChosen(reader, experts);
  if (!reader.IsNull("moe_layer_freq") && reader.Find("moe_layer_freq") != 1) {
    reader.Refuse("moe_layer_freq", "1");
  }
  const uint32_t first = NumberOr(reader, "first_k_dense_replace", kMaxLayers, default_first_dense);
  for (size_t i = first; i < config.layers.size(); ++i) config.layers[i].has_experts = true;
  return experts;
}

// Only experts of the best groups can be chosen.
void ReadGroups(FieldReader& reader, ExpertsConfig& experts) {
  experts.groups = NumberOr(reader, "n_group", kMaxExperts, 1);
  experts.chosen_groups = NumberOr(reader, "topk_group", kMaxExperts, 1);
  const bool divides = experts.groups > 0 && experts.count % experts.groups == 0;
  if (!divides) return reader.Refuse("n_group", "a divisor of n_routed_experts");
  if (experts.group_rating == GroupRating::kSumOfBestTwo && experts.count / experts.groups < 2) {
    return reader.Refuse("n_group", "at most half of n_routed_experts");
  }
  if (experts.chosen_groups < 1 || experts.chosen_groups > experts.groups) {
    return reader.Refuse("topk_group", "from 1 to n_group");
  }
  if (uint64_t{experts.chosen_groups} * (experts.count / experts.groups) < experts.chosen) {
    reader.Refuse("topk_group", "large enough for num_experts_per_tok experts");
  }
}

// Replaces the shape of heads that the common fields gave.
void ReadLatent(FieldReader& reader, RotaryConfig::Pairs pairs, ModelConfig& config) {
  LatentAttentionConfig latent;
  // Missing: transformers' default. Null: none.
  const bool has_rank = reader.IsMissing("q_lora_rank") || !reader.IsNull("q_lora_rank");
  if (has_rank) latent.query_rank = reader.CountOr("q_lora_rank", kMaxHiddenSize, 1536);
  latent.latent_dim = reader.CountOr("kv_lora_rank", kMaxHeadDim, 512);
  latent.plain_dim = reader.CountOr("qk_nope_head_dim", kMaxHeadDim, 128);
  latent.rotary_dim = reader.CountOr("qk_rope_head_dim", kMaxHeadDim, 64);
  latent.value_dim = reader.CountOr("v_head_dim", kMaxHeadDim, 128);
  if (latent.rotary_dim % 2 != 0) reader.Refuse("qk_rope_head_dim", "even");
  if (latent.latent_dim % 2 != 0) reader.Refuse("kv_lora_rank", "even");
  config.head_dim = latent.latent_dim + latent.rotary_dim;
  for (LayerConfig& layer : config.layers) {
    layer.num_kv_heads = 1;
    layer.kind = KvKind::kKeyOnly;
    layer.value_dim = latent.latent_dim;
  }
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(latent.plain_dim + latent.rotary_dim));
  for (RotaryConfig& rotary : config.rotaries) {
    if (rotary.scaling == RotaryConfig::Scaling::kLongRope) {
      reader.Refuse("rope_parameters", "of another type than longrope");
    }
    rotary.rotary_dim = latent.rotary_dim;
    rotary.pairs = pairs;
  }
  config.latent = latent;
}

// DeepSeek also scales scores, by the square of YaRN's scale for mscale_all_dim.
void ScaleScores(FieldReader& reader, ModelConfig& config) {
  if (config.rotaries[0].scaling == RotaryConfig::Scaling::kNone) return;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!reader.Find(name).is_object()) continue;
    FieldReader options = reader.Inside(name);
    if (options.IsNull("mscale_all_dim") || options.Find("mscale_all_dim") == 0) continue;
    const float scale = YarnScale(config.rotaries[0].factor, options.Positive("mscale_all_dim"));
    config.query_scale *= scale * scale;
    return;
  }
}

}  // namespace

void FillQwen3Moe(FieldReader& reader, ModelConfig& config) {
  config.query_key_norm = true;
  ExpertsConfig experts;
  experts.count = reader.CountOr(OneOf(reader, "num_experts", "num_local_experts"), kMaxExperts,
                                 kQwen3MoeExperts);
  experts.chosen = reader.CountOr("num_experts_per_tok", kMaxExperts, kQwen3MoeChosen);
  experts.intermediate_size =
      reader.CountOr("moe_intermediate_size", kMaxIntermediateSize, kQwen3MoeIntermediate);
  experts.normalize = reader.FlagOr("norm_topk_prob", false);
  CheckChosen(reader, experts);
  const uint32_t step = reader.CountOr("decoder_sparse_step", kMaxLayers, 1);
  const json& dense = reader.Find("mlp_only_layers");
  if (!dense.is_null() && !dense.is_array()) reader.Refuse("mlp_only_layers", "a list of layers");
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    const bool is_dense =
        dense.is_array() && std::find(dense.begin(), dense.end(), json(i)) != dense.end();
    config.layers[i].has_experts = (i + 1) % step == 0 && !is_dense;
  }
  config.experts = experts;
}

void FillDeepseekV2(FieldReader& reader, ModelConfig& config) {
  ExpertsConfig experts = ReadDeepseekExperts(reader, /*default_first_dense=*/0, config);
  const std::string method = reader.TextOr("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    ReadGroups(reader, experts);
  } else if (method != "greedy") {
    reader.Refuse("topk_method", R"("greedy" or "group_limited_greedy")");
  }
  if (reader.TextOr("scoring_func", "softmax") != "softmax") {
    reader.Refuse("scoring_func", R"("softmax")");
  }
  config.experts = experts;
  ReadLatent(reader, RotaryConfig::Pairs::kNeighbours, config);
  ScaleScores(reader, config);
}

void FillDeepseekV3(FieldReader& reader, ModelConfig& config) {
  ExpertsConfig experts = ReadDeepseekExperts(reader, /*default_first_dense=*/3, config);
  experts.scores = Scores::kSigmoid;
  experts.group_rating = GroupRating::kSumOfBestTwo;
  experts.has_correction = true;
  experts.normalize = reader.FlagOr("norm_topk_prob", true);
  experts.scale = reader.PositiveOr("routed_scaling_factor", 2.5f);
  if (reader.TextOr("topk_method", "noaux_tc") != "noaux_tc") {
    reader.Refuse("topk_method", R"("noaux_tc")");
  }
  if (reader.TextOr("scoring_func", "sigmoid") != "sigmoid") {
    reader.Refuse("scoring_func", R"("sigmoid")");
  }
  ReadGroups(reader, experts);
  config.experts = experts;
  const bool neighbours = reader.FlagOr("rope_interleave", true);
  ReadLatent(reader, neighbours ? RotaryConfig::Pairs::kNeighbours : RotaryConfig::Pairs::kHalves,
             config);
  ScaleScores(reader, config);
}

void FillGptOss(FieldReader& reader, ModelConfig& config) {
  ExpertsConfig experts;
  experts.count = reader.CountOr(OneOf(reader, "num_local_experts", "num_experts"), kMaxExperts,
                                 kGptOssExperts);
  experts.chosen = reader.CountOr("num_experts_per_tok", kMaxExperts, kGptOssChosen);
  experts.intermediate_size = config.intermediate_size;
  experts.scores = Scores::kSoftmaxOfChosen;
  experts.has_bias = true;
  CheckChosen(reader, experts);
  for (LayerConfig& layer : config.layers) layer.has_experts = true;
  config.experts = experts;
  config.attention_sinks = true;
  config.attention_bias = reader.FlagOr("attention_bias", true);
  config.output_bias = config.attention_bias;
  config.activation = Activation::kClampedSilu;
  config.activation_alpha = reader.PositiveOr("swiglu_alpha", 1.702f);
  config.activation_limit = reader.PositiveOr("swiglu_limit", 7.0f);
  const json& quantisation = reader.Find("quantization_config");
  if (quantisation.is_null()) return;
  FieldReader options = reader.Inside("quantization_config");
  if (options.TextOr("quant_method", "") != "mxfp4") {
    options.Refuse("quant_method", R"("mxfp4"; others are not supported)");
  }
}

}  // namespace pagoda
