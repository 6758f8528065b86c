#include "engine/checkpoint/config/gguf_expert_fields.h"

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config/decoder_fields.h"

namespace pagoda {
namespace {

using Scores = ExpertsConfig::Scores;

// llama.cpp's numbers for expert_gating_func.
constexpr int64_t kGatingSoftmax = 1;
constexpr int64_t kGatingSoftmaxOfChosen = 3;

// llama.cpp has these as constants.
constexpr float kGptOssAlpha = 1.702f;
constexpr float kGptOssLimit = 7.0f;

void RefuseUnless(GgufFields& reader, const std::string& key, const GgufValue& allowed,
                  absl::string_view wanted) {
  const GgufValue* const value = reader.Find(key);
  if (value != nullptr && *value != allowed) reader.Refuse(key, wanted);
}

}  // namespace

void FillGgufExperts(GgufFields& reader, GgufExperts kind, ModelConfig& config) {
  const bool is_gpt_oss = kind == GgufExperts::kGptOss;
  ExpertsConfig experts;
  experts.count = reader.Count("expert_count", kMaxExperts);
  experts.chosen = reader.Count("expert_used_count", kMaxExperts);
  if (experts.chosen > experts.count) {
    reader.Refuse("expert_used_count", absl::StrCat("at most the ", experts.count, " experts"));
  }
  experts.intermediate_size = reader.Count("expert_feed_forward_length", 1u << 20);
  // No layer has a plain MLP.
  if (config.intermediate_size == 0) config.intermediate_size = experts.intermediate_size;
  if (reader.Find("expert_weights_scale") != nullptr) {
    experts.scale = reader.Positive("expert_weights_scale");
  }
  RefuseUnless(reader, "expert_gating_func", is_gpt_oss ? kGatingSoftmaxOfChosen : kGatingSoftmax,
               "the architecture's own");
  for (const char* key : {"expert_group_count", "expert_group_used_count"}) {
    RefuseUnless(reader, key, int64_t{1}, "absent or 1");
  }
  RefuseUnless(reader, "expert_shared_count", int64_t{0}, "absent or 0");
  if (is_gpt_oss) {
    experts.scores = Scores::kSoftmaxOfChosen;
    experts.has_bias = true;
    config.attention_sinks = true;
    config.output_bias = true;
    config.activation = Activation::kClampedSilu;
    config.activation_alpha = kGptOssAlpha;
    config.activation_limit = kGptOssLimit;
  } else {
    experts.normalize = true;
  }
  for (LayerConfig& layer : config.layers) layer.has_experts = true;
  config.experts = experts;
}

}  // namespace pagoda
