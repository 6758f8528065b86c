// Good checkpoints are read, bad ones are refused by name.
#include "engine/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/model/cpu_backend.h"
#include "engine/model/weights.h"
#include "pools/error.h"
#include "tests/engine/golden.h"
#include "tests/engine/scratch_model.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTensors[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kQueryWeight[] = "model.layers.1.self_attn.q_proj.weight";

// What the engine says of the model: config, files and weights together.
absl::Status Load(const std::string& dir) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(dir);
  if (!config.ok()) return config.status();
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir);
  if (!checkpoint.ok()) return checkpoint.status();
  const auto backend = MakeCpuBackend({.num_threads = 1});
  return LoadWeights(*config, *checkpoint, **backend).status();
}

void ExpectRefused(const ScratchModel& model, const std::string& name) {
  const absl::Status status = Load(model.dir());
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(name));
}

std::string Fingerprint(const std::string& dir) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(dir);
  return Checkpoint::Open(dir)->Fingerprint(*config);
}

TEST(CheckpointTest, ReadsOneFileAndSeveral) {
  EXPECT_TRUE(Load(GoldenDir(kTinyModel)).ok());
  EXPECT_TRUE(Load(GoldenDir(kUntiedModel)).ok());
}

TEST(CheckpointTest, ConvertsEachFloatType) {
  const ScratchModel model(kTinyModel);
  // 1, -2 and 0.5 in each type, after an odd byte: nothing is aligned.
  const std::string data(
      "\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f"
      "\x00\x3c\x00\xc0\x00\x38"
      "\x80\x3f\x00\xc0\x00\x3f",
      24);
  const std::string header = R"({"f32": {"dtype": "F32", "shape": [3], "data_offsets": [1, 13]},
      "f16": {"dtype": "F16", "shape": [3, 1], "data_offsets": [13, 19]},
      "bf16": {"dtype": "BF16", "shape": [1, 3], "data_offsets": [19, 25]},
      "i64": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]}, "__metadata__": {"a": "b"}})";
  model.Write(kTensors, SafetensorsContent(header, "x" + data));
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(model.dir());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(*checkpoint->ReadFloats("f32", {3}), ElementsAre(1.0f, -2.0f, 0.5f));
  EXPECT_THAT(*checkpoint->ReadFloats("f16", {3, 1}), ElementsAre(1.0f, -2.0f, 0.5f));
  EXPECT_THAT(*checkpoint->ReadFloats("bf16", {1, 3}), ElementsAre(1.0f, -2.0f, 0.5f));
  EXPECT_THAT(std::string(checkpoint->ReadFloats("i64", {3}).status().message()),
              HasSubstr("tensor i64 is I64"));
}

TEST(CheckpointTest, RefusesAMissingTensor) {
  const ScratchModel model(kTinyModel);
  model.EditHeader([](json& header) { header.erase(kQueryWeight); });
  ExpectRefused(model, std::string("has no tensor ") + kQueryWeight);
}

TEST(CheckpointTest, RefusesATensorOfAnotherShape) {
  const ScratchModel model(kTinyModel);
  model.EditHeader([](json& header) { header[kQueryWeight]["shape"] = {64, 128}; });
  ExpectRefused(model, std::string(kQueryWeight) + " has shape [64, 128]");
}

TEST(CheckpointTest, RefusesAnUntiedModelWithoutItsHead) {
  const ScratchModel model(kTinyModel);
  model.EditJson("config.json", [](json& config) { config["tie_word_embeddings"] = false; });
  ExpectRefused(model, "lm_head.weight");
}

TEST(CheckpointTest, RefusesATruncatedFile) {
  const ScratchModel model(kTinyModel);
  const std::string content = model.Read(kTensors);
  for (const size_t size : {content.size() - 1, content.size() / 2}) {
    model.Write(kTensors, content.substr(0, size));
    ExpectRefused(model, "data_offsets");
    ExpectRefused(model, "model.safetensors: tensor model.");
  }
  for (const size_t size : {size_t{1000}, size_t{8}, size_t{7}, size_t{0}}) {
    model.Write(kTensors, content.substr(0, size));
    ExpectRefused(model, "model.safetensors: ");
  }
}

TEST(CheckpointTest, RefusesAHostileHeaderLength) {
  const ScratchModel model(kTinyModel);
  std::string content = model.Read(kTensors);
  for (const char* length : {"\xff\xff\xff\xff\xff\xff\xff\xff", "\xf8\xff\xff\xff\xff\xff\xff\xff",
                             "\x00\x00\x00\x80\x00\x00\x00\x00",
                             // Below the format's limit, and still beyond the file.
                             "\x00\x00\x00\x05\x00\x00\x00\x00"}) {
    content.replace(0, 8, length, 8);
    model.Write(kTensors, content);
    ExpectRefused(model, "the header's length is");
  }
}

TEST(CheckpointTest, RefusesAHostileHeader) {
  const ScratchModel model(kTinyModel);
  for (const char* header :
       {"", "[]", "{", "nonsense", R"({"t": 1})", R"({"t": {"dtype": "F32"}})",
        R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})",
        R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}})",
        R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})",
        R"({"t": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}})",
        R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})",
        R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 18446744073709551615]}})",
        R"({"t": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})"}) {
    SCOPED_TRACE(header);
    model.Write(kTensors, SafetensorsContent(header, "12345678"));
    const absl::Status status = Checkpoint::Open(model.dir()).status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(model.dir() + "/model.safetensors: "));
  }
  model.Write(kTensors, SafetensorsContent(std::string(1 << 20, '['), "12345678"));
  ExpectRefused(model, "no JSON object");
}

TEST(CheckpointTest, RefusesAnIndexThatLeavesItsFolder) {
  const ScratchModel model(kUntiedModel);
  for (const char* name : {"../other.safetensors", "/etc/passwd", "", ".."}) {
    model.EditJson(kIndex, [&](json& index) { index["weight_map"]["lm_head.weight"] = name; });
    ExpectRefused(model, "lm_head.weight is no plain file name");
  }
}

TEST(CheckpointTest, RefusesAnIndexWithAMissingFile) {
  const ScratchModel model(kUntiedModel);
  model.EditJson(kIndex, [](json& index) { index["weight_map"]["lm_head.weight"] = "gone"; });
  ExpectRefused(model, "/gone: No such file");
}

// A hash that folds whole words by multiplication loses changes of two words' uppermost bits.
TEST(CheckpointTest, FingerprintTellsApartModelsThatDifferInTheSignsOfTwoWeights) {
  const ScratchModel model(kTinyModel);
  std::string content = model.Read(kTensors);
  for (const size_t from_end : {1, 9}) content[content.size() - from_end] ^= '\x80';
  model.Write(kTensors, content);
  EXPECT_NE(Fingerprint(model.dir()), Fingerprint(GoldenDir(kTinyModel)));
}

TEST(CheckpointTest, FingerprintTellsModelsApart) {
  const ScratchModel model(kTinyModel);
  const std::string original = Fingerprint(GoldenDir(kTinyModel));
  EXPECT_THAT(original, HasSubstr("Qwen3ForCausalLM-"));
  EXPECT_EQ(Fingerprint(model.dir()), original);
  EXPECT_NE(Fingerprint(GoldenDir(kUntiedModel)), original);

  std::string content = model.Read(kTensors);
  content.back() ^= 1;
  model.Write(kTensors, content);
  EXPECT_NE(Fingerprint(model.dir()), original);
  content.back() ^= 1;
  model.Write(kTensors, content);
  EXPECT_EQ(Fingerprint(model.dir()), original);
  model.EditJson("config.json", [](json& config) { config["rms_norm_eps"] = 1e-5; });
  EXPECT_NE(Fingerprint(model.dir()), original);
}

}  // namespace
}  // namespace pagoda
