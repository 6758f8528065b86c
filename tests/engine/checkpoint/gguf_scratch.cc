#include "tests/engine/checkpoint/gguf_scratch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {

using ::testing::HasSubstr;

static constexpr char kFile[] = "model.gguf";

std::map<std::string, std::string> GgufKeys(const std::string& architecture) {
  std::map<std::string, std::string> keys = {
      {"general.architecture", GgufString("general.architecture", architecture)}};
  const std::map<std::string, uint32_t> counts = {
      {"embedding_length", 64},     {"feed_forward_length", 128},   {"block_count", 7},
      {"context_length", 4096},     {"attention.head_count", 4},    {"attention.head_count_kv", 2},
      {"attention.key_length", 32}, {"attention.value_length", 32}, {"rope.dimension_count", 32}};
  for (const auto& [key, value] : counts) {
    keys[key] = GgufUint32(architecture + "." + key, value);
  }
  keys["attention.layer_norm_rms_epsilon"] =
      GgufFloat32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  return keys;
}

absl::StatusOr<ModelConfig> GgufScratchFile::Read() const {
  const ScratchModel model("llama3_tiny_f16_gguf");
  std::vector<std::string> list;
  for (const auto& [name, key] : keys) list.push_back(key);
  model.Write(kFile, GgufContent(list, tensors, data));
  return LoadModelConfig(model.dir());
}

ModelConfig GgufScratchFile::Config() const {
  const absl::StatusOr<ModelConfig> config = Read();
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

std::string GgufScratchFile::Refusal() const {
  const absl::Status status = Read().status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(kFile));
  return std::string(status.message());
}

GgufScratchFile GgufFileWith(const std::string& architecture, const std::string& key,
                             const std::string& entry) {
  GgufScratchFile file = {.keys = GgufKeys(architecture)};
  file.keys[key] = entry;
  return file;
}

}  // namespace pagoda
