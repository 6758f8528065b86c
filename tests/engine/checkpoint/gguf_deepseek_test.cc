// Phi 3, DeepSeek and BLOOM in GGUF files: metadata, names and tensors that are configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/checkpoint/gguf_scratch.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using File = GgufScratchFile;
using Scaling = RotaryConfig::Scaling;

// A Phi 3 whose short factors are 1 to 16, and whose long ones are twice as large.
File Phi3() {
  File file = {.keys = GgufKeys("phi3")};
  file.keys.erase("attention.key_length");  // The converter writes neither.
  file.keys.erase("attention.value_length");
  file.keys["rope.dimension_count"] = GgufUint32("phi3.rope.dimension_count", 8);
  file.keys["original"] = GgufUint32("phi3.rope.scaling.original_context_length", 512);
  file.keys["attention"] = GgufFloat32("phi3.rope.scaling.attn_factor", 1.25f);
  file.tensors = {{"token_embd.weight", {64, 8}, 0, 0},
                  {"rope_factors_short.weight", {4}, 0, 2048},
                  {"rope_factors_long.weight", {4}, 0, 2080}};
  for (int i = 0; i < 4; ++i) {
    const float factors[] = {1.0f + static_cast<float>(i), 2.0f + 2.0f * static_cast<float>(i)};
    std::memcpy(file.data.data() + 2048 + 4 * i, &factors[0], 4);
    std::memcpy(file.data.data() + 2080 + 4 * i, &factors[1], 4);
  }
  return file;
}

TEST(GgufPhi3Test, ReadsLongRopeFromKeysAndTensors) {
  const ModelConfig config = Phi3().Config();
  EXPECT_EQ(config.architecture, "Phi3ForCausalLM");
  EXPECT_EQ(config.head_dim, 16u);
  const RotaryConfig& rotary = config.rotaries[0];
  EXPECT_EQ(rotary.scaling, Scaling::kLongRope);
  EXPECT_EQ(rotary.rotary_dim, 8u);
  EXPECT_EQ(rotary.original_max_position_embeddings, 512u);
  EXPECT_EQ(rotary.attention_factor, 1.25f);
  EXPECT_THAT(rotary.divisors, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(rotary.long_divisors, ElementsAre(2, 4, 6, 8));
  File file = Phi3();
  file.keys["scaling"] = GgufString("phi3.rope.scaling.type", "longrope");
  EXPECT_EQ(file.Config().rotaries[0], rotary);
}

TEST(GgufPhi3Test, AgreesWithTheConfigJsonOfTheSameModel) {
  const ModelConfig original = *LoadModelConfig(GoldenDir("phi3_longrope_tiny"));
  for (const char* name : {"phi3_longrope_tiny_f32_gguf", "phi3_longrope_tiny_q8_0_gguf"}) {
    const ModelConfig gguf = *LoadModelConfig(GoldenDir(name));
    EXPECT_EQ(gguf.layers, original.layers);
    EXPECT_EQ(gguf.rotaries, original.rotaries);
    EXPECT_EQ(gguf.head_dim, original.head_dim);
    EXPECT_EQ(gguf.query_scale, original.query_scale);
    EXPECT_EQ(gguf.max_position_embeddings, original.max_position_embeddings);
  }
}

TEST(GgufPhi3Test, ReadsTheWindowAndAModelWithoutFactors) {
  File file = Phi3();
  file.tensors.resize(1);
  const ModelConfig plain = file.Config();
  EXPECT_EQ(plain.rotaries[0].scaling, Scaling::kNone);
  EXPECT_EQ(plain.rotaries[0].rotary_dim, 8u);
  EXPECT_THAT(plain.layers, Each(Field(&LayerConfig::window, kFullAttention)));
  // The converter writes 0 for none. The window of a Phi 3 is in every layer, as in Hugging Face;
  // llama.cpp leaves it out.
  file.keys["window"] = GgufUint32("phi3.attention.sliding_window", 0);
  EXPECT_THAT(file.Config().layers, Each(Field(&LayerConfig::window, kFullAttention)));
  file.keys["window"] = GgufUint32("phi3.attention.sliding_window", 24);
  EXPECT_THAT(file.Config().layers, Each(Field(&LayerConfig::window, WindowSize(24))));
}

TEST(GgufPhi3Test, RefusesUnsoundFactors) {
  File file = Phi3();
  file.tensors[1].dimensions = {3};
  EXPECT_THAT(file.Refusal(), HasSubstr("rope_factors_short.weight is not [4] numbers"));
  file = Phi3();
  file.tensors.resize(2);
  EXPECT_THAT(file.Refusal(), HasSubstr("rope_factors_long.weight is not [4] numbers"));
  file = Phi3();
  std::memset(file.data.data() + 2080, 0, 4);
  EXPECT_THAT(file.Refusal(), HasSubstr("rope_factors_long.weight is not [4] numbers"));
  file = Phi3();
  file.keys["scaling"] = GgufString("phi3.rope.scaling.type", "yarn");
  EXPECT_THAT(file.Refusal(), HasSubstr("phi3.rope.scaling.type is yarn"));
  file = Phi3();
  file.keys["factor"] = GgufFloat32("phi3.rope.scaling.factor", 2);
  EXPECT_THAT(file.Refusal(), HasSubstr("phi3.rope.scaling.factor is 2"));
  for (const uint32_t dim : {7u, 18u}) {
    file = Phi3();
    file.keys["rope.dimension_count"] = GgufUint32("phi3.rope.dimension_count", dim);
    EXPECT_THAT(file.Refusal(), HasSubstr("rope.dimension_count is"));
  }
}

// A DeepSeek V3 in the newer form.
File Deepseek() {
  File file = {.keys = GgufKeys("deepseek2")};
  const std::map<std::string, uint32_t> counts = {
      {"attention.head_count_kv", 1},     {"attention.key_length", 40},
      {"attention.value_length", 24},     {"attention.key_length_mla", 48},
      {"attention.value_length_mla", 20}, {"attention.q_lora_rank", 36},
      {"attention.kv_lora_rank", 24},     {"rope.dimension_count", 16},
      {"leading_dense_block_count", 3},   {"expert_count", 8},
      {"expert_used_count", 3},           {"expert_feed_forward_length", 96},
      {"expert_shared_count", 2},         {"expert_gating_func", 2},
      {"expert_group_count", 4},          {"expert_group_used_count", 2},
      {"expert_weights_norm", 1},         {"rope.scaling.original_context_length", 512}};
  for (const auto& [key, value] : counts) {
    file.keys[key] = GgufUint32("deepseek2." + key, value);
  }
  file.keys["scale"] = GgufFloat32("deepseek2.expert_weights_scale", 2.5f);
  file.keys["scaling"] = GgufString("deepseek2.rope.scaling.type", "yarn");
  file.keys["factor"] = GgufFloat32("deepseek2.rope.scaling.factor", 8);
  file.keys["log"] = GgufFloat32("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
  return file;
}

// The corrections of layers with experts.
void AddCorrections(const std::vector<int>& layers, File& file) {
  for (const int layer : layers) {
    file.tensors.push_back({"blk." + std::to_string(layer) + ".exp_probs_b.bias",
                            {8},
                            0,
                            2048 + 32 * static_cast<uint64_t>(layer)});
  }
}

TEST(GgufDeepseekTest, ReadsV3) {
  File file = Deepseek();
  AddCorrections({3, 4, 5, 6}, file);
  const ModelConfig config = file.Config();
  EXPECT_EQ(config.architecture, "DeepseekV3ForCausalLM");
  const LatentAttentionConfig latent = {
      .query_rank = 36, .latent_dim = 24, .plain_dim = 32, .rotary_dim = 16, .value_dim = 20};
  EXPECT_EQ(config.latent, latent);
  EXPECT_EQ(config.head_dim, 40u);
  for (uint32_t i = 0; i < 7; ++i) {
    EXPECT_EQ(config.layers[i].kind, KvKind::kKeyOnly);
    EXPECT_EQ(config.layers[i].num_kv_heads, 1u);
    EXPECT_EQ(config.layers[i].value_dim, 24u);
    EXPECT_EQ(config.layers[i].has_experts, i >= 3) << i;
  }
  const ExpertsConfig expected = {.count = 8,
                                  .chosen = 3,
                                  .intermediate_size = 96,
                                  .shared_intermediate_size = 192,
                                  .scores = ExpertsConfig::Scores::kSigmoid,
                                  .normalize = true,
                                  .scale = 2.5f,
                                  .groups = 4,
                                  .chosen_groups = 2,
                                  .group_rating = ExpertsConfig::GroupRating::kSumOfBestTwo,
                                  .has_correction = true};
  EXPECT_EQ(config.experts, expected);
  EXPECT_EQ(config.rotaries[0].scaling, Scaling::kYarn);
  EXPECT_EQ(config.rotaries[0].pairs, RotaryConfig::Pairs::kNeighbours);
  EXPECT_EQ(config.rotaries[0].rotary_dim, 16u);
  EXPECT_EQ(config.rotaries[0].attention_factor, 1.0f);
  // mscale_all_dim is 0.707.
  const double scale = 0.1 * 0.707 * std::log(8.0) + 1;
  EXPECT_THAT(config.query_scale, FloatEq(static_cast<float>(scale * scale / std::sqrt(48.0))));
}

TEST(GgufDeepseekTest, ReadsV2InTheOlderForm) {
  File file = Deepseek();
  for (const char* key :
       {"attention.key_length_mla", "attention.value_length_mla", "attention.q_lora_rank",
        "expert_gating_func", "expert_weights_norm", "leading_dense_block_count", "scaling"}) {
    file.keys.erase(key);
  }
  file.keys["attention.key_length"] = GgufUint32("deepseek2.attention.key_length", 48);
  file.keys["attention.value_length"] = GgufUint32("deepseek2.attention.value_length", 20);
  const ModelConfig config = file.Config();
  EXPECT_EQ(config.architecture, "DeepseekV2ForCausalLM");
  const LatentAttentionConfig latent = {
      .latent_dim = 24, .plain_dim = 32, .rotary_dim = 16, .value_dim = 20};
  EXPECT_EQ(config.latent, latent);
  EXPECT_TRUE(config.layers[0].has_experts);
  EXPECT_EQ(config.experts->scores, ExpertsConfig::Scores::kSoftmax);
  EXPECT_EQ(config.experts->group_rating, ExpertsConfig::GroupRating::kBest);
  EXPECT_FALSE(config.experts->normalize);
  EXPECT_FALSE(config.experts->has_correction);
  EXPECT_EQ(config.rotaries[0].scaling, Scaling::kNone);
  EXPECT_THAT(config.query_scale, FloatEq(1.0f / std::sqrt(48.0f)));
  // V2 Lite.
  file.keys.erase("expert_group_count");
  file.keys.erase("expert_group_used_count");
  EXPECT_EQ(file.Config().experts->groups, 1u);
}

TEST(GgufDeepseekTest, ReadsAModelWithoutExperts) {
  File file = Deepseek();
  for (const char* key : {"expert_count", "expert_used_count"}) file.keys.erase(key);
  file.keys["leading_dense_block_count"] = GgufUint32("deepseek2.leading_dense_block_count", 7);
  const ModelConfig config = file.Config();
  EXPECT_EQ(config.experts, std::nullopt);
  EXPECT_THAT(config.layers, Each(Field(&LayerConfig::has_experts, false)));
}

TEST(GgufDeepseekTest, RefusesWhatItCannotRunByTheKeysName) {
  const auto count = [](const std::string& key, uint32_t value) {
    File file = Deepseek();
    file.keys[key] = GgufUint32("deepseek2." + key, value);
    return file.Refusal();
  };
  EXPECT_THAT(count("attention.key_length_mla", 16), HasSubstr("more than rope.dimension_count"));
  EXPECT_THAT(count("rope.dimension_count", 15), HasSubstr("rope.dimension_count is 15"));
  EXPECT_THAT(count("attention.kv_lora_rank", 25), HasSubstr("kv_lora_rank is 25"));
  EXPECT_THAT(count("expert_used_count", 9), HasSubstr("at most the 8 experts"));
  EXPECT_THAT(count("expert_group_count", 3), HasSubstr("a divisor of expert_count"));
  EXPECT_THAT(count("expert_group_count", 8), HasSubstr("at most half of expert_count"));
  EXPECT_THAT(count("expert_group_used_count", 5), HasSubstr("at most expert_group_count"));
  EXPECT_THAT(count("expert_group_used_count", 1), HasSubstr("large enough"));
  EXPECT_THAT(count("expert_gating_func", 4), HasSubstr("expert_gating_func is 4"));
  EXPECT_THAT(count("expert_shared_count", 5000), HasSubstr("expert_shared_count is 5000"));
  EXPECT_THAT(count("nextn_predict_layers", 1), HasSubstr("nextn_predict_layers is 1"));
  File file = Deepseek();
  file.keys.erase("log");
  EXPECT_THAT(file.Refusal(), HasSubstr("yarn_log_multiplier is missing"));
  file = Deepseek();
  file.keys["scaling"] = GgufString("deepseek2.rope.scaling.type", "linear");
  EXPECT_THAT(file.Refusal(), HasSubstr("rope.scaling.type is linear"));
  for (const char* key :
       {"attention.kv_lora_rank", "rope.dimension_count", "expert_count",
        "attention.value_length_mla", "expert_feed_forward_length", "feed_forward_length"}) {
    file = Deepseek();
    file.keys.erase(key);
    EXPECT_THAT(file.Refusal(), HasSubstr(std::string("deepseek2.") + key + " is missing"));
  }
  file = Deepseek();
  AddCorrections({3, 4, 6}, file);
  EXPECT_THAT(file.Refusal(), HasSubstr("exp_probs_b.bias in some layers"));
  file = Deepseek();
  AddCorrections({3, 4, 5, 6}, file);
  file.keys["expert_gating_func"] = GgufUint32("deepseek2.expert_gating_func", 1);
  EXPECT_THAT(file.Refusal(), HasSubstr("because there is a correction"));
}

TEST(GgufBloomTest, ReadsWhatConfigJsonSays) {
  File file = {.keys = GgufKeys("bloom")};
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count",
                          "attention.layer_norm_rms_epsilon"}) {
    file.keys.erase(key);
  }
  file.keys["attention.head_count_kv"] = GgufUint32("bloom.attention.head_count_kv", 4);
  EXPECT_THAT(file.Refusal(), HasSubstr("bloom.attention.layer_norm_epsilon is missing"));
  file.keys["epsilon"] = GgufFloat32("bloom.attention.layer_norm_epsilon", 1e-3f);
  const ModelConfig config = file.Config();
  EXPECT_EQ(config.architecture, "BloomForCausalLM");
  EXPECT_EQ(config.names, TensorNames::kBloom);
  EXPECT_EQ(config.head_dim, 16u);
  EXPECT_EQ(config.query_scale, 0.25f);
  EXPECT_EQ(config.rms_norm_eps, 1e-3f);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.alibi && config.layer_norms && config.embedding_norm && config.mlp_bias &&
              config.attention_bias && config.output_bias && !config.gated_mlp);
  EXPECT_TRUE(config.rotaries.empty());
  EXPECT_TRUE(config.tie_word_embeddings);
  file.keys["attention.head_count_kv"] = GgufUint32("bloom.attention.head_count_kv", 2);
  EXPECT_THAT(file.Refusal(), HasSubstr("head_count_kv is 2; it must be head_count 4"));
  file.keys["attention.head_count_kv"] = GgufUint32("bloom.attention.head_count_kv", 6);
  file.keys["attention.head_count"] = GgufUint32("bloom.attention.head_count", 6);
  EXPECT_THAT(file.Refusal(), HasSubstr("embedding_length is 64; it must be a multiple"));
}

// A tensor's name has its meaning only in the architecture that has it.
TEST(GgufDeepseekTest, OtherArchitecturesDoNotHaveTheseTensors) {
  struct Case {
    const char* model;
    const char* from;
    const char* to;  // It has the length of `from`.
  };
  for (const Case& c :
       {Case{"llama3_tiny_f16_gguf", "blk.1.ffn_down.weight", "blk.1.attn_qkv.weight"},
        Case{"llama3_tiny_f16_gguf", "blk.1.ffn_gate.weight", "blk.1.attn_q_a.weight"},
        Case{"bloom_tiny_gguf", "blk.0.ffn_down.weight", "blk.0.ffn_gate.weight"},
        Case{"deepseek_v2_tiny_gguf", "blk.1.attn_kv_b.weight", "blk.1.attn_qkvb.weight"},
        Case{"deepseek_v3_tiny_gguf", "blk.1.exp_probs_b.bias", "blk.1.exp_probs_c.bias"},
        Case{"phi3_longrope_tiny_f32_gguf", "blk.1.attn_qkv.weight", "blk.1.attn_q_b.weight"}}) {
    const ScratchModel model(c.model);
    std::string content = model.Read("model.gguf");
    ASSERT_EQ(std::string(c.from).size(), std::string(c.to).size());
    content.replace(content.find(c.from), std::string(c.from).size(), c.to);
    model.Write("model.gguf", content);
    EXPECT_THAT(std::string(Checkpoint::Open(model.dir()).status().message()),
                HasSubstr(std::string("tensor ") + c.to + " is not a tensor that a"));
  }
}

}  // namespace
}  // namespace pagoda
