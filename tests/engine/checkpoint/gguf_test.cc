#include "engine/checkpoint/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/gguf_names.h"
#include "tests/engine/fixtures/expected_tensors.h"
#include "tests/engine/fixtures/gguf_content.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kF16Model[] = "llama3_tiny_f16_gguf";
constexpr char kQ8Model[] = "llama3_tiny_q8_0_gguf";
constexpr char kFile[] = "model.gguf";
// ggml's numbers.
constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8_0 = 8;
constexpr uint32_t kBF16 = 30;

// Any content, in a new folder.
class ContentFile {
 public:
  explicit ContentFile(const std::string& content) : model_(kF16Model) {
    model_.Write(kFile, content);
  }
  std::string path() const { return model_.dir() + "/" + kFile; }

 private:
  const ScratchModel model_;
};

// Why it is refused; empty if it is accepted.
std::string Refusal(const std::string& content) {
  const ContentFile file(content);
  const absl::Status status = GgufFile::Open(file.path()).status();
  if (status.ok()) return "";
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(file.path()));
  return std::string(status.message());
}

std::string Tensors(const std::vector<GgufTensorEntry>& tensors, size_t data_bytes = 64) {
  return GgufContent({}, tensors, std::string(data_bytes, 'x'));
}

TEST(GgufTest, ReadsValuesOfEveryKind) {
  const ContentFile file(GgufContent(
      {GgufText("u8") + GgufNumber(0, 4) + "\xff", GgufText("i8") + GgufNumber(1, 4) + "\xff",
       GgufText("u16") + GgufNumber(2, 4) + "\xff\xff",
       GgufText("i16") + GgufNumber(3, 4) + "\xff\xff", GgufUint32("u32", 4000000000u),
       GgufText("i32") + GgufNumber(5, 4) + GgufNumber(~0ull, 4), GgufFloat32("f32", -1.5f),
       GgufText("bool") + GgufNumber(7, 4) + "\x01", GgufString("text", "abc"),
       GgufText("u64") + GgufNumber(10, 4) + GgufNumber(1ull << 62, 8),
       GgufText("i64") + GgufNumber(11, 4) + GgufNumber(~0ull, 8),
       GgufText("f64") + GgufNumber(12, 4) + GgufNumber(0x3ff8000000000000, 8),
       GgufArray("numbers", 4, 2, GgufNumber(7, 4) + GgufNumber(9, 4)),
       GgufArray("texts", 8, 2, GgufText("a") + GgufText("bc")),
       GgufArray("floats", 6, 1, GgufNumber(0, 4)), GgufString("long", std::string(70000, 'x'))},
      {}, ""));
  const absl::StatusOr<GgufFile> opened = GgufFile::Open(file.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::map<std::string, GgufValue> expected = {{"u8", int64_t{255}},
                                                     {"i8", int64_t{-1}},
                                                     {"u16", int64_t{65535}},
                                                     {"i16", int64_t{-1}},
                                                     {"u32", int64_t{4000000000}},
                                                     {"i32", int64_t{-1}},
                                                     {"f32", -1.5},
                                                     {"bool", int64_t{1}},
                                                     {"text", std::string("abc")},
                                                     {"u64", int64_t{1} << 62},
                                                     {"i64", int64_t{-1}},
                                                     {"f64", 1.5},
                                                     {"numbers", std::vector<int64_t>{7, 9}},
                                                     {"texts", GgufSkipped()},
                                                     {"floats", GgufSkipped()},
                                                     {"long", GgufSkipped()}};
  EXPECT_EQ(opened->metadata(), expected);
}

TEST(GgufTest, ReadsTensorsOfEachType) {
  // A block of scale 0.5 and integers 0, 1, -2, ...; then 1 and -2 in BF16 at the next multiple
  // of 32.
  std::string data = std::string("\x00\x38", 2) + std::string("\x00\x01\xfe", 3);
  data.resize(64);
  data += std::string("\x80\x3f\x00\xc0", 4);
  const ContentFile file(GgufContent(
      {}, {{"q", {32, 1}, kQ8_0, 0}, {"b", {1, 2}, kBF16, 64}, {"empty", {0}, kF32, 0}}, data));
  const absl::StatusOr<GgufFile> opened = GgufFile::Open(file.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const TensorInfo& q = opened->tensors().at("q");
  EXPECT_EQ(q.type, TensorType::kQ8_0);
  EXPECT_THAT(q.shape, ElementsAre(1, 32));
  EXPECT_EQ(q.bytes.size(), kQ8_0BlockBytes);
  const std::vector<float> floats = ToFloats(q);
  ASSERT_EQ(floats.size(), 32u);
  EXPECT_EQ(floats[1], 0.5f);
  EXPECT_EQ(floats[2], -1.0f);
  EXPECT_THAT(opened->tensors().at("b").shape, ElementsAre(2, 1));
  EXPECT_THAT(ToFloats(opened->tensors().at("b")), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(ToFloats(opened->tensors().at("empty")), IsEmpty());
}

TEST(GgufTest, ReadsVersion2) {
  std::string content = ScratchModel(kF16Model).Read(kFile);
  content[4] = 2;
  EXPECT_EQ(Refusal(content), "");
}

TEST(GgufTest, RefusesOtherFilesAndVersions) {
  std::string content = ScratchModel(kF16Model).Read(kFile);
  content[4] = 1;
  EXPECT_THAT(Refusal(content), HasSubstr("GGUF version 1"));
  content[4] = 4;
  EXPECT_THAT(Refusal(content), HasSubstr("GGUF version 4"));
  content[4] = 0;
  content[7] = 3;  // Big-endian.
  EXPECT_THAT(Refusal(content), HasSubstr("little-endian"));
  content[0] = 'g';
  EXPECT_THAT(Refusal(content), HasSubstr("not a GGUF file"));
}

TEST(GgufTest, RefusesATruncatedFile) {
  const std::string content = ScratchModel(kF16Model).Read(kFile);
  for (const size_t size : {content.size() - 1, content.size() / 2, size_t{5000}, size_t{2000},
                            size_t{100}, size_t{24}, size_t{23}, size_t{7}, size_t{3}, size_t{0}}) {
    EXPECT_NE(Refusal(content.substr(0, size)), "") << size;
  }
}

TEST(GgufTest, RefusesCountsThatTheFileCannotHold) {
  const std::string head = "GGUF" + GgufNumber(3, 4);
  const uint64_t many = 1ull << 60;
  for (const uint64_t count : {many, ~uint64_t{0}}) {
    EXPECT_THAT(Refusal(head + GgufNumber(count, 8) + GgufNumber(0, 8)), HasSubstr("ends within"));
    EXPECT_THAT(Refusal(head + GgufNumber(0, 8) + GgufNumber(count, 8)), HasSubstr("ends within"));
    EXPECT_THAT(Refusal(GgufContent({GgufArray("a", 4, count, "")}, {}, "12345678")),
                HasSubstr("more than the file has"));
    EXPECT_THAT(Refusal(GgufContent({GgufArray("a", 8, count, "")}, {}, "12345678")),
                HasSubstr("ends within"));
    const std::string long_text = GgufText("a") + GgufNumber(8, 4) + GgufNumber(count, 8);
    EXPECT_THAT(Refusal(GgufContent({long_text}, {}, "")), HasSubstr("key a ends within"));
    EXPECT_THAT(Refusal(GgufContent({GgufNumber(count, 8)}, {}, "")), HasSubstr("ends within"));
  }
}

TEST(GgufTest, RefusesHostileKeys) {
  EXPECT_THAT(Refusal(GgufContent({GgufUint32("a", 1), GgufUint32("a", 2)}, {}, "")),
              HasSubstr("key a appears twice"));
  EXPECT_THAT(Refusal(GgufContent({GgufText("a") + GgufNumber(13, 4)}, {}, std::string(64, 'x'))),
              HasSubstr("key a has the unknown type 13"));
  EXPECT_THAT(Refusal(GgufContent({GgufArray("a", 9, 1, std::string(64, 0))}, {}, "")),
              HasSubstr("key a is an array of type 9"));
  EXPECT_THAT(Refusal(GgufContent({GgufUint32(std::string(70000, 'a'), 1)}, {}, "")),
              HasSubstr("has a name of 70000 bytes"));
  const std::string huge = GgufText("a") + GgufNumber(10, 4) + GgufNumber(~0ull, 8);
  EXPECT_THAT(Refusal(GgufContent({huge}, {}, "")), HasSubstr("above 2^63"));
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 30}) {
    EXPECT_THAT(Refusal(GgufContent({GgufUint32("general.alignment", alignment)}, {}, "")),
                HasSubstr("general.alignment"));
  }
}

TEST(GgufTest, RefusesHostileTensors) {
  EXPECT_EQ(Refusal(Tensors({{"t", {16}, kF32, 0}})), "");
  EXPECT_THAT(Refusal(Tensors({{"t", {17}, kF32, 0}})), HasSubstr("tensor t has 68 bytes from 0"));
  EXPECT_THAT(Refusal(Tensors({{"t", {1}, kF32, 64}})), HasSubstr("tensor t has 4 bytes from 64"));
  EXPECT_THAT(Refusal(Tensors({{"t", {1}, kF32, 1ull << 63}})), HasSubstr("tensor t has 4 bytes"));
  EXPECT_THAT(Refusal(Tensors({{"t", {1}, kF32, 4}})),
              HasSubstr("not a multiple of the alignment"));
  // Elements and bytes that overflow 64 bits, the second to 4.
  EXPECT_THAT(Refusal(Tensors({{"t", {1ull << 32, 1ull << 32}, kF32, 0}})), HasSubstr("shape"));
  EXPECT_THAT(Refusal(Tensors({{"t", {(1ull << 62) + 1}, kF32, 0}})), HasSubstr("shape"));
  EXPECT_THAT(Refusal(Tensors({{"t", {~0ull - 31}, kQ8_0, 0}})), HasSubstr("shape"));
  EXPECT_THAT(Refusal(Tensors({{"t", {1, 1, 1, 1, 1}, kF32, 0}})), HasSubstr("5 dimensions"));
  // Q8_0 has rows of whole blocks.
  EXPECT_THAT(Refusal(Tensors({{"t", {33}, kQ8_0, 0}})), HasSubstr("shape [33] in Q8_0"));
  EXPECT_THAT(Refusal(Tensors({{"t", {}, kQ8_0, 0}})), HasSubstr("shape [] in Q8_0"));
  EXPECT_THAT(Refusal(Tensors({{"t", {32}, 16, 0}})), HasSubstr("tensor t has ggml's type 16"));
  EXPECT_THAT(Refusal(Tensors({{"t", {32}, 12, 0}})), HasSubstr("shape [32] in Q4_K"));
  EXPECT_THAT(Refusal(Tensors({{"t", {1}, kF32, 0}, {"t", {1}, kF32, 32}})),
              HasSubstr("tensor t appears twice"));
  EXPECT_THAT(Refusal(Tensors({{"t", {9}, kF32, 0}, {"u", {1}, kF32, 32}})),
              HasSubstr("tensor u overlaps another"));
}

TEST(GgufTest, KnowsTheNamesOfHuggingFace) {
  EXPECT_EQ(HuggingFaceName("token_embd.weight", false), "model.embed_tokens.weight");
  EXPECT_EQ(HuggingFaceName("blk.12.attn_k.bias", false), "model.layers.12.self_attn.k_proj.bias");
  EXPECT_EQ(HuggingFaceName("blk.0.ffn_norm.weight", false),
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(HuggingFaceName("blk.0.ffn_norm.weight", true),
            "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(HuggingFaceName("blk.0.ffn_gate_exps.weight", false),
            "model.layers.0.mlp.experts.gate_proj.weight");
  EXPECT_EQ(HuggingFaceName("blk.3.ffn_gate_inp.bias", false), "model.layers.3.mlp.router.bias");
  EXPECT_EQ(HuggingFaceName("blk.3.attn_sinks.weight", false), "model.layers.3.self_attn.sinks");
  for (const char* name :
       {"blk.0.post_ffw_norm.weight", "blk.01.attn_q.weight", "blk.+1.attn_q.weight",
        "blk.-1.attn_q.weight", "blk.attn_q.weight", "blk..attn_q.weight",
        "blk.4294967296.attn_q.weight", "blk.0.weight", "blk.0.ffn_gate_shexp.weight",
        "blk.0.attn_q.scale", "attn_q", "", ".weight"}) {
    EXPECT_EQ(HuggingFaceName(name, false), std::nullopt) << name;
  }
}

TEST(GgufTest, RefusesATensorThatNoArchitectureHas) {
  const ScratchModel model(kF16Model);
  std::string content = model.Read(kFile);
  const std::string name = "blk.1.ffn_down.weight";
  content.replace(content.find(name), name.size(), "blk.1.ffn_domn.weight");
  model.Write(kFile, content);
  EXPECT_THAT(
      std::string(LoadAll(model.dir()).message()),
      HasSubstr("tensor blk.1.ffn_domn.weight is not a tensor that a LlamaForCausalLM has"));
}

// Includes the rows of q and k, which have another order.
TEST(GgufTest, HasTheWeightsOfTheOtherFormat) {
  const absl::StatusOr<Checkpoint> original = Checkpoint::Open(GoldenDir("llama3_tiny"));
  const absl::StatusOr<Checkpoint> half = Checkpoint::Open(GoldenDir(kF16Model));
  const absl::StatusOr<Checkpoint> quantised = Checkpoint::Open(GoldenDir(kQ8Model));
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(GoldenDir("llama3_tiny"));
  ASSERT_TRUE(original.ok() && half.ok() && quantised.ok() && config.ok());
  for (const auto& [name, shape] : ExpectedTensors(*config)) {
    SCOPED_TRACE(name);
    const std::vector<float> expected = *original->ReadFloats(name, shape);
    EXPECT_EQ(*half->ReadFloats(name, shape), expected);
    const std::vector<float> coarse = *quantised->ReadFloats(name, shape);
    ASSERT_EQ(coarse.size(), expected.size());
    for (size_t block = 0; block < expected.size(); block += kQ8_0BlockElements) {
      float largest = 0.0f;
      for (size_t i = block; i < block + kQ8_0BlockElements; ++i) {
        largest = std::max(largest, std::abs(expected[i]));
      }
      for (size_t i = block; i < block + kQ8_0BlockElements; ++i) {
        // Half a step, plus the scale's error in fp16.
        ASSERT_NEAR(coarse[i], expected[i], largest * (0.5f / 127 + 1e-3f)) << i;
      }
    }
  }
}

TEST(GgufTest, OpensByPathAndByFolder) {
  const ScratchModel model(kF16Model);
  EXPECT_TRUE(LoadAll(model.dir()).ok());
  EXPECT_TRUE(LoadAll(model.dir() + "/" + kFile).ok());
  model.Write("second.gguf", model.Read(kFile));
  EXPECT_THAT(std::string(LoadAll(model.dir()).message()), HasSubstr("has several .gguf files"));
  EXPECT_TRUE(LoadAll(model.dir() + "/second.gguf").ok());
  EXPECT_THAT(std::string(LoadAll(model.dir() + "/gone.gguf").message()),
              HasSubstr("gone.gguf: No such file"));
  // With a config.json it is a Hugging Face folder.
  model.Write("config.json", "{}");
  EXPECT_THAT(std::string(LoadAll(model.dir()).message()), HasSubstr("config.json: "));
  const ScratchModel empty(kF16Model);
  std::filesystem::remove(empty.dir() + "/" + kFile);
  EXPECT_THAT(std::string(LoadAll(empty.dir()).message()), HasSubstr("config.json: No such file"));
}

TEST(GgufTest, FingerprintCoversTheWeightsAndTheRotaryDivisors) {
  const auto fingerprint = [](const std::string& path) {
    return Checkpoint::Open(path)->Fingerprint(*LoadModelConfig(path));
  };
  const ScratchModel model(kF16Model);
  const std::string original = fingerprint(model.dir());
  EXPECT_THAT(original, HasSubstr("LlamaForCausalLM-"));
  std::string content = model.Read(kFile);
  content.back() ^= 1;
  model.Write(kFile, content);
  EXPECT_NE(fingerprint(model.dir()), original);
  content.back() ^= 1;
  const absl::StatusOr<GgufFile> file = GgufFile::Open(GoldenDir(kF16Model) + "/" + kFile);
  const absl::Span<const std::byte> divisors = file->tensors().at(kGgufRotaryDivisors).bytes;
  const std::string text(reinterpret_cast<const char*>(divisors.data()), divisors.size());
  const float two = 2.0f;
  std::memcpy(content.data() + content.find(text), &two, sizeof(two));  // It was 1.
  model.Write(kFile, content);
  EXPECT_NE(fingerprint(model.dir()), original);
}

}  // namespace
}  // namespace pagoda
