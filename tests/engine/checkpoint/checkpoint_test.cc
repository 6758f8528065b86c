// Valid checkpoints are read; invalid ones are refused by name.
#include "engine/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/checkpoint/files/safetensors.h"
#include "tests/engine/fixtures/expected_tensors.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTensors[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kQueryWeight[] = "model.layers.1.self_attn.q_proj.weight";

void ExpectRefused(const ScratchModel& model, const std::string& name) {
  const absl::Status status = LoadAll(model.dir());
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(name));
}

std::string Fingerprint(const std::string& dir) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(dir);
  return Checkpoint::Open(dir)->Fingerprint(*config);
}

// One file, several files with an index, and GGUF, each with all its tensors.
TEST(CheckpointTest, ReadsEveryGoldenModel) {
  for (const GoldenModel& golden : kGoldenModels) {
    SCOPED_TRACE(golden.name);
    const absl::Status status = LoadAll(GoldenDir(golden.name));
    EXPECT_TRUE(status.ok()) << status;
  }
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
      "i64": {"dtype": "I64", "shape": [3], "data_offsets": [25, 49]},
      "none": {"dtype": "", "shape": [0], "data_offsets": [0, 1]}, "__metadata__": {"a": "b"}})";
  model.Write(kTensors, SafetensorsContent(header, "x" + data + std::string(24, 'y')));
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(model.dir());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(*checkpoint->ReadFloats("f32", {3}), ElementsAre(1.0f, -2.0f, 0.5f));
  EXPECT_THAT(*checkpoint->ReadFloats("f16", {3, 1}), ElementsAre(1.0f, -2.0f, 0.5f));
  EXPECT_THAT(*checkpoint->ReadFloats("bf16", {1, 3}), ElementsAre(1.0f, -2.0f, 0.5f));
  EXPECT_THAT(std::string(checkpoint->ReadFloats("i64", {3}).status().message()),
              HasSubstr("tensor i64 is I64"));
  EXPECT_FALSE(checkpoint->ReadFloats("none", {0}).ok()) << "an empty dtype is no float32";
  EXPECT_TRUE(checkpoint->Has("i64"));
  EXPECT_TRUE(checkpoint->Has("f32"));
  EXPECT_FALSE(checkpoint->Has("f64"));
}

TEST(CheckpointTest, FindsATensorsBytesWhereTheyLie) {
  const absl::StatusOr<Checkpoint> opened = Checkpoint::Open(GoldenDir(kUntiedModel));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const absl::StatusOr<TensorInfo> tensor = opened->Find("lm_head.weight", {256, 48});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->type, TensorType::kBFloat16);
  EXPECT_THAT(tensor->shape, ElementsAre(256, 48));
  EXPECT_EQ(tensor->bytes.size(), 256u * 48u * 2u);
  EXPECT_EQ(ToFloats(*tensor), *opened->ReadFloats("lm_head.weight", {256, 48}));
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
                             // A length below the format's limit that still ends beyond the file.
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
        R"({"t": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})",
        // A number of elements that overflows to the right one.
        R"({"t": {"dtype": "F32", "shape": [4611686018427387905], "data_offsets": [0, 4]}})",
        R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}})",
        R"({"t": {"dtype": "Q8_0", "shape": [32], "data_offsets": [0, 34]}})"}) {
    SCOPED_TRACE(header);
    model.Write(kTensors, SafetensorsContent(header, "12345678"));
    const absl::Status status = Checkpoint::Open(model.dir()).status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(model.dir() + "/model.safetensors: "));
  }
}

TEST(CheckpointTest, RefusesAHeaderThatIsTooDeep) {
  const ScratchModel model(kTinyModel);
  const std::string open(1 << 20, '[');
  const std::string close(1 << 20, ']');
  for (const std::string& header :
       {open, open + close, absl::StrCat("{\"__metadata__\": ", open, close, "}")}) {
    model.Write(kTensors, SafetensorsContent(header, "12345678"));
    ExpectRefused(model, "the header is nested more than 16 levels deep");
  }
}

TEST(CheckpointTest, RefusesTensorsThatOverlap) {
  const ScratchModel model(kTinyModel);
  const auto write = [&](const char* second) {
    const std::string first = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, )";
    model.Write(kTensors, SafetensorsContent(first + second, "12345678"));
    return Checkpoint::Open(model.dir()).status();
  };
  EXPECT_TRUE(write(R"("b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})").ok());
  // A tensor without bytes overlaps nothing.
  EXPECT_TRUE(write(R"("b": {"dtype": "F32", "shape": [0], "data_offsets": [2, 2]}})").ok());
  for (const char* second : {R"("b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
                             R"("b": {"dtype": "F32", "shape": [1], "data_offsets": [3, 7]}})",
                             R"("b": {"dtype": "I8", "shape": [8], "data_offsets": [0, 8]}})"}) {
    EXPECT_THAT(std::string(write(second).message()), HasSubstr(" overlaps another")) << second;
  }
}

// JSON does not define which of the two counts, and parsers differ.
TEST(CheckpointTest, RefusesAKeyThatIsThereTwice) {
  const ScratchModel model(kTinyModel);
  model.Write(kTensors, SafetensorsContent(
                            R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                                "t": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                            "12345678"));
  ExpectRefused(model, "the header has the key t twice");
  model.Write(kTensors,
              SafetensorsContent(R"({"t": {"dtype": "F32", "dtype": "F16", "shape": [1]}})", ""));
  ExpectRefused(model, "the header has the key dtype twice");
}

TEST(CheckpointTest, RefusesATensorInTwoFiles) {
  const ScratchModel model(kUntiedModel);
  model.Write("more.safetensors", model.Read("model-00001-of-00004.safetensors"));
  model.EditJson(kIndex, [](json& index) { index["weight_map"]["x"] = "more.safetensors"; });
  ExpectRefused(model, "another file has tensor ");
}

TEST(CheckpointTest, RefusesAnIndexWithoutAMap) {
  const ScratchModel model(kUntiedModel);
  for (const char* content : {"{}", "[]", "{", R"({"weight_map": {}})", R"({"weight_map": 7})"}) {
    model.Write(kIndex, content);
    ExpectRefused(model, "model.safetensors.index.json: ");
  }
}

TEST(CheckpointTest, RefusesAnIndexThatLeavesItsFolder) {
  const ScratchModel model(kUntiedModel);
  for (const char* name : {"../other.safetensors", "/etc/passwd", "", ".."}) {
    model.EditJson(kIndex, [&](json& index) { index["weight_map"]["lm_head.weight"] = name; });
    ExpectRefused(model, "lm_head.weight is not a plain file name");
  }
}

TEST(CheckpointTest, RefusesAnIndexWithAMissingFile) {
  const ScratchModel model(kUntiedModel);
  model.EditJson(kIndex, [](json& index) { index["weight_map"]["lm_head.weight"] = "gone"; });
  ExpectRefused(model, "/gone: No such file");
}

// A hash that folds whole words by multiplication misses changes of the uppermost bits of two
// words.
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

// The fields that K and V depend on, and no others.
TEST(CheckpointTest, FingerprintCoversTheConfiguration) {
  const ScratchModel model("gemma3_tiny");
  const std::string original = Fingerprint(model.dir());
  const auto with = [&](const std::string& field, const json& value) {
    const ScratchModel other("gemma3_tiny");
    other.EditJson("config.json",
                   [&](json& config) { config[json::json_pointer("/" + field)] = value; });
    return Fingerprint(other.dir());
  };
  EXPECT_NE(with("sliding_window", 21), original);
  EXPECT_NE(with("query_pre_attn_scalar", 32), original);
  EXPECT_NE(with("hidden_activation", "silu"), original);
  EXPECT_NE(with("dtype", "float32"), original);  // Changes the embeddings' scale.
  EXPECT_NE(with("layer_types/0", "full_attention"), original);
  EXPECT_NE(with("rope_parameters/full_attention/factor", 4.0), original);
  EXPECT_NE(with("rope_parameters/sliding_attention/rope_theta", 500.0), original);
  EXPECT_EQ(with("max_position_embeddings", 8192), original);
  EXPECT_EQ(with("final_logit_softcapping", 30.0), original);
}

// The same configuration and weights, in another file.
TEST(CheckpointTest, FingerprintIsThatOfTheModelNotOfItsFiles) {
  const ScratchModel model(kUntiedModel);
  const std::string original = Fingerprint(model.dir());
  std::string header = "{";
  std::string data;
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(GoldenDir(kUntiedModel));
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(GoldenDir(kUntiedModel));
  for (const auto& [name, shape] : ExpectedTensors(*config)) {
    const absl::Span<const std::byte> bytes = checkpoint->Find(name, shape)->bytes;
    const json entry = {{"dtype", "BF16"},
                        {"shape", shape},
                        {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    header += (header.size() > 1 ? ", \"" : "\"") + name + "\": " + entry.dump();
    data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::filesystem::remove(model.dir() + "/" + kIndex);
  model.Write(kTensors, SafetensorsContent(header + "}", data));
  EXPECT_EQ(Fingerprint(model.dir()), original);
}

}  // namespace
}  // namespace pagoda
