#include "engine/checkpoint/config/gguf_deepseek_fields.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config/decoder_fields.h"
#include "engine/checkpoint/config/rotary_fields.h"

namespace pagoda {
namespace {

using Scores = ExpertsConfig::Scores;
using GroupRating = ExpertsConfig::GroupRating;

// llama.cpp's numbers for expert_gating_func.
constexpr int64_t kSoftmaxGating = 1;
constexpr int64_t kSigmoidGating = 2;
// llama.cpp's converter writes mscale_all_dim times this.
constexpr float kLogMultiplier = 0.1f;

// An integer from 0 on; 0 if it is missing.
uint32_t Number(GgufFields& reader, const std::string& key, uint32_t max) {
  const GgufValue* const value = reader.Find(key);
  return value == nullptr || *value == GgufValue(int64_t{0}) ? 0 : reader.Count(key, max);
}

void FillLatent(GgufFields& reader, ModelConfig& config) {
  LatentAttentionConfig latent;
  latent.query_rank = Number(reader, "attention.q_lora_rank", kMaxHiddenSize);
  latent.latent_dim = reader.Count("attention.kv_lora_rank", kMaxHeadDim);
  latent.rotary_dim = reader.Count("rope.dimension_count", kMaxHeadDim);
  const std::string form = reader.Find("attention.key_length_mla") == nullptr ? "" : "_mla";
  const std::string key_length = absl::StrCat("attention.key_length", form);
  const uint32_t of_head = reader.Count(key_length, 2 * kMaxHeadDim);
  latent.value_dim = reader.Count(absl::StrCat("attention.value_length", form), kMaxHeadDim);
  if (latent.rotary_dim % 2 != 0) reader.Refuse("rope.dimension_count", "even");
  if (latent.latent_dim % 2 != 0) reader.Refuse("attention.kv_lora_rank", "even");
  if (of_head <= latent.rotary_dim || of_head - latent.rotary_dim > kMaxHeadDim) {
    return reader.Refuse(key_length, absl::StrCat("more than rope.dimension_count ",
                                                  latent.rotary_dim, ", by at most ", kMaxHeadDim));
  }
  latent.plain_dim = of_head - latent.rotary_dim;
  config.head_dim = latent.latent_dim + latent.rotary_dim;
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(of_head));
  for (LayerConfig& layer : config.layers) {
    layer.num_kv_heads = 1;
    layer.kind = KvKind::kKeyOnly;
    layer.value_dim = latent.latent_dim;
  }
  RotaryConfig& rotary = config.rotaries[0];
  rotary.rotary_dim = latent.rotary_dim;
  rotary.pairs = RotaryConfig::Pairs::kNeighbours;
  config.latent = latent;
}

// YaRN's factor of attention acts on scores: on all elements, not only on the rotated ones.
void ScaleScores(GgufFields& reader, ModelConfig& config) {
  RotaryConfig& rotary = config.rotaries[0];
  if (rotary.scaling == RotaryConfig::Scaling::kNone) return;
  if (rotary.scaling != RotaryConfig::Scaling::kYarn) {
    return reader.Refuse("rope.scaling.type", "none or yarn");
  }
  const float mscale = reader.Positive("rope.scaling.yarn_log_multiplier") / kLogMultiplier;
  const float scale = YarnScale(rotary.factor, mscale);
  config.query_scale *= scale * scale;
  rotary.attention_factor = 1.0f;
}

void FillGroups(GgufFields& reader, ExpertsConfig& experts) {
  if (reader.Find("expert_group_count") == nullptr) return;
  experts.groups = reader.Count("expert_group_count", kMaxExperts);
  experts.chosen_groups = reader.Count("expert_group_used_count", kMaxExperts);
  if (experts.count % experts.groups != 0) {
    return reader.Refuse("expert_group_count", "a divisor of expert_count");
  }
  const uint32_t of_group = experts.count / experts.groups;
  if (experts.group_rating == GroupRating::kSumOfBestTwo && of_group < 2) {
    return reader.Refuse("expert_group_count", "at most half of expert_count");
  }
  if (experts.chosen_groups > experts.groups ||
      uint64_t{experts.chosen_groups} * of_group < experts.chosen) {
    reader.Refuse("expert_group_used_count",
                  "at most expert_group_count, and large enough for expert_used_count experts");
  }
}

// Whether the layers with experts have a correction. Complains if only some have one.
bool HasCorrection(GgufFields& reader, const GgufFile& file, const ModelConfig& config) {
  uint32_t with = 0, layers = 0;
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    if (!config.layers[i].has_experts) continue;
    ++layers;
    if (file.tensors().contains(absl::StrCat("blk.", i, ".exp_probs_b.bias"))) ++with;
  }
  if (with != 0 && with != layers) {
    reader.Complain("has tensors exp_probs_b.bias in some layers with experts, but not in all");
  }
  return with != 0;
}

void FillExperts(GgufFields& reader, const GgufFile& file, ModelConfig& config) {
  ExpertsConfig experts;
  experts.count = reader.Count("expert_count", kMaxExperts);
  experts.chosen = reader.Count("expert_used_count", kMaxExperts);
  experts.intermediate_size = reader.Count("expert_feed_forward_length", kMaxIntermediateSize);
  if (experts.chosen > experts.count) {
    reader.Refuse("expert_used_count", absl::StrCat("at most the ", experts.count, " experts"));
  }
  const uint64_t shared =
      uint64_t{Number(reader, "expert_shared_count", kMaxExperts)} * experts.intermediate_size;
  if (shared > kMaxIntermediateSize) return reader.Refuse("expert_shared_count", "fewer");
  experts.shared_intermediate_size = static_cast<uint32_t>(shared);
  experts.scale = reader.Positive("expert_weights_scale", 1.0f);
  experts.normalize = Number(reader, "expert_weights_norm", 1) != 0;
  const GgufValue* const gating = reader.Find("expert_gating_func");
  const bool is_v3 = gating != nullptr && *gating == GgufValue(kSigmoidGating);
  if (gating != nullptr && !is_v3 && *gating != GgufValue(kSoftmaxGating)) {
    reader.Refuse("expert_gating_func", "1 (softmax) or 2 (sigmoid)");
  }
  experts.scores = is_v3 ? Scores::kSigmoid : Scores::kSoftmax;
  experts.group_rating = is_v3 ? GroupRating::kSumOfBestTwo : GroupRating::kBest;
  experts.has_correction = HasCorrection(reader, file, config);
  if (experts.has_correction && !is_v3) {
    reader.Refuse("expert_gating_func", "2 (sigmoid), because there is a correction");
  }
  FillGroups(reader, experts);
  config.architecture = is_v3 ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM";
  config.experts = experts;
}

}  // namespace

void FillGgufDeepseek(GgufFields& reader, const GgufFile& file, ModelConfig& config) {
  FillLatent(reader, config);
  ScaleScores(reader, config);
  const uint32_t first = Number(reader, "leading_dense_block_count", kMaxLayers);
  for (size_t i = first; i < config.layers.size(); ++i) config.layers[i].has_experts = true;
  // Without an expert_count all layers are plain.
  if (first < config.layers.size() || reader.Find("expert_count") != nullptr) {
    FillExperts(reader, file, config);
  }
  for (const char* key : {"nextn_predict_layers", "attention.temperature_scale",
                          "attention.sliding_window", "interleave_moe_layer_step"}) {
    if (Number(reader, key, 1) != 0) reader.Refuse(key, "absent or 0; others are not supported");
  }
}

}  // namespace pagoda
