#include "engine/checkpoint/config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/engine/checkpoint/config_reading.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<ModelConfig> LoadWith(const ScratchModel::Edit& edit) {
  const ScratchModel model(kTinyModel);
  model.EditJson("config.json", edit);
  return LoadModelConfig(model.dir());
}

std::vector<WindowSize> Windows(const ModelConfig& config) {
  std::vector<WindowSize> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  return windows;
}

TEST(ModelConfigTest, ReadsTheTinyModel) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(GoldenDir(kTinyModel));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config->vocab_size, 512u);
  EXPECT_EQ(config->hidden_size, 64u);
  EXPECT_EQ(config->intermediate_size, 128u);
  EXPECT_EQ(config->layers.size(), 2u);
  EXPECT_EQ(config->num_heads, 4u);
  EXPECT_EQ(config->layers[0].num_kv_heads, 2u);
  EXPECT_EQ(config->head_dim, 32u);
  EXPECT_EQ(config->max_position_embeddings, 4096u);
  EXPECT_EQ(config->rms_norm_eps, 1e-6f);
  EXPECT_EQ(config->rotaries[0].theta, 1e6f);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
}

// This form is written by transformers before version 5, and is that of the published checkpoints.
TEST(ModelConfigTest, ReadsTheOlderForm) {
  const absl::StatusOr<ModelConfig> config = LoadWith([](json& c) {
    c.erase("rope_parameters");
    c.erase("layer_types");
    c["rope_theta"] = 5000;
    c["rope_scaling"] = nullptr;
    c["torch_dtype"] = "bfloat16";
    c["eos_token_id"] = {7, 9};
  });
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rotaries[0].theta, 5000.0f);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(7, 9));
}

TEST(ModelConfigTest, RefusesWhatItCannotRunByTheFieldsName) {
  struct Case {
    const char* field;
    json value;
  };
  const Case cases[] = {
      {"architectures", {"MixtralForCausalLM"}},
      {"architectures", {"Qwen3ForCausalLM", "LlamaForCausalLM"}},
      {"architectures", nullptr},
      {"vocab_size", nullptr},
      {"vocab_size", 0},
      {"vocab_size", -1},
      {"vocab_size", 4294967296},
      {"hidden_size", "64"},
      {"intermediate_size", 1.5},
      {"num_hidden_layers", 1000000},
      {"num_attention_heads", 0},
      {"num_key_value_heads", 3},
      {"num_key_value_heads", json::array({2, 1})},  // Only PagodaQwen3ForCausalLM has a list.
      {"head_dim", 31},
      {"head_dim", json::array({32})},
      {"max_position_embeddings", 0},
      {"rms_norm_eps", 0},
      {"rms_norm_eps", nullptr},
      {"tie_word_embeddings", "yes"},
      {"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e6}}},
      {"rope_parameters", 7},
      {"rope_parameters", {{"rope_theta", -1}, {"rope_type", "default"}}},
      {"rope_parameters",
       {{"rope_theta", 1e4}, {"rope_type", "default"}, {"partial_rotary_factor", 0.5}}},
      {"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}},
      {"rope_scaling", {{"rope_type", "linear"}}},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"beta_fast", 32}}},
      {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}},
      {"rope_scaling", {{"rope_type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}}},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}},
      {"rope_scaling",
       {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 0.5}}},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"beta_fast", 0}}},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"low_freq_factor", 1}}},
      {"rope_scaling", {{"type", "yarn"}}},
      {"rope_scaling", {{"type", "yarn"}, {"rope_type", "default"}}},
      {"rope_scaling", {{"type", "default"}, {"factor", 4.0}}},
      {"rope_scaling", {{"type", nullptr}}},
      {"rope_scaling", {{"rope_theta", 1e6}}},
      {"rope_scaling", json::object()},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"use_bidirectional_attention", true},
      {"use_sliding_window", "yes"},
      {"layer_types", {"full_attention", "sliding_attention"}},
      {"layer_types", {"full_attention", "chunked_attention"}},
      {"layer_types", {"full_attention"}},
      {"layer_types", "full_attention"},
      {"partial_rotary_factor", 0.5},
      {"quantization_config", {{"bits", 4}}},
      {"eos_token_id", 512},
      {"eos_token_id", {1, "x"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.field << " = " << c.value);
    const absl::Status status = LoadWith([&](json& config) { config[c.field] = c.value; }).status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("config.json: ") + c.field));
  }
}

// Each needs a model other than the tiny Qwen 3.
TEST(ModelConfigTest, RefusesOptionsOfOtherArchitectures) {
  EXPECT_THAT(Refusal("gemma3_tiny", "attn_logit_softcapping", 50.0),
              HasSubstr("it must be absent"));
  EXPECT_THAT(Refusal("gemma3_tiny", "use_bidirectional_attention", true),
              HasSubstr("it must be false"));
  EXPECT_THAT(Refusal("gemma3_tiny", "rope_local_base_freq", 0.5), HasSubstr("a number from 1 on"));
  EXPECT_THAT(Refusal("gemma3_tiny", "sliding_window", 0), HasSubstr("an integer from 1"));
  EXPECT_THAT(Refusal("gemma3_tiny", "hidden_activation", "gelu"), HasSubstr("gelu_pytorch_tanh"));
  EXPECT_THAT(Refusal("gemma2_tiny", "final_logit_softcapping", -1),
              HasSubstr("a positive number"));
  EXPECT_THAT(Refusal("mistral_tiny", "sliding_window", "24"), HasSubstr("an integer from 1"));
  EXPECT_THAT(Refusal("mistral_tiny", "layer_types",
                      {"full_attention", "full_attention", "full_attention"}),
              HasSubstr("the same in every layer"));
  for (const json& heads : {json::array({2, 1, 1}), json::array({2, 1, 1, 3}),
                            json::array({2, 1, 1, 0}), json::array({2, 1, 1, "2"})}) {
    EXPECT_THAT(Refusal("pagoda_qwen3_tiny", "num_key_value_heads", heads),
                HasSubstr("one number per layer"));
  }
  EXPECT_THAT(Refusal("llama3_tiny", "hidden_size", 63),
              HasSubstr("multiple of num_attention_heads"));
}

TEST(ModelConfigTest, ReadsMistral) {
  const ModelConfig config = Load("mistral_tiny");
  EXPECT_EQ(config.architecture, "MistralForCausalLM");
  for (const LayerConfig& layer : config.layers) {
    EXPECT_EQ(layer.window, WindowSize(24));
    EXPECT_EQ(layer.num_kv_heads, 2u);
  }
  const ModelConfig full =
      LoadEdited("mistral_tiny", [](json& c) { c["sliding_window"] = nullptr; });
  EXPECT_EQ(full.layers[0].window, kFullAttention);
  const ModelConfig silent = LoadEdited("mistral_tiny", [](json& c) { c.erase("sliding_window"); });
  EXPECT_EQ(silent.layers[0].window, WindowSize(4096));
}

TEST(ModelConfigTest, ReadsQwen2) {
  const ModelConfig config = Load("qwen2_tiny");
  EXPECT_TRUE(config.attention_bias);
  EXPECT_FALSE(config.query_key_norm);
  EXPECT_EQ(config.head_dim, 16u);  // hidden_size / num_attention_heads.
  EXPECT_EQ(config.layers[0].window, kFullAttention);
}

// Older files of Qwen name the first layer with a window instead of layer_types.
TEST(ModelConfigTest, ReadsQwensUpperLayersWithAWindow) {
  const ModelConfig config = LoadEdited("qwen2_tiny", [](json& c) {
    c.erase("layer_types");
    c["use_sliding_window"] = true;
    c["sliding_window"] = 64;
    c["max_window_layers"] = 2;
  });
  EXPECT_THAT(Windows(config), ElementsAre(kFullAttention, kFullAttention, WindowSize(64)));
  const ModelConfig all = LoadEdited("qwen2_tiny", [](json& c) {
    c.erase("layer_types");
    c["use_sliding_window"] = true;
    c["sliding_window"] = 64;
    c["max_window_layers"] = 0;
  });
  EXPECT_THAT(Windows(all), ElementsAre(WindowSize(64), WindowSize(64), WindowSize(64)));
}

TEST(ModelConfigTest, ReadsALayersOwnKvHeads) {
  const ModelConfig config = Load("pagoda_qwen3_tiny");
  EXPECT_EQ(config.architecture, "PagodaQwen3ForCausalLM");
  std::vector<uint32_t> heads;
  for (const LayerConfig& layer : config.layers) heads.push_back(layer.num_kv_heads);
  EXPECT_THAT(heads, ElementsAre(2, 1, 1, 2));
  EXPECT_TRUE(config.query_key_norm);
}

TEST(ModelConfigTest, ReadsGemma3) {
  const ModelConfig config = Load("gemma3_tiny");
  EXPECT_THAT(Windows(config), ElementsAre(WindowSize(20), kFullAttention, WindowSize(20)));
  ASSERT_EQ(config.rotaries.size(), 2u);
  const RotaryConfig& full = config.rotaries[config.layers[1].rotary];
  EXPECT_EQ(full.theta, 1e6f);
  EXPECT_EQ(full.scaling, RotaryConfig::Scaling::kLinear);
  EXPECT_EQ(full.factor, 8.0f);
  EXPECT_EQ(config.rotaries[config.layers[0].rotary], RotaryConfig{.theta = 1e4f});
  EXPECT_EQ(config.layers[2].rotary, config.layers[0].rotary);
  EXPECT_FLOAT_EQ(config.query_scale, 1.0f / std::sqrt(24.0f));
  EXPECT_EQ(config.embedding_scale, 9.8125f);  // The root of 96 in bf16.
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.norm_weight_plus_one);
  EXPECT_TRUE(config.post_norms);
  EXPECT_TRUE(config.query_key_norm);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.attention_soft_cap, 0.0f);
  EXPECT_EQ(config.final_soft_cap, 0.0f);
  const ModelConfig fp32 = LoadEdited("gemma3_tiny", [](json& c) { c["dtype"] = "float32"; });
  EXPECT_FLOAT_EQ(fp32.embedding_scale, std::sqrt(96.0f));
}

// This form is written by transformers 4.50. The fields that it leaves out are absent.
TEST(ModelConfigTest, ReadsGemma3sOlderForm) {
  const ModelConfig config = LoadEdited("gemma3_tiny", [](json& c) {
    for (const char* name :
         {"rope_parameters", "layer_types", "dtype", "tie_word_embeddings", "query_pre_attn_scalar",
          "hidden_activation", "rms_norm_eps", "max_position_embeddings", "sliding_window"}) {
      c.erase(name);
    }
    c["torch_dtype"] = "bfloat16";
    c["rope_theta"] = 500000;
    c["rope_local_base_freq"] = 1000;
    c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4}};
    c["sliding_window_pattern"] = 2;
  });
  EXPECT_THAT(Windows(config), ElementsAre(WindowSize(4096), kFullAttention, WindowSize(4096)));
  const RotaryConfig& full = config.rotaries[config.layers[1].rotary];
  EXPECT_EQ(full.theta, 500000.0f);
  EXPECT_EQ(full.factor, 4.0f);
  EXPECT_EQ(config.rotaries[config.layers[0].rotary], RotaryConfig{.theta = 1000.0f});
  EXPECT_EQ(config.query_scale, 1.0f / 16.0f);
  EXPECT_EQ(config.embedding_scale, 9.8125f);
  EXPECT_EQ(config.rms_norm_eps, 1e-6f);
  EXPECT_EQ(config.max_position_embeddings, 131072u);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(ModelConfigTest, ReadsGemma2) {
  const ModelConfig config = Load("gemma2_tiny");
  EXPECT_THAT(Windows(config), ElementsAre(WindowSize(32), kFullAttention));
  EXPECT_EQ(config.rotaries.size(), 1u);
  EXPECT_EQ(config.attention_soft_cap, 3.0f);
  EXPECT_EQ(config.final_soft_cap, 8.0f);
  EXPECT_FALSE(config.query_key_norm);
  const ModelConfig silent = LoadEdited("gemma2_tiny", [](json& c) {
    c.erase("attn_logit_softcapping");
    c.erase("layer_types");
    c["final_logit_softcapping"] = nullptr;
  });
  EXPECT_EQ(silent.attention_soft_cap, 50.0f);
  EXPECT_EQ(silent.final_soft_cap, 0.0f);
  EXPECT_THAT(Windows(silent), ElementsAre(WindowSize(32), kFullAttention));
}

TEST(ModelConfigTest, ReadsLlama3sRotaryOptionsInBothForms) {
  const RotaryConfig expected = {.theta = 5e5f,
                                 .scaling = RotaryConfig::Scaling::kLlama3,
                                 .factor = 8.0f,
                                 .low_freq_factor = 1.0f,
                                 .high_freq_factor = 4.0f,
                                 .original_max_position_embeddings = 64};
  EXPECT_THAT(Load("llama3_tiny").rotaries, ElementsAre(expected));
  const ModelConfig older = LoadEdited("llama3_tiny", [](json& c) {
    c["rope_scaling"] = c["rope_parameters"];
    c["rope_scaling"].erase("rope_theta");
    c.erase("rope_parameters");
    c["rope_theta"] = 500000.0;
  });
  EXPECT_THAT(older.rotaries, ElementsAre(expected));
}

// Defaults of config.json are those of transformers.
TEST(ModelConfigTest, TakesDefaults) {
  const auto without = [](const char* model, std::vector<std::string> names) {
    return LoadEdited(model, [&](json& config) {
      for (const std::string& name : names) config.erase(name);
    });
  };
  const ModelConfig qwen3 =
      without("qwen3_tiny", {"rope_parameters", "head_dim", "rms_norm_eps", "tie_word_embeddings",
                             "max_position_embeddings", "hidden_act", "layer_types"});
  EXPECT_EQ(qwen3.rotaries[0].theta, 10000.0f);
  EXPECT_EQ(qwen3.head_dim, 128u);
  EXPECT_EQ(qwen3.rms_norm_eps, 1e-6f);
  EXPECT_FALSE(qwen3.tie_word_embeddings);
  EXPECT_EQ(qwen3.max_position_embeddings, 32768u);
  EXPECT_EQ(qwen3.activation, Activation::kSilu);
  const ModelConfig llama = without("llama3_tiny", {"head_dim", "num_key_value_heads"});
  EXPECT_EQ(llama.head_dim, 16u);
  EXPECT_EQ(llama.layers[0].num_kv_heads, 4u);
}

// transformers' values, which are exact except for the last bits.
TEST(ModelConfigTest, RotaryFrequenciesAreThoseOfTransformers) {
  std::ifstream file(GoldenDir("rotary.json"));
  const json cases = json::parse(file);
  ASSERT_EQ(cases.size(), 10u);
  int long_ones = 0;
  for (const json& c : cases) {
    SCOPED_TRACE(c["rope_parameters"].dump());
    const ModelConfig config = LoadEdited("llama3_tiny", [&](json& root) {
      root["rope_parameters"] = c["rope_parameters"];
      root["head_dim"] = c["head_dim"];
    });
    const std::vector<float> frequencies = RotaryFrequencies(config.rotaries[0], config.head_dim);
    ASSERT_EQ(frequencies.size(), c["frequencies"].size());
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const float expected = c["frequencies"][i].get<float>();
      EXPECT_NEAR(frequencies[i], expected, 5e-7f * expected) << i;
    }
    const std::vector<float> others =
        RotaryFrequencies(config.rotaries[0], config.head_dim, RotaryRange::kLong);
    const json& long_frequencies = c.contains("long_frequencies") ? c["long_frequencies"] : json();
    if (long_frequencies.is_null()) {
      EXPECT_EQ(others, frequencies);
    }
    for (size_t i = 0; i < long_frequencies.size(); ++i, ++long_ones) {
      const float expected = long_frequencies[i].get<float>();
      EXPECT_NEAR(others.at(i), expected, 5e-7f * expected) << i;
    }
    const float factor = c["attention_factor"].get<float>();
    EXPECT_NEAR(config.rotaries[0].attention_factor, factor, 5e-7f * factor);
  }
  EXPECT_EQ(long_ones, 48);
}

// Files from before transformers 4.43 call a rotary embedding's rope_type `type`.
TEST(ModelConfigTest, ReadsTheOlderNameOfTheRotaryType) {
  const auto load_with = [](const json& rope_scaling) {
    return LoadWith([&](json& config) { config["rope_scaling"] = rope_scaling; });
  };
  const absl::StatusOr<ModelConfig> plain = load_with({{"type", "default"}, {"factor", nullptr}});
  EXPECT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(std::string(load_with({{"type", "dynamic"}}).status().message()),
              HasSubstr("rope_scaling.type is \"dynamic\"; it must be \"default\""));
  EXPECT_THAT(std::string(load_with({{"type", "default"}, {"factor", 4.0}}).status().message()),
              HasSubstr("rope_scaling.factor is 4.0; it must be absent"));
}

TEST(ModelConfigTest, RefusesAFileThatIsNoConfig) {
  const ScratchModel model(kTinyModel);
  for (const std::string& content :
       {std::string("[]"), std::string("{"), std::string("\xff"), std::string(1 << 20, '['),
        std::string("{\"a\": \"\xff\"}"), std::string(R"({"vocab_size": 1, "vocab_size": 2})")}) {
    model.Write("config.json", content);
    EXPECT_EQ(ReasonOf(LoadModelConfig(model.dir()).status()), Reason::kInvalidCheckpoint);
  }
  const absl::Status missing = LoadModelConfig(model.dir() + "/nowhere").status();
  EXPECT_EQ(ReasonOf(missing), Reason::kInvalidCheckpoint);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("nowhere/config.json: No such file"));
}

}  // namespace
}  // namespace pagoda
