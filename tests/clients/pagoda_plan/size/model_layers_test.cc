#include "clients/pagoda_plan/size/model_layers.h"

#include <fstream>
#include <string>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pools/sizing.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ModelLayers> ReadConfig(const std::string& json) {
  const TempDirectory directory;
  std::ofstream(directory.File("config.json")) << json;
  return ReadModelLayers(directory.path());
}

ModelLayers Require(const absl::StatusOr<ModelLayers>& model) {
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : ModelLayers();
}

std::string Refusal(const absl::StatusOr<ModelLayers>& model, Reason reason) {
  EXPECT_EQ(ReasonOf(model.status()), reason) << model.status();
  return std::string(model.status().message());
}

uint64_t TokenBytes(const ModelLayers& model) {
  const auto layout = CacheLayout::Create({.layers = model.layers});
  EXPECT_TRUE(layout.ok()) << layout.status();
  return BytesPerToken(*layout);
}

std::string Windows(const ModelLayers& model) {
  std::string windows;
  for (const LayerSpec& layer : model.layers) {
    windows += layer.window == kFullAttention ? "f" : "w";
  }
  return windows;
}

TEST(ModelLayersTest, NumbersSayGroupsOfLayers) {
  const ModelLayers model = Require(ParseModelLayers("2x16x128@1024,1x4x64,1x1x576k"));
  ASSERT_EQ(model.layers.size(), 4u);
  EXPECT_EQ(model.layers[1], (LayerSpec{.window = WindowSize(1024),
                                        .num_kv_heads = 16,
                                        .head_dim = 128,
                                        .dtype = DType::kBFloat16}));
  EXPECT_EQ(model.layers[2].window, kFullAttention);
  EXPECT_EQ(model.layers[2].num_kv_heads, 4u);
  EXPECT_EQ(model.layers[3].kind, KvKind::kKeyOnly);
  EXPECT_EQ(model.layers[3].head_dim, 576u);
  EXPECT_EQ(DescribeLayers(model.layers),
            "2 layers of 16 x 128 in a window of 1,024 tokens, 1 layer of 4 x 64, "
            "1 layer of 1 x 576, K only");
}

TEST(ModelLayersTest, BadNumbersAreNamed) {
  for (const char* text :
       {"", "36", "36x8", "36x8x128x2", "0x8x128", "1025x8x128", "ax8x128", "36x8x128@",
        "36x8x128@0", "36x8x128@1@2", "36x8x128,", "36x8x128kk", "-1x8x128"}) {
    EXPECT_THAT(Refusal(ParseModelLayers(text), Reason::kInvalidArgument),
                HasSubstr("LAYERSxHEADSxDIM"))
        << text;
  }
  EXPECT_THAT(Refusal(ParseModelLayers("1x1x1,2y2"), Reason::kInvalidArgument),
              HasSubstr("\"2y2\""));
}

TEST(ModelLayersTest, PresetsHaveTheirPublishedSizes) {
  const auto kib = [](const char* name) {
    return static_cast<double>(TokenBytes(Require(PresetModelLayers(name)))) / 1024;
  };
  EXPECT_EQ(kib("qwen3-8b"), 144);
  EXPECT_EQ(kib("llama-3.1-8b"), 128);
  EXPECT_EQ(kib("llama-3.1-70b"), 320);
  EXPECT_EQ(kib("gemma-3-27b"), 496);
  EXPECT_EQ(kib("deepseek-v3"), 68.625);
  EXPECT_EQ(kib("gpt-oss-20b"), 48);
  for (const std::string& name : PresetNames()) {
    EXPECT_EQ(Require(PresetModelLayers(name)).name, name);
  }
  EXPECT_THAT(Refusal(PresetModelLayers("qwen4"), Reason::kInvalidArgument), HasSubstr("qwen3-8b"));
}

TEST(ModelLayersTest, ACheckpointOfTheBundledEngineIsRead) {
  const ModelLayers model = Require(ReadModelLayers(GOLDEN_MODEL));
  EXPECT_EQ(model.name, "qwen3_tiny");
  EXPECT_EQ(DescribeLayers(model.layers), "2 layers of 2 x 32");
  EXPECT_EQ(model.layers[0].dtype, DType::kFloat32);
  EXPECT_EQ(Require(ReadModelLayers(std::string(GOLDEN_MODEL) + "/")).name, "qwen3_tiny");
}

TEST(ModelLayersTest, HeadsAndTheirSizeFollowFromOthersWhereTheyAreLeftOut) {
  const ModelLayers model =
      Require(ReadConfig(R"({"num_hidden_layers": 2, "num_attention_heads": 16, "hidden_size": 1024,
                     "torch_dtype": "float16"})"));
  EXPECT_EQ(DescribeLayers(model.layers), "2 layers of 16 x 64");
  EXPECT_EQ(model.layers[0].dtype, DType::kFloat16);
}

TEST(ModelLayersTest, LatentAttentionCachesOneHead) {
  const ModelLayers model =
      Require(ReadConfig(R"({"num_hidden_layers": 61, "num_attention_heads": 128,
                             "kv_lora_rank": 512, "qk_rope_head_dim": 64})"));
  EXPECT_EQ(DescribeLayers(model.layers), "61 layers of 1 x 576, K only");
}

constexpr char kShape[] = R"("num_hidden_layers": 6, "num_attention_heads": 4, "head_dim": 8, )";

TEST(ModelLayersTest, SlidingWindowsAreWhereTheConfigSays) {
  const auto windows = [](const std::string& fields) {
    return Windows(Require(ReadConfig(std::string("{") + kShape + fields + "}")));
  };
  EXPECT_EQ(windows(R"("sliding_window": null)"), "ffffff");
  EXPECT_EQ(windows(R"("sliding_window": 9)"), "wwwwww");
  EXPECT_EQ(windows(R"("sliding_window": 9, "use_sliding_window": false)"), "ffffff");
  EXPECT_EQ(windows(R"("sliding_window": 9, "use_sliding_window": true, "max_window_layers": 4)"),
            "ffffww");
  EXPECT_EQ(windows(R"("sliding_window": 9, "sliding_window_pattern": 3)"), "wwfwwf");
  EXPECT_EQ(windows(R"("sliding_window": 9, "model_type": "gemma2")"), "wfwfwf");
  EXPECT_EQ(windows(R"("sliding_window": 9, "model_type": "gemma3_text")"), "wwwwwf");
  EXPECT_EQ(windows(R"("sliding_window": 9, "layer_types": ["sliding_attention",
      "full_attention", "full_attention", "sliding_attention", "full_attention",
      "full_attention"])"),
            "wffwff");
}

TEST(ModelLayersTest, AMultimodalModelIsItsTextPart) {
  const ModelLayers model = Require(ReadConfig(
      R"({"num_hidden_layers": 99, "text_config": {"num_hidden_layers": 3,
          "num_attention_heads": 4, "head_dim": 8}})"));
  EXPECT_EQ(model.layers.size(), 3u);
}

TEST(ModelLayersTest, WhatIsMissingOrUnknownIsNamed) {
  const auto refusal = [](const std::string& json) {
    return Refusal(ReadConfig(json), Reason::kInvalidCheckpoint);
  };
  const std::string shape = kShape;
  EXPECT_THAT(refusal("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(refusal("{"), HasSubstr("JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("num_hidden_layers is missing"));
  EXPECT_THAT(refusal(R"({"num_hidden_layers": -1})"), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal(R"({"num_hidden_layers": 100000, "num_attention_heads": 1, "head_dim": 1})"),
              HasSubstr("above 1024"));
  EXPECT_THAT(refusal(R"({"num_hidden_layers": 1})"), HasSubstr("num_attention_heads"));
  EXPECT_THAT(refusal(R"({"num_hidden_layers": 1, "kv_lora_rank": 512})"),
              HasSubstr("qk_rope_head_dim"));
  EXPECT_THAT(refusal("{" + shape + R"("layer_types": ["full_attention"]})"),
              HasSubstr("each layer"));
  EXPECT_THAT(refusal(R"({"num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 8,
                          "layer_types": ["linear_attention"]})"),
              HasSubstr("linear_attention"));
  EXPECT_THAT(refusal(R"({"num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 8,
                          "layer_types": ["sliding_attention"]})"),
              HasSubstr("sliding_window is missing"));
  EXPECT_THAT(Refusal(ReadModelLayers("/nonexistent"), Reason::kInvalidCheckpoint),
              HasSubstr("/nonexistent/config.json"));
}

}  // namespace
}  // namespace pagoda
