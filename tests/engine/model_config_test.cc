#include "engine/checkpoint/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pools/error.h"
#include "tests/engine/golden.h"
#include "tests/engine/scratch_model.h"

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

// As transformers before version 5 wrote it, and the published checkpoints still have it.
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
      {"architectures", {"LlamaForCausalLM"}},
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
      {"head_dim", 31},
      {"head_dim", json::array({32})},
      {"max_position_embeddings", 0},
      {"rms_norm_eps", 0},
      {"rms_norm_eps", nullptr},
      {"tie_word_embeddings", "yes"},
      {"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e6}}},
      {"rope_parameters", 7},
      {"rope_parameters", {{"rope_theta", -1}, {"rope_type", "default"}}},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}},
      {"rope_scaling", {{"type", "yarn"}}},
      {"rope_scaling", {{"type", "yarn"}, {"rope_type", "default"}}},
      {"rope_scaling", {{"type", "default"}, {"factor", 4.0}}},
      {"rope_scaling", {{"type", nullptr}}},
      {"rope_scaling", {{"rope_theta", 1e6}}},
      {"rope_scaling", json::object()},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"use_sliding_window", true},
      {"layer_types", {"full_attention", "sliding_attention"}},
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
  const absl::Status status = LoadWith([](json& c) { c.erase("rope_parameters"); }).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("rope_theta is missing"));
}

// Files from before transformers 4.43 call a rotary embedding's rope_type `type`.
TEST(ModelConfigTest, ReadsTheOlderNameOfTheRotaryType) {
  const auto load_with = [](const json& rope_scaling) {
    return LoadWith([&](json& config) { config["rope_scaling"] = rope_scaling; });
  };
  const absl::StatusOr<ModelConfig> plain = load_with({{"type", "default"}, {"factor", nullptr}});
  EXPECT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(std::string(load_with({{"type", "yarn"}}).status().message()),
              HasSubstr("rope_scaling.type is \"yarn\"; it must be \"default\""));
  EXPECT_THAT(std::string(load_with({{"type", "default"}, {"factor", 4.0}}).status().message()),
              HasSubstr("rope_scaling.factor is 4.0; it must be absent"));
}

TEST(ModelConfigTest, RefusesAFileThatIsNoConfig) {
  const ScratchModel model(kTinyModel);
  for (const std::string& content :
       {std::string("[]"), std::string("{"), std::string("\xff"), std::string(1 << 20, '[')}) {
    model.Write("config.json", content);
    EXPECT_EQ(ReasonOf(LoadModelConfig(model.dir()).status()), Reason::kInvalidCheckpoint);
  }
  const absl::Status missing = LoadModelConfig(model.dir() + "/nowhere").status();
  EXPECT_EQ(ReasonOf(missing), Reason::kInvalidCheckpoint);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("nowhere/config.json: No such file"));
}

}  // namespace
}  // namespace pagoda
