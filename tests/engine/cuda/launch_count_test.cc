// How many kernels, products and copies a decode step starts on a GPU, counted on the emulation. A
// step of few sequences takes as long as its launches, so the bounds below only go down.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/backend/forwarding_backend.h"
#include "engine/model/cuda/device_backend.h"
#include "engine/model/layers/transformer.h"
#include "tests/base/require.h"
#include "tests/engine/cuda/emulated_device.h"
#include "tests/engine/cuda/test_backend.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/model/model_runner.h"
#include "tests/kernels/cuda_emulation/launch_count.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

struct Work {
  uint64_t kernels = 0;
  uint64_t products = 0;
  uint64_t copies = 0;
  uint64_t waits = 0;

  uint64_t launches() const { return kernels + products + copies; }
  friend Work operator-(const Work& a, const Work& b) {
    return {a.kernels - b.kernels, a.products - b.products, a.copies - b.copies, a.waits - b.waits};
  }
};

Work WorkOf(const EmulatedDevice::State& state) {
  return {.kernels = kernels::cuda::emulation::CountLaunches(),
          .products = state.products,
          .copies = state.copies,
          .waits = state.waits};
}

// Notes the work done so far at each attention.
class Watched final : public ForwardingBackend {
 public:
  Watched(std::unique_ptr<Backend> inner, const EmulatedDevice::State& state,
          std::vector<Work>* at_attention)
      : ForwardingBackend(std::move(inner)), state_(state), at_attention_(*at_attention) {}

  void Attend(const AttentionShape& shape, const RowsView& queries, const kernels::KvLayer& kv,
              const RowsView& output) override {
    at_attention_.push_back(WorkOf(state_));
    inner().Attend(shape, queries, kv, output);
  }

 private:
  const EmulatedDevice::State& state_;
  std::vector<Work>& at_attention_;
};

struct Counts {
  Work layer;  // From one layer's attention to the next one's.
  Work step;
};

// The work of a decode step of three sequences, of which the first one begins with `first_prompt`
// tokens.
Counts CountDecode(const std::string& name, ElementType kv_type, const FusedChoice& fused,
                   size_t first_prompt = 3) {
  EmulatedDevice::State state;
  std::vector<Work> at_attention;
  const std::string dir = GoldenDir(name);
  const auto model = Require(Transformer::Create(
      Require(LoadModelConfig(dir)), Require(Checkpoint::Open(dir)),
      std::make_unique<Watched>(MakeDeviceBackend(std::make_unique<EmulatedDevice>(&state),
                                                  std::make_unique<HostProducts>(&state),
                                                  ComputeType::kBFloat16, {}, fused),
                                state, &at_attention)));
  const std::unique_ptr<KvMemory> memory = MakeTestKvMemory();
  ModelRunner runner(*model, {.kv_type = kv_type, .memory = memory.get()});
  std::vector<ModelRunner::Share> prompts, decode;
  for (uint32_t s = 0; s < 3; ++s) {
    const size_t sequence = runner.AddSequence();
    const size_t prompt = s == 0 ? first_prompt : 3 + s;
    prompts.push_back({.sequence = sequence, .tokens = std::vector<TokenId>(prompt, 7)});
    decode.push_back({.sequence = sequence, .tokens = {11}, .num_logits = 1});
  }
  runner.Run(prompts);
  runner.Run(decode);
  // The buffers have grown, and the permanent copies are made.
  at_attention.clear();
  const Work before = WorkOf(state);
  runner.Run(decode);
  return {.layer = at_attention.at(1) - at_attention.at(0), .step = WorkOf(state) - before};
}

struct CountedModel {
  const char* name;
  ElementType kv_type;
  // Kernels, products and copies; with the library's products, and with fused ones.
  uint64_t most_in_layer;
  uint64_t most_in_fused_layer;
  // The work of a step outside its layers, with the library's products. Fused ones save a norm.
  uint64_t most_elsewhere;
};

class LaunchCountTest : public testing::TestWithParam<CountedModel> {};

INSTANTIATE_TEST_SUITE_P(
    Models, LaunchCountTest,
    testing::Values(CountedModel{kUntiedModel, ElementType::kBFloat16, 9, 6, 6},
                    CountedModel{"llama3_tiny", ElementType::kBFloat16, 9, 6, 6},
                    CountedModel{"qwen2_tiny", ElementType::kBFloat16, 9, 6, 6},
                    CountedModel{"gemma2_tiny", ElementType::kBFloat16, 9, 8, 7},
                    CountedModel{"gemma3_tiny", ElementType::kBFloat16, 9, 8, 7},
                    CountedModel{"phi3_tiny", ElementType::kBFloat16, 9, 6, 6},
                    CountedModel{"bloom_tiny", ElementType::kBFloat16, 12, 6, 6},
                    CountedModel{kTinyModel, ElementType::kFloat32, 10, 7, 6},
                    CountedModel{kTinyModel, ElementType::kFloat8E4M3, 11, 8, 6}),
    [](const auto& model) {
      return std::string(model.param.name) + std::to_string(int(model.param.kv_type));
    });

TEST_P(LaunchCountTest, OfADecodeStep) {
  const CountedModel& model = GetParam();
  const ModelConfig config = Require(LoadModelConfig(GoldenDir(model.name)));
  for (const bool fused : {false, true}) {
    const Counts counts = CountDecode(model.name, model.kv_type, {.products = fused});
    const uint64_t elsewhere =
        counts.step.launches() - config.layers.size() * counts.layer.launches();
    std::cout << model.name << (fused ? ", fused products" : "") << ": a layer has "
              << counts.layer.kernels << " kernels, " << counts.layer.products << " products and "
              << counts.layer.copies << " copies; the step has " << counts.step.launches()
              << " launches, " << elsewhere << " of them outside its layers, " << counts.step.copies
              << " copies and " << counts.step.waits << " waits\n";
    EXPECT_LE(counts.layer.launches(), fused ? model.most_in_fused_layer : model.most_in_layer);
    EXPECT_LE(elsewhere, model.most_elsewhere - (fused ? 1 : 0));
    EXPECT_EQ(counts.step.waits, 1u);
    EXPECT_EQ(counts.step.copies, 2u) << "the input and the logits";
  }
}

// Where attention is cut, it has one launch more: the merge.
TEST(LaunchCountCutTest, ACutContextAddsTheMergeToALayer) {
  for (const bool fused : {false, true}) {
    const FusedChoice choice = {.products = fused};
    const Counts whole = CountDecode(kUntiedModel, ElementType::kBFloat16, choice);
    const Counts cut =
        CountDecode(kUntiedModel, ElementType::kBFloat16, choice, /*first_prompt=*/280);
    EXPECT_LE(cut.layer.launches(), fused ? 7u : 10u);
    EXPECT_EQ(cut.layer.kernels, whole.layer.kernels + 1) << "the context is cut";
  }
}

// Tokens that the device draws come back without logits, after one wait.
TEST(LaunchCountDrawTest, ADrawnStepCopiesNoLogits) {
  EmulatedDevice::State state;
  const std::string dir = GoldenDir(kUntiedModel);
  const auto model = Require(Transformer::Create(
      Require(LoadModelConfig(dir)), Require(Checkpoint::Open(dir)),
      MakeDeviceBackend(std::make_unique<EmulatedDevice>(&state),
                        std::make_unique<HostProducts>(&state), ComputeType::kBFloat16)));
  const std::unique_ptr<KvMemory> memory = MakeTestKvMemory();
  ModelRunner runner(*model, {.kv_type = ElementType::kBFloat16, .memory = memory.get()});
  const std::vector<ModelRunner::Share> shares = {
      {.sequence = runner.AddSequence(), .tokens = {3, 7}, .num_logits = 1},
      {.sequence = runner.AddSequence(), .tokens = {9}, .num_logits = 1}};
  const TokenDraw greedy = {.kind = TokenDraw::Kind::kToken};
  TokenDraw random = {.kind = TokenDraw::Kind::kToken, .temperature = 1.0f, .uniform = 0.5};
  const auto count = [&](const std::vector<TokenDraw>& draws) {
    const Work before = WorkOf(state);
    const uint64_t bytes = state.copied_bytes;
    const ModelOutput output = runner.RunWithDraws(shares, draws);
    for (size_t row = 0; row < draws.size(); ++row) {
      EXPECT_EQ(output.has_logits(row), draws[row].kind == TokenDraw::Kind::kLogits) << row;
    }
    return std::pair(WorkOf(state) - before, state.copied_bytes - bytes);
  };
  count({greedy, greedy});
  const uint64_t row_bytes = model->config().vocab_size * sizeof(float);
  const auto [all_logits, all_bytes] = count({TokenDraw(), TokenDraw()});
  const auto [drawn, drawn_bytes] = count({greedy, greedy});
  EXPECT_EQ(drawn.copies, 2u) << "the input and the tokens";
  EXPECT_EQ(drawn.waits, 1u);
  EXPECT_EQ(drawn.kernels, all_logits.kernels + 2);
  EXPECT_LE(drawn_bytes + 2 * row_bytes, all_bytes + 64);
  // Only the row that needs them has logits.
  const auto [mixed, mixed_bytes] = count({TokenDraw(), random});
  EXPECT_EQ(mixed.copies, 3u);
  EXPECT_EQ(mixed.waits, 1u);
  EXPECT_EQ(mixed.kernels, all_logits.kernels + 4);
  EXPECT_LE(mixed_bytes + row_bytes, all_bytes + 64);
}

}  // namespace
}  // namespace pagoda::cuda
