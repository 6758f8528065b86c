// A step with adapters fuses no products: the changes of adapters come behind each product.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "engine/checkpoint/adapter.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/cuda/device_backend.h"
#include "engine/model/layers/transformer.h"
#include "tests/base/require.h"
#include "tests/engine/cuda/emulated_device.h"
#include "tests/engine/cuda/test_backend.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/model/model_runner.h"

namespace pagoda::cuda {
namespace {

struct Ran {
  std::vector<float> logits;
  uint64_t products = 0;  // By the library.
};

Ran StepWith(AdapterIndex adapter, const FusedChoice& fused,
             ComputeType compute = ComputeType::kBFloat16) {
  EmulatedDevice::State state;
  const std::string dir = GoldenDir(kTinyModel);
  const ModelConfig config = Require(LoadModelConfig(dir));
  Checkpoint checkpoint = Require(Checkpoint::Open(dir));
  std::vector<Adapter> adapters;
  adapters.push_back(Require(
      Adapter::Open(GoldenDir("adapters/qwen3_all"), AdaptableModulesOf(config, checkpoint))));
  const auto model = Require(Transformer::Create(
      config, std::move(checkpoint),
      MakeDeviceBackend(std::make_unique<EmulatedDevice>(&state),
                        std::make_unique<HostProducts>(&state), compute, {}, fused),
      std::move(adapters)));
  constexpr uint32_t kBlock = 16;
  const std::unique_ptr<KvMemory> memory = MakeTestKvMemory();
  const uint64_t row = 2 * config.head_dim;
  std::vector<kernels::KvLayer> layers;
  for (const LayerConfig& layer : config.layers) {
    const uint64_t part = kBlock * row * layer.num_kv_heads;
    std::byte* const bytes = memory->Allocate(2 * part);
    layers.push_back({.keys = bytes,
                      .values = bytes + part,
                      .type = kernels::ElementType::kBFloat16,
                      .num_slots = 1,
                      .num_kv_heads = layer.num_kv_heads,
                      .tokens_per_block = kBlock,
                      .head_dim = config.head_dim,
                      .slot_stride_bytes = 2 * part,
                      .head_stride_bytes = kBlock * row,
                      .token_stride_bytes = row});
  }
  const std::vector<TokenId> tokens = {3, 141, 59};
  const std::vector<SlotIndex> table = {SlotIndex(0)};
  const std::vector<absl::Span<const SlotIndex>> tables(model->windows().size(), table);
  ModelInput input;
  MakeInput({{{.tokens = tokens, .tables = tables, .num_logits = 1, .adapter = adapter}}},
            model->windows(), kBlock, input);
  const absl::Span<const float> logits = Require(model->Forward(input, layers));
  return {.logits = {logits.begin(), logits.end()}, .products = state.products};
}

TEST(AdapterProductsTest, OnlyStepsWithoutAdaptersFuseProducts) {
  const Ran fused = StepWith(AdapterIndex(0), {.products = true});
  const Ran apart = StepWith(AdapterIndex(0), {.products = false});
  EXPECT_EQ(fused.logits, apart.logits);
  EXPECT_EQ(fused.products, apart.products);
  const Ran without = StepWith(kNoAdapter, {.products = false});
  EXPECT_NE(without.logits, apart.logits) << "the adapter changes nothing";
  EXPECT_LT(StepWith(kNoAdapter, {.products = true}).products, without.products);
}

// Adapters read the rows of 16 bits that the model's products read.
TEST(AdapterProductsTest, In16BitsTheChangeIsThatOfFp32) {
  const Ran exact = StepWith(AdapterIndex(0), {}, ComputeType::kFloat32);
  const Ran rounded = StepWith(AdapterIndex(0), {});
  ASSERT_EQ(exact.logits.size(), rounded.logits.size());
  double errors = 0, squares = 0;
  for (size_t i = 0; i < exact.logits.size(); ++i) {
    errors += std::pow(double{rounded.logits[i]} - exact.logits[i], 2);
    squares += std::pow(double{exact.logits[i]}, 2);
  }
  EXPECT_LT(std::sqrt(errors / squares), 0.03);
}

}  // namespace
}  // namespace pagoda::cuda
