// The files of LoRA adapters: what is read, and what is refused by name.
#include "engine/checkpoint/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/model_config.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kAll[] = "adapters/qwen3_all";
constexpr char kAttention[] = "adapters/qwen3_attention";
constexpr char kConfig[] = "adapter_config.json";
constexpr char kTensors[] = "adapter_model.safetensors";

std::vector<AdaptableModule> ModulesOf(const std::string& model) {
  const std::string dir = GoldenDir(model);
  return AdaptableModulesOf(Require(LoadModelConfig(dir)), Require(Checkpoint::Open(dir)));
}

std::vector<std::string> NamesOf(const std::vector<AdaptableModule>& modules) {
  std::vector<std::string> names;
  for (const AdaptableModule& module : modules) names.push_back(module.name);
  return names;
}

// Changes the header of the tensors' file.
void EditTensors(const ScratchModel& folder, const ScratchModel::Edit& edit) {
  const std::string content = folder.Read(kTensors);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(content[i]);
  json header = json::parse(content.substr(8, length));
  edit(header);
  folder.Write(kTensors, SafetensorsContent(header.dump(), content.substr(8 + length)));
}

class AdapterTest : public testing::Test {
 protected:
  absl::StatusOr<Adapter> Open(const ScratchModel& folder) const {
    return Adapter::Open(folder.dir(), modules_);
  }
  void Edit(const std::function<void(json&)>& edit) const { folder_.EditJson(kConfig, edit); }
  // The refusal of the edited adapter has both texts.
  void ExpectRefused(const std::string& file, const std::string& what) const {
    const absl::Status status = Open(folder_).status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(file), HasSubstr(what)));
  }

  const std::vector<AdaptableModule> modules_ = ModulesOf(kTinyModel);
  const ScratchModel folder_{kAll};
};

TEST_F(AdapterTest, ReadsEveryModuleWithItsRankAndScale) {
  const auto all = Adapter::Open(GoldenDir(kAll), modules_);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->changes().size(), 14u);
  for (const Adapter::Change& change : all->changes()) {
    EXPECT_EQ(change.scale, 1.5f) << change.module.name;
    EXPECT_THAT(change.down.shape, testing::ElementsAre(4u, change.module.inputs));
    EXPECT_THAT(change.up.shape, testing::ElementsAre(change.module.outputs, 4u));
  }

  const auto some = Adapter::Open(GoldenDir(kAttention), modules_);
  ASSERT_TRUE(some.ok()) << some.status();
  std::map<std::string, std::pair<uint64_t, float>> ranks;
  for (const Adapter::Change& change : some->changes()) {
    EXPECT_EQ(change.down.type, TensorType::kBFloat16);
    ranks[change.module.name] = {change.down.shape[0], change.scale};
  }
  const auto root = [](double number) { return static_cast<float>(std::sqrt(number)); };
  const std::map<std::string, std::pair<uint64_t, float>> expected = {
      {"model.layers.0.self_attn.q_proj", {2, 3 / root(2)}},
      {"model.layers.0.self_attn.v_proj", {2, 5 / root(2)}},
      {"model.layers.1.self_attn.q_proj", {5, 3 / root(5)}},
      {"model.layers.1.self_attn.v_proj", {2, 5 / root(2)}}};
  ASSERT_EQ(ranks.size(), expected.size());
  for (const auto& [name, rank] : expected) {
    EXPECT_EQ(ranks[name].first, rank.first) << name;
    EXPECT_FLOAT_EQ(ranks[name].second, rank.second) << name;
  }
}

TEST_F(AdapterTest, TheFingerprintIsThatOfWhatIsComputed) {
  const uint64_t original = Open(folder_)->fingerprint();
  EXPECT_LT(original, uint64_t{1} << 63);
  Edit([](json& config) {
    config["base_model_name_or_path"] = "elsewhere";
    config["lora_dropout"] = 0.5;
    config["target_modules"] = "all-linear";
    // Half of both: the same scale.
    config["rank_pattern"] = {{"q_proj", 4}};
    config["peft_version"] = "0.5";
  });
  EXPECT_EQ(Open(folder_)->fingerprint(), original);
  Edit([](json& config) { config["alpha_pattern"] = {{"layers.1.mlp.up_proj", 5}}; });
  EXPECT_NE(Open(folder_)->fingerprint(), original) << "one scale";
  Edit([](json& config) { config.erase("alpha_pattern"); });
  EXPECT_EQ(Open(folder_)->fingerprint(), original);
  // The bytes of two modules change places.
  EditTensors(folder_, [](json& header) {
    const std::string prefix = "base_model.model.model.layers.";
    std::swap(header[prefix + "0.mlp.up_proj.lora_A.weight"]["data_offsets"],
              header[prefix + "1.mlp.up_proj.lora_A.weight"]["data_offsets"]);
  });
  EXPECT_NE(Open(folder_)->fingerprint(), original) << "the order of the bytes";
}

// The file can be replaced while the engine runs.
TEST_F(AdapterTest, KeepsItsOwnBytes) {
  absl::StatusOr<Adapter> adapter = Open(folder_);
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  const Adapter moved = *std::move(adapter);
  const std::vector<float> before = ToFloats(moved.changes().back().up);
  folder_.Write(kTensors, "short");
  EXPECT_EQ(ToFloats(moved.changes().back().up), before);
}

TEST_F(AdapterTest, RefusesByNameWhatWouldChangeTheResult) {
  struct Fault {
    const char* field;
    json value;
  };
  const Fault faults[] = {{"peft_type", "IA3"},
                          {"task_type", "SEQ_CLS"},
                          {"bias", "lora_only"},
                          {"use_dora", true},
                          {"lora_bias", true},
                          {"fan_in_fan_out", true},
                          {"modules_to_save", {"lm_head"}},
                          {"trainable_token_indices", {1, 2}},
                          {"layer_replication", {{0, 1}}},
                          {"target_parameters", {"mlp.experts.gate_up_proj"}},
                          {"alora_invocation_tokens", {5}},
                          {"use_qalora", true},
                          {"exclude_modules", "q_proj"},
                          {"init_lora_weights", "pissa_niter_4"},
                          {"init_lora_weights", "loftq"},
                          {"an_option_of_next_year", 1},
                          {"r", 0},
                          {"r", -4},
                          {"r", "4"},
                          {"r", 1000000},
                          {"lora_alpha", 0},
                          {"lora_alpha", -1},
                          {"lora_alpha", json()},
                          {"use_rslora", 1},
                          {"rank_pattern", 4},
                          {"rank_pattern", {{"q_proj", 0}}},
                          {"rank_pattern", {{"layers\\.\\d+\\.q_proj", 4}}},
                          {"alpha_pattern", {{"q_proj", "6"}}},
                          {"alpha_pattern", {{"(q|k)_proj", 6}}},
                          {"target_modules", json()},
                          {"target_modules", json::array()},
                          {"target_modules", ".*_proj"},
                          {"target_modules", {"q_proj", 5}},
                          {"target_modules", {"q_proj", "lm_head"}},
                          {"target_modules", {"q_proj", "embed_tokens"}},
                          {"target_modules", {"q_proj", "proj"}},
                          {"target_modules", {"^q_proj"}},
                          {"layers_to_transform", "0"},
                          {"layers_to_transform", {0, -1}},
                          {"layers_pattern", "h"}};
  const std::string original = folder_.Read(kConfig);
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.value.dump());
    Edit([&](json& config) { config[fault.field] = fault.value; });
    ExpectRefused(kConfig, fault.field);
    folder_.Write(kConfig, original);
  }
  for (const char* field : {"peft_type", "target_modules"}) {
    Edit([&](json& config) { config.erase(field); });
    ExpectRefused(kConfig, field);
    folder_.Write(kConfig, original);
  }
  EXPECT_TRUE(Open(folder_).ok());
}

TEST_F(AdapterTest, RefusesPatternsThatDependOnTheOrderOfAnObject) {
  Edit([](json& config) { config["rank_pattern"] = {{"q_proj", 4}, {"self_attn.q_proj", 5}}; });
  ExpectRefused(kConfig, "rank_pattern has several entries for model.layers.0.self_attn.q_proj");
  Edit([](json& config) { config["rank_pattern"]["self_attn.q_proj"] = 4; });
  EXPECT_TRUE(Open(folder_).ok()) << "they agree";
}

TEST_F(AdapterTest, RefusesByNameATensorThatIsMissingOrUnexpected) {
  const std::string original = folder_.Read(kTensors);
  const std::string name = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight";
  const std::function<void(json&)> faults[] = {
      [&](json& header) { header.erase(name); },
      [&](json& header) {
        header["base_model.model.lm_head.weight"] = header[name];
        header.erase(name);
      },
      [&](json& header) {
        header[name]["shape"] = {4, 64};
      },
      [&](json& header) { header[name]["shape"] = {256}; },
      [&](json& header) { header[name]["dtype"] = "I32"; }};
  for (const auto& fault : faults) {
    EditTensors(folder_, fault);
    ExpectRefused(kTensors, name);
    folder_.Write(kTensors, original);
  }
  // Fewer targets than tensors.
  Edit([](json& config) { config["target_modules"] = {"q_proj"}; });
  ExpectRefused(kTensors, "down_proj.lora_A.weight");
  Edit([](json& config) {
    config["target_modules"] = "all-linear";
    config["layers_to_transform"] = 0;
  });
  ExpectRefused(kTensors, "layers.1.");
  Edit([](json& config) { config["layers_to_transform"] = {5}; });
  ExpectRefused(kTensors, "tensor ");
}

TEST_F(AdapterTest, RefusesMissingAndBrokenFiles) {
  folder_.Write(kTensors, "short");
  ExpectRefused(kTensors, "too short");
  folder_.Write(kConfig, "{\"r\": 4, \"r\": 4}");
  ExpectRefused(kConfig, "");
  const absl::Status status = Adapter::Open(folder_.dir() + "/nowhere", modules_).status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
}

// The modules are the layers' matrices, as the checkpoint has them.
TEST_F(AdapterTest, AModelsModulesFollowItsLayers) {
  EXPECT_THAT(NamesOf(modules_), testing::IsSupersetOf({"model.layers.0.self_attn.q_proj",
                                                        "model.layers.1.self_attn.o_proj",
                                                        "model.layers.1.mlp.gate_proj"}));
  EXPECT_EQ(modules_.size(), 14u);
  // Layers with different numbers of KV heads.
  std::vector<uint64_t> keys;
  for (const AdaptableModule& module : ModulesOf("pagoda_qwen3_tiny")) {
    if (module.name.ends_with("k_proj")) keys.push_back(module.outputs);
    if (module.name.ends_with("v_proj")) {
      EXPECT_EQ(module.first_output, 64 + keys.back());
    }
  }
  EXPECT_THAT(keys, testing::ElementsAre(32u, 16u, 16u, 32u));
}

}  // namespace
}  // namespace pagoda
