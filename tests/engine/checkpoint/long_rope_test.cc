// LongRoPE in config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/model_config.h"
#include "tests/engine/checkpoint/config_reading.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using Scaling = RotaryConfig::Scaling;

constexpr char kModel[] = "phi3_longrope_tiny";

// The model's options with one of them changed; null removes it.
json Options(const std::string& key, const json& value) {
  json options = {{"rope_type", "longrope"},
                  {"rope_theta", 10000.0},
                  {"partial_rotary_factor", 0.75},
                  {"short_factor", {1, 1.1, 1.2, 1.3, 1.5, 1.7}},
                  {"long_factor", {1, 1.6, 3, 6, 12, 20}},
                  {"original_max_position_embeddings", 32}};
  options[key] = value;
  if (value.is_null()) options.erase(key);
  return options;
}

RotaryConfig RotaryWith(const std::string& key, const json& value) {
  return LoadEdited(kModel, [&](json& c) { c["rope_parameters"] = Options(key, value); })
      .rotaries[0];
}

// Why the model is refused, edited. Fails the test if it is not.
std::string RefusalOf(const ScratchModel::Edit& edit, const std::string& name = kModel) {
  const ScratchModel model(name);
  model.EditJson("config.json", edit);
  const absl::Status status = LoadModelConfig(model.dir()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
  return std::string(status.message());
}

std::string RefusalOf(const std::string& key, const json& value) {
  return RefusalOf([&](json& c) { c["rope_parameters"] = Options(key, value); });
}

TEST(LongRopeTest, ReadsPhi3) {
  const ModelConfig config = Load(kModel);
  const RotaryConfig& rotary = config.rotaries[0];
  EXPECT_EQ(rotary.scaling, Scaling::kLongRope);
  EXPECT_EQ(rotary.rotary_dim, 12u);
  EXPECT_EQ(rotary.original_max_position_embeddings, 32u);
  EXPECT_THAT(rotary.divisors, ElementsAre(1, 1.1f, 1.2f, 1.3f, 1.5f, 1.7f));
  EXPECT_THAT(rotary.long_divisors, ElementsAre(1, 1.6f, 3, 6, 12, 20));
  // 1,024 / 32 = 32 times as long.
  EXPECT_THAT(rotary.attention_factor, FloatEq(std::sqrt(2.0f)));
  EXPECT_EQ(RotaryRangeOf(config, 32), RotaryRange::kShort);
  EXPECT_EQ(RotaryRangeOf(config, 33), RotaryRange::kLong);
  EXPECT_EQ(RotaryRangeOf(Load("phi3_tiny"), 5000), RotaryRange::kShort);
}

TEST(LongRopeTest, ReadsTheFactorOfAttention) {
  EXPECT_THAT(RotaryWith("factor", 1024).attention_factor, FloatEq(std::sqrt(3.0f)));
  EXPECT_EQ(RotaryWith("factor", 0.5).attention_factor, 1.0f);
  EXPECT_EQ(RotaryWith("attention_factor", 1.25).attention_factor, 1.25f);
  const RotaryConfig shortened =
      LoadEdited(kModel, [](json& c) { c["max_position_embeddings"] = 32; }).rotaries[0];
  EXPECT_EQ(shortened.attention_factor, 1.0f);
}

// Files of Phi 3 from before transformers knew the name.
TEST(LongRopeTest, ReadsTheOlderNamesOfPhi3) {
  for (const char* name : {"su", "yarn", "longrope"}) {
    const ModelConfig config = LoadEdited(kModel, [&](json& c) {
      c["rope_scaling"] = {{"type", name},
                           {"short_factor", {1, 1, 1, 1, 1, 2}},
                           {"long_factor", {1, 1, 1, 1, 1, 8}}};
      c["rope_theta"] = 500.0;
      c["partial_rotary_factor"] = 0.75;
      c.erase("rope_parameters");
    });
    EXPECT_EQ(config.rotaries[0].scaling, Scaling::kLongRope) << name;
    EXPECT_EQ(config.rotaries[0].theta, 500.0f);
    EXPECT_EQ(config.rotaries[0].original_max_position_embeddings, 32u);
  }
  // The field of the whole file wins, and has a default.
  EXPECT_EQ(RotaryWith("original_max_position_embeddings", 64).original_max_position_embeddings,
            32u);
  const ModelConfig config =
      LoadEdited(kModel, [](json& c) { c.erase("original_max_position_embeddings"); });
  EXPECT_EQ(config.rotaries[0].original_max_position_embeddings, 4096u);
}

TEST(LongRopeTest, RefusesUnsoundFactors) {
  EXPECT_THAT(RefusalOf("short_factor", {1, 1, 1, 1, 1}), HasSubstr("6 numbers in short_factor"));
  EXPECT_THAT(RefusalOf("long_factor", {1, 1, 1, 1, 1, 1, 1}), HasSubstr("6 in long_factor"));
  EXPECT_THAT(RefusalOf("partial_rotary_factor", 0.5), HasSubstr("4 numbers in short_factor"));
  for (const json& factors :
       {json(nullptr), json(3), json({1, 1, 1, 1, 1, 0}), json({1, 1, 1, 1, 1, -2}),
        json({1, 1, 1, 1, 1, "x"}), json({1, 1, 1, 1, 1, 1e39}), json({1, 1, 1, 1, 1, 1e-9})}) {
    EXPECT_THAT(RefusalOf("long_factor", factors), HasSubstr("long_factor")) << factors;
  }
  EXPECT_THAT(RefusalOf("long_mscale", 1.2), HasSubstr("rope_parameters.long_mscale"));
  EXPECT_THAT(RefusalOf("factor", -1), HasSubstr("rope_parameters.factor"));
  EXPECT_THAT(RefusalOf("attention_factor", 0), HasSubstr("rope_parameters.attention_factor"));
  EXPECT_THAT(RefusalOf([](json& c) { c["original_max_position_embeddings"] = 1; }),
              HasSubstr("original_max_position_embeddings"));
  // Latent attention with it is unknown.
  json options = Options("partial_rotary_factor", nullptr);
  for (const char* name : {"short_factor", "long_factor"}) {
    options[name] = json(std::vector<int>(4, 2));
  }
  EXPECT_THAT(RefusalOf([&](json& c) { c["rope_parameters"] = options; }, "deepseek_v3_tiny"),
              HasSubstr("of another type than longrope"));
}

TEST(LongRopeTest, EveryFactorIsInTheFingerprint) {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(GoldenDir(kModel));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::string before = checkpoint->Fingerprint(Load(kModel));
  const std::pair<const char*, json> changes[] = {{"short_factor", {1, 1.1, 1.2, 1.3, 1.5, 1.8}},
                                                  {"long_factor", {1, 1.6, 3, 6, 12, 21}},
                                                  {"attention_factor", 1.5}};
  for (const auto& [key, value] : changes) {
    const json options = Options(key, value);
    const ModelConfig edited = LoadEdited(kModel, [&](json& c) { c["rope_parameters"] = options; });
    EXPECT_NE(checkpoint->Fingerprint(edited), before) << key;
  }
  const ModelConfig later =
      LoadEdited(kModel, [](json& c) { c["original_max_position_embeddings"] = 31; });
  EXPECT_NE(checkpoint->Fingerprint(later), before);
}

}  // namespace
}  // namespace pagoda
