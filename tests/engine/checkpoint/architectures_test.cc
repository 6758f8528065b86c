// The options of mixtures of experts, latent attention, sinks, partial rotary embeddings and ALiBi.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/model_config.h"
#include "tests/engine/checkpoint/config_reading.h"
#include "tests/engine/fixtures/golden.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using Scores = ExpertsConfig::Scores;
using GroupRating = ExpertsConfig::GroupRating;
using Pairs = RotaryConfig::Pairs;

std::vector<bool> LayersWithExperts(const ModelConfig& config) {
  std::vector<bool> layers;
  for (const LayerConfig& layer : config.layers) layers.push_back(layer.has_experts);
  return layers;
}

TEST(ArchitecturesTest, ReadsPhi3) {
  const ModelConfig config = Load("phi3_tiny");
  EXPECT_EQ(config.head_dim, 16u);
  EXPECT_EQ(RotaryDim(config.rotaries[0], config.head_dim), 8u);
  EXPECT_EQ(RotaryFrequencies(config.rotaries[0], config.head_dim).size(), 4u);
  EXPECT_EQ(config.layers[0].window, kFullAttention);
  for (const double part : {1.5, 1e30}) {
    EXPECT_THAT(Refusal("phi3_tiny", "partial_rotary_factor", part), HasSubstr("at most 1"));
  }
}

TEST(ArchitecturesTest, ReadsQwen3Moe) {
  const ModelConfig config = Load("qwen3_moe_tiny");
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(false, true, true));
  const ExpertsConfig expected = {.count = 6,
                                  .chosen = 2,
                                  .intermediate_size = 48,
                                  .scores = Scores::kSoftmax,
                                  .normalize = true};
  EXPECT_EQ(config.experts, expected);
  const ModelConfig sparse = LoadEdited("qwen3_moe_tiny", [](json& c) {
    c["mlp_only_layers"] = json::array();
    c["decoder_sparse_step"] = 2;
  });
  EXPECT_THAT(LayersWithExperts(sparse), ElementsAre(false, true, false));
  EXPECT_THAT(Refusal("qwen3_moe_tiny", "num_experts_per_tok", 7), HasSubstr("at most the 6"));
  EXPECT_THAT(Refusal("qwen3_moe_tiny", "mlp_only_layers", 1), HasSubstr("a list of layers"));
}

TEST(ArchitecturesTest, ReadsDeepseekV3) {
  const ModelConfig config = Load("deepseek_v3_tiny");
  const LatentAttentionConfig latent = {
      .query_rank = 40, .latent_dim = 24, .plain_dim = 16, .rotary_dim = 8, .value_dim = 12};
  EXPECT_EQ(config.latent, latent);
  EXPECT_EQ(config.head_dim, 32u) << "a key: the latent and what is rotated";
  for (const LayerConfig& layer : config.layers) {
    EXPECT_EQ(layer.kind, KvKind::kKeyOnly);
    EXPECT_EQ(layer.num_kv_heads, 1u);
    EXPECT_EQ(layer.value_dim, 24u);
  }
  EXPECT_EQ(config.rotaries[0].pairs, Pairs::kNeighbours);
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(false, true, true));
  const ExpertsConfig expected = {.count = 8,
                                  .chosen = 3,
                                  .intermediate_size = 48,
                                  .shared_intermediate_size = 48,
                                  .scores = Scores::kSigmoid,
                                  .normalize = true,
                                  .scale = 1.5f,
                                  .groups = 4,
                                  .chosen_groups = 2,
                                  .group_rating = GroupRating::kSumOfBestTwo,
                                  .has_correction = true};
  EXPECT_EQ(config.experts, expected);
  // mscale_all_dim is 1: YaRN's scale is 0.1 ln(8) + 1, and scores take its square.
  const double scale = 0.1 * std::log(8.0) + 1;
  EXPECT_THAT(config.query_scale, FloatEq(static_cast<float>(scale * scale / std::sqrt(24.0))));
}

TEST(ArchitecturesTest, ReadsDeepseekV2) {
  const ModelConfig config = Load("deepseek_v2_tiny");
  EXPECT_EQ(config.latent->query_rank, 0u) << "null: queries come from the hidden state";
  EXPECT_EQ(config.experts->scores, Scores::kSoftmax);
  EXPECT_EQ(config.experts->group_rating, GroupRating::kBest);
  EXPECT_EQ(config.experts->shared_intermediate_size, 96u);
  EXPECT_FALSE(config.experts->normalize);
  const ModelConfig greedy =
      LoadEdited("deepseek_v2_tiny", [](json& c) { c["topk_method"] = "greedy"; });
  EXPECT_EQ(greedy.experts->groups, 1u);
}

TEST(ArchitecturesTest, RefusesWhatDeepseekCannotBe) {
  for (const char* name : {"deepseek_v2_tiny", "deepseek_v3_tiny"}) {
    EXPECT_THAT(Refusal(name, "n_group", 3), HasSubstr("a divisor"));
    EXPECT_THAT(Refusal(name, "topk_group", 5), HasSubstr("from 1 to n_group"));
    EXPECT_THAT(Refusal(name, "topk_group", 1), HasSubstr("large enough"));
    EXPECT_THAT(Refusal(name, "qk_rope_head_dim", 7), HasSubstr("even"));
    EXPECT_THAT(Refusal(name, "topk_method", "random"), HasSubstr("must be"));
    EXPECT_THAT(Refusal(name, "scoring_func", "tanh"), HasSubstr("must be"));
    EXPECT_THAT(Refusal(name, "moe_layer_freq", 2), HasSubstr("must be 1"));
    EXPECT_THAT(Refusal(name, "quantization_config", {{"quant_method", "fp8"}}),
                HasSubstr("not supported"));
  }
  EXPECT_THAT(Refusal("deepseek_v3_tiny", "n_group", 8), HasSubstr("at most half"));
}

TEST(ArchitecturesTest, ReadsGptOss) {
  const ModelConfig config = Load("gpt_oss_tiny");
  EXPECT_TRUE(config.attention_sinks);
  EXPECT_EQ(config.layers[0].window, WindowSize(20));
  EXPECT_EQ(config.layers[1].window, kFullAttention);
  EXPECT_EQ(config.layers[2].window, WindowSize(20));
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(true, true, true));
  EXPECT_EQ(config.experts->scores, Scores::kSoftmaxOfChosen);
  EXPECT_TRUE(config.experts->has_bias);
  EXPECT_EQ(config.activation, Activation::kClampedSilu);
  EXPECT_EQ(config.activation_limit, 2.0f);
  EXPECT_EQ(config.activation_alpha, 1.702f);
  EXPECT_THAT(Refusal("gpt_oss_tiny", "num_experts_per_tok", 6), HasSubstr("at most the 5"));
}

// The same numbers in another form are another model only if the weights differ.
TEST(ArchitecturesTest, FingerprintsOfMxfp4CoverTheExperts) {
  const auto fingerprint = [](const ScratchModel& model) {
    return Checkpoint::Open(model.dir())->Fingerprint(*LoadModelConfig(model.dir()));
  };
  const ScratchModel model("gpt_oss_tiny_mxfp4");
  const std::string before = fingerprint(model);
  std::string bytes = model.Read("model.safetensors");
  const size_t header = 8 + static_cast<unsigned char>(bytes[0]) +
                        256 * static_cast<size_t>(static_cast<unsigned char>(bytes[1]));
  const json tensors = json::parse(bytes.substr(8, header - 8));
  for (const char* name : {"model.layers.0.mlp.experts.gate_up_proj_blocks",
                           "model.layers.1.mlp.experts.down_proj_scales"}) {
    std::string changed = bytes;
    changed[header + tensors[name]["data_offsets"][0].get<size_t>()] ^= 1;
    model.Write("model.safetensors", changed);
    EXPECT_NE(fingerprint(model), before) << name;
  }
}

TEST(ArchitecturesTest, ReadsBloom) {
  const ModelConfig config = Load("bloom_tiny");
  EXPECT_EQ(config.num_heads, 6u);
  EXPECT_EQ(config.layers.size(), 3u);
  EXPECT_EQ(config.layers[0].num_kv_heads, 6u);
  EXPECT_EQ(config.intermediate_size, 384u);
  EXPECT_TRUE(config.alibi);
  EXPECT_TRUE(config.rotaries.empty());
  EXPECT_THAT(Refusal("bloom_tiny", "apply_residual_connection_post_layernorm", true),
              HasSubstr("must be false"));
}

// Press et al.: powers of two for 8 heads; for 6 heads those of 4, then every other one of 8.
TEST(ArchitecturesTest, AlibiSlopesAreThoseOfThePaper) {
  EXPECT_THAT(AlibiSlopes(8), ElementsAre(0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f,
                                          0.0078125f, 0.00390625f));
  EXPECT_THAT(AlibiSlopes(6), ElementsAre(0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f));
  EXPECT_THAT(AlibiSlopes(1), ElementsAre(0.00390625f));
}

// Each option of the new architectures changes what K and V are.
TEST(ArchitecturesTest, EveryOptionIsInTheFingerprint) {
  struct Case {
    const char* model;
    const char* field;
    json value;
  };
  const Case cases[] = {
      {"phi3_tiny", "rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}},
      {"qwen3_moe_tiny", "norm_topk_prob", false},
      {"qwen3_moe_tiny", "num_experts_per_tok", 3},
      {"deepseek_v3_tiny", "routed_scaling_factor", 1.0},
      {"deepseek_v3_tiny", "topk_group", 4},
      {"deepseek_v3_tiny", "rope_interleave", false},
      {"gpt_oss_tiny", "swiglu_limit", 3.0},
      {"gpt_oss_tiny", "swiglu_alpha", 1.5},
      {"gpt_oss_tiny", "sliding_window", 21},
      {"bloom_tiny", "layer_norm_epsilon", 0.1},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(GoldenDir(c.model));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const ModelConfig edited = LoadEdited(c.model, [&](json& f) { f[c.field] = c.value; });
    EXPECT_NE(checkpoint->Fingerprint(edited), checkpoint->Fingerprint(Load(c.model)))
        << c.model << " " << c.field;
  }
}

}  // namespace
}  // namespace pagoda
