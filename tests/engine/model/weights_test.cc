// A model with a missing tensor, or a tensor of another shape, is refused by the tensor's name.
#include "engine/model/weights/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "engine/model/cpu/cpu_backend.h"
#include "engine/model/layers/transformer.h"
#include "kernels/execution/isa.h"
#include "tests/engine/fixtures/expected_tensors.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

absl::Status Load(const std::string& dir) {
  absl::StatusOr<ModelConfig> config = LoadModelConfig(dir);
  if (!config.ok()) return config.status();
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir);
  if (!checkpoint.ok()) return checkpoint.status();
  return Transformer::Create(*std::move(config), *std::move(checkpoint),
                             *MakeCpuBackend({.num_threads = 1}))
      .status();
}

TEST(LoadWeightsTest, NamesEachTensorThatIsMissingOrOfAnotherShape) {
  for (const char* name :
       {kTinyModel, "qwen2_tiny", "llama3_tiny", "mistral_tiny", "gemma3_tiny", "pagoda_qwen3_tiny",
        "deepseek_v2_tiny", "deepseek_v3_tiny", "gpt_oss_tiny"}) {
    SCOPED_TRACE(name);
    const auto tensors = ExpectedTensors(*LoadModelConfig(GoldenDir(name)));
    for (const auto& [tensor, shape] : tensors) {
      // All layers are alike.
      if (tensor.find(".layers.") != std::string::npos &&
          tensor.find(".layers.1.") == std::string::npos) {
        continue;
      }
      const std::string quoted = tensor;
      ScratchModel missing(name);
      missing.EditHeader([&](json& header) { header.erase(quoted); });
      const absl::Status status = Load(missing.dir());
      EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("has no tensor " + tensor));

      ScratchModel other(name);
      other.EditHeader([&](json& header) {
        json& of = header[quoted]["shape"];
        of.push_back(1);  // The same number of bytes.
      });
      const absl::Status refused = Load(other.dir());
      EXPECT_EQ(ReasonOf(refused), Reason::kInvalidCheckpoint) << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("tensor " + tensor + " has shape"));
    }
  }
}

TEST(TransformerTest, RefusesWhatNoGraphHas) {
  const auto create = [](const std::function<void(ModelConfig&)>& edit) {
    ModelConfig config = *LoadModelConfig(GoldenDir(kTinyModel));
    edit(config);
    return Transformer::Create(config, *Checkpoint::Open(GoldenDir(kTinyModel)),
                               *MakeCpuBackend({.num_threads = 1}))
        .status();
  };
  EXPECT_TRUE(create([](ModelConfig&) {}).ok());
  EXPECT_THAT(std::string(create([](ModelConfig& c) { c.layers[1].num_kv_heads = 3; }).message()),
              HasSubstr("layer 1 has 3 KV heads for 4 heads"));
  EXPECT_THAT(std::string(create([](ModelConfig& c) { c.layers[1].rotary = 1; }).message()),
              HasSubstr("layer 1 has rotary embedding 1 of 1"));
  EXPECT_THAT(std::string(create([](ModelConfig& c) { c.head_dim = 31; }).message()),
              HasSubstr("head_dim is 31"));
  EXPECT_THAT(std::string(create([](ModelConfig& c) { c.layers.clear(); }).message()),
              HasSubstr("no layers"));
}

TEST(CpuBackendTest, SaysWhatItComputesIn) {
  const auto description = [](const char* model, ComputeType compute) {
    auto transformer =
        Transformer::Create(*LoadModelConfig(GoldenDir(model)), *Checkpoint::Open(GoldenDir(model)),
                            *MakeCpuBackend({.num_threads = 2, .compute = compute}));
    return (*transformer)->backend().description();
  };
  const bool fast = kernels::cpu::BestIsa() == kernels::cpu::Isa::kAvx512Bf16;
  EXPECT_EQ(description(kTinyModel, ComputeType::kAuto), "cpu, 2 threads, products of fp32");
  EXPECT_EQ(description(kUntiedModel, ComputeType::kFloat32), "cpu, 2 threads, products of fp32");
  EXPECT_EQ(description(kUntiedModel, ComputeType::kAuto),
            fast ? "cpu, 2 threads, products of bf16" : "cpu, 2 threads, products of fp32");
  const auto rounded = MakeCpuBackend({.compute = ComputeType::kBFloat16});
  EXPECT_EQ(rounded.ok(), fast);
  if (!fast) {
    EXPECT_EQ(ReasonOf(rounded.status()), Reason::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pagoda
