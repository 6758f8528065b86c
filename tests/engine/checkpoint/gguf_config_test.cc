#include "engine/checkpoint/config/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/checkpoint/gguf_scratch.h"
#include "tests/engine/fixtures/gguf_content.h"
#include "tests/engine/fixtures/golden.h"

namespace pagoda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using File = GgufScratchFile;

std::vector<WindowSize> Windows(const ModelConfig& config) {
  std::vector<WindowSize> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  return windows;
}

TEST(GgufConfigTest, AgreesWithTheConfigJsonOfTheSameModel) {
  ModelConfig gguf = *LoadModelConfig(GoldenDir("llama3_tiny_f16_gguf"));
  ModelConfig original = *LoadModelConfig(GoldenDir("llama3_tiny"));
  EXPECT_EQ(gguf.architecture, original.architecture);
  EXPECT_EQ(gguf.vocab_size, original.vocab_size);
  EXPECT_EQ(gguf.hidden_size, original.hidden_size);
  EXPECT_EQ(gguf.intermediate_size, original.intermediate_size);
  EXPECT_EQ(gguf.num_heads, original.num_heads);
  EXPECT_EQ(gguf.head_dim, original.head_dim);
  EXPECT_EQ(gguf.max_position_embeddings, original.max_position_embeddings);
  EXPECT_EQ(gguf.layers, original.layers);
  EXPECT_EQ(gguf.rms_norm_eps, original.rms_norm_eps);
  EXPECT_EQ(gguf.query_scale, original.query_scale);
  EXPECT_EQ(gguf.tie_word_embeddings, original.tie_word_embeddings);
  EXPECT_THAT(gguf.eos_token_ids, ElementsAre(2));
  // The file has divisors instead of the options that they are computed from.
  EXPECT_EQ(gguf.rotaries[0].scaling, RotaryConfig::Scaling::kDivisors);
  const std::vector<float> expected = RotaryFrequencies(original.rotaries[0], original.head_dim);
  const std::vector<float> frequencies = RotaryFrequencies(gguf.rotaries[0], gguf.head_dim);
  ASSERT_EQ(frequencies.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(frequencies[i], expected[i], 5e-7f * expected[i]) << i;
  }
}

TEST(GgufConfigTest, ReadsGemma3) {
  const ModelConfig config = *LoadModelConfig(GoldenDir("gemma3_tiny_bf16_gguf"));
  EXPECT_EQ(config.architecture, "Gemma3ForCausalLM");
  const WindowSize window(16);
  EXPECT_THAT(Windows(config),
              ElementsAre(window, window, window, window, window, kFullAttention, window));
  const RotaryConfig& full = config.rotaries[config.layers[5].rotary];
  EXPECT_EQ(full.theta, 1e6f);
  EXPECT_EQ(full.scaling, RotaryConfig::Scaling::kLinear);
  EXPECT_EQ(full.factor, 8.0f);
  EXPECT_EQ(config.rotaries[config.layers[0].rotary], RotaryConfig{.theta = 1e4f});
  EXPECT_EQ(config.embedding_scale, 9.8125f);  // The root of 96 in bf16, the embedding's type.
  EXPECT_FALSE(config.norm_weight_plus_one);   // llama.cpp's converter has already added it.
  EXPECT_TRUE(config.post_norms);
  EXPECT_TRUE(config.query_key_norm);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(config.query_scale, 1.0f / std::sqrt(32.0f));
}

TEST(GgufConfigTest, ReadsEachArchitecture) {
  const ModelConfig qwen2 = File{.keys = GgufKeys("qwen2")}.Config();
  EXPECT_EQ(qwen2.architecture, "Qwen2ForCausalLM");
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_THAT(Windows(qwen2), Each(kFullAttention));
  const ModelConfig qwen3 = File{.keys = GgufKeys("qwen3")}.Config();
  EXPECT_EQ(qwen3.architecture, "Qwen3ForCausalLM");
  EXPECT_TRUE(qwen3.query_key_norm);
  EXPECT_FALSE(qwen3.attention_bias);
  const ModelConfig gemma2 = File{.keys = GgufKeys("gemma2")}.Config();
  EXPECT_EQ(gemma2.architecture, "Gemma2ForCausalLM");
  EXPECT_EQ(gemma2.attention_soft_cap, 50.0f);
  EXPECT_EQ(gemma2.final_soft_cap, 30.0f);
  EXPECT_EQ(gemma2.embedding_scale, 8.0f);
  EXPECT_EQ(gemma2.rotaries.size(), 1u);
  const WindowSize window(4096);
  EXPECT_THAT(Windows(gemma2), ElementsAre(window, kFullAttention, window, kFullAttention, window,
                                           kFullAttention, window));
  // A Gemma 3 of llama.cpp can lack a window.
  EXPECT_THAT(Windows(File{.keys = GgufKeys("gemma3")}.Config()), Each(kFullAttention));
}

// The largest Gemmas' scores have the scale of hidden_size / heads.
TEST(GgufConfigTest, KnowsTheLargestGemmasByTheirLayers) {
  const ModelConfig gemma2 =
      GgufFileWith("gemma2", "block_count", GgufUint32("gemma2.block_count", 46)).Config();
  EXPECT_EQ(gemma2.query_scale, 0.25f);
  const ModelConfig gemma3 =
      GgufFileWith("gemma3", "block_count", GgufUint32("gemma3.block_count", 62)).Config();
  EXPECT_EQ(gemma3.query_scale, 0.25f);
  EXPECT_EQ(GgufFileWith("gemma3", "scale", GgufFloat32("gemma3.attention.scale", 0.125f))
                .Config()
                .query_scale,
            0.125f);
}

TEST(GgufConfigTest, ReadsWindowsAndKvHeadsOfEachLayer) {
  File file = GgufFileWith("llama", "window", GgufUint32("llama.attention.sliding_window", 24));
  EXPECT_THAT(Windows(file.Config()), Each(WindowSize(24)));
  std::string flags = std::string("\1\0\0\1\0\0\0", 7);
  file.keys["pattern"] = GgufArray("llama.attention.sliding_window_pattern", 7, 7, flags);
  EXPECT_EQ(file.Config().layers[0].window, WindowSize(24));
  EXPECT_EQ(file.Config().layers[1].window, kFullAttention);
  EXPECT_EQ(file.Config().layers[3].window, WindowSize(24));
  file.keys["pattern"] = GgufArray("llama.attention.sliding_window_pattern", 7, 6, flags.substr(1));
  EXPECT_THAT(file.Refusal(), HasSubstr("sliding_window_pattern is an array; it must be one flag"));

  std::string heads;
  for (const uint32_t number : {1, 2, 4, 1, 2, 4, 1}) heads += GgufNumber(number, 4);
  file = GgufFileWith("llama", "attention.head_count_kv",
                      GgufArray("llama.attention.head_count_kv", 4, 7, heads));
  EXPECT_EQ(file.Config().layers[1].num_kv_heads, 2u);
  EXPECT_EQ(file.Config().layers[5].num_kv_heads, 4u);
}

TEST(GgufConfigTest, RefusesWhatItCannotRunByTheKeysName) {
  const auto refusal = [](const std::string& key, const std::string& entry) {
    return GgufFileWith("llama", key, entry).Refusal();
  };
  const auto count = [&](const std::string& key, uint32_t value) {
    return refusal(key, GgufUint32("llama." + key, value));
  };
  EXPECT_THAT(refusal("general.architecture", GgufString("general.architecture", "mamba")),
              HasSubstr("general.architecture is mamba"));
  EXPECT_THAT(refusal("general.architecture", ""), HasSubstr("ends within"));
  for (const auto& [key, entry] : GgufKeys("llama")) {
    if (key == "general.architecture" || key == "attention.value_length" ||
        key == "rope.dimension_count" || key == "attention.key_length" ||
        key == "attention.head_count_kv") {
      continue;
    }
    File file = {.keys = GgufKeys("llama")};
    file.keys.erase(key);
    EXPECT_THAT(file.Refusal(), HasSubstr("llama." + key + " is missing"));
  }
  EXPECT_THAT(count("block_count", 0), HasSubstr("llama.block_count is 0"));
  EXPECT_THAT(count("block_count", 1u << 30), HasSubstr("llama.block_count"));
  EXPECT_THAT(count("attention.head_count_kv", 3), HasSubstr("a divisor of head_count 4"));
  EXPECT_THAT(count("attention.key_length", 31), HasSubstr("key_length is 31; it must be even"));
  EXPECT_THAT(count("attention.value_length", 16), HasSubstr("value_length is 16"));
  EXPECT_THAT(count("rope.dimension_count", 16), HasSubstr("rope.dimension_count is 16"));
  EXPECT_THAT(count("expert_count", 8), HasSubstr("llama.expert_count is 8; it must be absent"));
  EXPECT_THAT(refusal("logit_scale", GgufFloat32("llama.logit_scale", 0.5f)),
              HasSubstr("llama.logit_scale is 0.5; it must be absent"));
  EXPECT_THAT(refusal("scaling", GgufString("llama.rope.scaling.type", "longrope")),
              HasSubstr("llama.rope.scaling.type is longrope"));
  EXPECT_THAT(refusal("base", GgufFloat32("llama.rope.freq_base", -1)),
              HasSubstr("rope.freq_base"));
  EXPECT_THAT(refusal("base", GgufString("llama.rope.freq_base", "x")), HasSubstr("is x; it must"));
  EXPECT_THAT(refusal("eos", GgufUint32("tokenizer.ggml.eos_token_id", 8)),
              HasSubstr("tokenizer.ggml.eos_token_id is not a token"));
  EXPECT_THAT(refusal("split", GgufUint32("split.count", 2)), HasSubstr("split.count"));
}

TEST(GgufConfigTest, RefusesTensorsThatTheConfigurationNeedsOtherwise) {
  File file = {.keys = GgufKeys("llama")};
  file.tensors = {};
  EXPECT_THAT(file.Refusal(), HasSubstr("has no tensor token_embd.weight"));
  file.tensors = {{"token_embd.weight", {64}, 0, 0}};
  EXPECT_THAT(file.Refusal(),
              HasSubstr("token_embd.weight is not a matrix with one row per token"));
  file.tensors = {{"token_embd.weight", {64, 8}, 0, 0}, {"rope_freqs.weight", {16}, 0, 2048}};
  EXPECT_THAT(file.Refusal(), HasSubstr("rope_freqs.weight is not [16] numbers from 1 on"));
  file.tensors[1].dimensions = {15};
  EXPECT_THAT(file.Refusal(), HasSubstr("rope_freqs.weight is not [16] numbers from 1 on"));
}

// Without a key, llama.cpp's rules for the architecture.
TEST(GgufConfigTest, ReadsExperts) {
  File file;
  const auto add = [&](const std::string& architecture) {
    file.keys = GgufKeys(architecture);
    const std::map<std::string, uint32_t> counts = {
        {"expert_count", 8}, {"expert_used_count", 3}, {"expert_feed_forward_length", 96}};
    for (const auto& [key, value] : counts) {
      file.keys[key] = GgufUint32(architecture + "." + key, value);
    }
  };
  add("qwen3moe");
  const ModelConfig qwen = file.Config();
  EXPECT_EQ(qwen.architecture, "Qwen3MoeForCausalLM");
  EXPECT_TRUE(qwen.query_key_norm);
  const ExpertsConfig of_qwen = {
      .count = 8, .chosen = 3, .intermediate_size = 96, .normalize = true};
  EXPECT_EQ(qwen.experts, of_qwen);
  EXPECT_TRUE(qwen.layers[0].has_experts && qwen.layers[6].has_experts);
  file.keys["scale"] = GgufFloat32("qwen3moe.expert_weights_scale", 2.5f);
  EXPECT_EQ(file.Config().experts->scale, 2.5f);
  file.keys["gating"] = GgufUint32("qwen3moe.expert_gating_func", 2);
  EXPECT_THAT(file.Refusal(), HasSubstr("expert_gating_func is 2"));
  add("qwen3moe");
  file.keys["expert_used_count"] = GgufUint32("qwen3moe.expert_used_count", 9);
  EXPECT_THAT(file.Refusal(), HasSubstr("at most the 8 experts"));
  file.keys.erase("expert_used_count");
  EXPECT_THAT(file.Refusal(), HasSubstr("expert_used_count"));

  add("gpt-oss");
  file.keys.erase("feed_forward_length");
  file.keys["window"] = GgufUint32("gpt-oss.attention.sliding_window", 128);
  const ModelConfig gpt = file.Config();
  EXPECT_EQ(gpt.architecture, "GptOssForCausalLM");
  EXPECT_TRUE(gpt.attention_sinks && gpt.attention_bias && gpt.output_bias);
  EXPECT_TRUE(gpt.experts->has_bias);
  EXPECT_FALSE(gpt.experts->normalize);
  EXPECT_EQ(gpt.experts->scores, ExpertsConfig::Scores::kSoftmaxOfChosen);
  EXPECT_EQ(gpt.activation, Activation::kClampedSilu);
  EXPECT_EQ(gpt.activation_limit, 7.0f);
  EXPECT_EQ(gpt.layers[0].window, WindowSize(128));
  EXPECT_EQ(gpt.layers[1].window, kFullAttention);
}

TEST(GgufConfigTest, ReadsYarn) {
  File file;
  file.keys = GgufKeys("qwen3");
  file.keys["scaling"] = GgufString("qwen3.rope.scaling.type", "yarn");
  EXPECT_THAT(file.Refusal(), HasSubstr("rope.scaling.factor"));
  file.keys["factor"] = GgufFloat32("qwen3.rope.scaling.factor", 4.0f);
  file.keys["original"] = GgufUint32("qwen3.rope.scaling.original_context_length", 1024);
  const RotaryConfig rotary = file.Config().rotaries[0];
  EXPECT_EQ(rotary.scaling, RotaryConfig::Scaling::kYarn);
  EXPECT_EQ(rotary.factor, 4.0f);
  EXPECT_EQ(rotary.original_max_position_embeddings, 1024u);
  EXPECT_EQ(rotary.beta_fast, 32.0f);
  EXPECT_TRUE(rotary.truncate);
  EXPECT_FLOAT_EQ(rotary.attention_factor, 0.1f * std::log(4.0f) + 1.0f);
  file.keys["fast"] = GgufFloat32("qwen3.rope.scaling.yarn_beta_fast", 16.0f);
  EXPECT_EQ(file.Config().rotaries[0].beta_fast, 16.0f);
  file.keys["ext"] = GgufFloat32("qwen3.rope.scaling.yarn_ext_factor", 0.5f);
  EXPECT_THAT(file.Refusal(), HasSubstr("yarn_ext_factor is 0.5"));
}

}  // namespace
}  // namespace pagoda
