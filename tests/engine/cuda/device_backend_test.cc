// The GPU backend's use of memory and its handling of failures, on the emulation.
#include "engine/model/cuda/device_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/layers/transformer.h"
#include "tests/engine/cuda/emulated_device.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/model/model_runner.h"
#include "tests/kernels/cuda_emulation/emulator.h"
#include "tests/kernels/cuda_emulation/launch_count.h"

namespace pagoda::cuda {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Transformer>> Load(EmulatedDevice::State* state, const char* name,
                                                  ComputeType compute = ComputeType::kFloat32,
                                                  const AttentionChoice& attention = {},
                                                  const FusedChoice& fused = {}) {
  const std::string dir = GoldenDir(name);
  return Transformer::Create(
      *LoadModelConfig(dir), *Checkpoint::Open(dir),
      MakeDeviceBackend(std::make_unique<EmulatedDevice>(state),
                        std::make_unique<HostProducts>(state), compute, attention, fused));
}

// The logits of the last of some tokens. Their KV is not used afterwards.
absl::StatusOr<std::vector<float>> Step(
    Transformer& model, const std::vector<TokenId>& tokens = {3, 141, 59},
    kernels::ElementType type = kernels::ElementType::kFloat32) {
  const ModelConfig& config = model.config();
  constexpr uint32_t kBlock = 32;
  const uint64_t row = config.head_dim * kernels::ElementBytes(type);
  const uint64_t head = kBlock * row;
  std::vector<std::vector<std::byte>> memory;
  std::vector<kernels::KvLayer> layers;
  for (const LayerConfig& layer : config.layers) {
    memory.emplace_back(2 * head * layer.num_kv_heads);
    layers.push_back({.keys = memory.back().data(),
                      .values = memory.back().data() + head * layer.num_kv_heads,
                      .type = type,
                      .num_slots = 1,
                      .num_kv_heads = layer.num_kv_heads,
                      .tokens_per_block = kBlock,
                      .head_dim = config.head_dim,
                      .slot_stride_bytes = 2 * head * layer.num_kv_heads,
                      .head_stride_bytes = head,
                      .token_stride_bytes = row});
  }
  const std::vector<SlotIndex> table = {SlotIndex(0)};
  const std::vector<absl::Span<const SlotIndex>> tables(model.windows().size(), table);
  ModelInput input;
  MakeInput({{{.tokens = tokens, .tables = tables, .num_logits = 1}}}, model.windows(), kBlock,
            input);
  const absl::StatusOr<absl::Span<const float>> logits = model.Forward(input, layers);
  if (!logits.ok()) return logits.status();
  return std::vector<float>(logits->begin(), logits->end());
}

TEST(DeviceBackendTest, SaysWhereAndInWhatItComputes) {
  EmulatedDevice::State state;
  EXPECT_EQ((*Load(&state, kTinyModel))->backend().description(),
            "cuda:0, emulated, products of fp32 by plain loops");
  EXPECT_EQ((*Load(&state, kUntiedModel, ComputeType::kAuto))->backend().description(),
            "cuda:0, emulated, products of bf16 by plain loops");
  EXPECT_EQ((*Load(&state, "llama3_tiny_f16_gguf", ComputeType::kAuto))->backend().description(),
            "cuda:0, emulated, products of fp16 by plain loops");
  EXPECT_EQ((*Load(&state, "llama3_tiny_q8_0_gguf", ComputeType::kAuto))->backend().description(),
            "cuda:0, emulated, products of fp32 by plain loops");
  EXPECT_EQ((*Load(&state, kTinyModel, ComputeType::kBFloat16))->backend().description(),
            "cuda:0, emulated, products of bf16 by plain loops");
  EXPECT_EQ(state.used_bytes, 0u);
}

// Only the kernels for Hopper multiply by warpgroups, for prefill.
TEST(DeviceBackendTest, RunsTheKernelsOfAttentionThatAreAskedFor) {
  using kernels::cuda::AttentionKernels;
  const auto products = [](const AttentionChoice& attention) {
    EmulatedDevice::State state;
    const auto model = *Load(&state, kTinyModel, ComputeType::kFloat32, attention);
    const uint64_t before = kernels::cuda::emulation::CountProducts();
    const auto logits = Step(*model, std::vector<TokenId>(24, 7), kernels::ElementType::kBFloat16);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return kernels::cuda::emulation::CountProducts() - before;
  };
  constexpr AttentionKernels kSm80 = AttentionKernels::kSm80;
  constexpr AttentionKernels kHopper = AttentionKernels::kHopper;
  EXPECT_GT(products({.decode = kHopper, .prefill = kHopper}), 0u);
  EXPECT_GT(products({.decode = kSm80, .prefill = kHopper}), 0u);
  EXPECT_EQ(products({.decode = kHopper, .prefill = kSm80}), 0u);
  EXPECT_EQ(products({.decode = kSm80, .prefill = kSm80}), 0u);
  EXPECT_EQ(products({}), 0u) << "nothing is proved";
}

// The same numbers are rounded to bf16 in both, so they differ by the order of sums only.
TEST(DeviceBackendTest, SeparateKernelsComputeWhatFusedOnesDo) {
  using kernels::cuda::emulation::CountLaunches;
  const std::vector<TokenId> tokens = {3, 141, 59, 26, 5, 35, 89, 79, 32};
  for (const char* name : {kUntiedModel, "qwen2_tiny", "gemma2_tiny", "phi3_tiny", "bloom_tiny"}) {
    SCOPED_TRACE(name);
    std::vector<std::vector<float>> logits;
    std::vector<uint64_t> launches;
    for (const FusedChoice& fused :
         {FusedChoice{.rows = false, .heads = false}, FusedChoice{.rows = true, .heads = false},
          FusedChoice{.rows = false, .heads = true}, FusedChoice{}}) {
      EmulatedDevice::State state;
      const auto model = *Load(&state, name, ComputeType::kBFloat16, {}, fused);
      const uint64_t before = CountLaunches();
      const auto step = Step(*model, tokens, kernels::ElementType::kBFloat16);
      ASSERT_TRUE(step.ok()) << step.status();
      launches.push_back(CountLaunches() - before);
      logits.push_back(*step);
    }
    for (size_t i = 1; i < logits.size(); ++i) {
      EXPECT_LT(launches[i], launches[0]) << i;
      double errors = 0, squares = 0;
      for (size_t t = 0; t < logits[0].size(); ++t) {
        errors += std::pow(double{logits[i][t]} - logits[0][t], 2);
        squares += std::pow(double{logits[0][t]}, 2);
      }
      EXPECT_LT(std::sqrt(errors / squares), 3e-3) << i;
    }
    EXPECT_LT(launches[3], std::min(launches[1], launches[2]));
  }
}

// Products of few rows with what is next to them, in models with each norm, end and kind of input.
// Both ways round the same numbers to bf16.
TEST(DeviceBackendTest, SeparateProductsComputeWhatFusedOnesDo) {
  const std::vector<TokenId> few = {3, 141, 59, 26, 5, 35, 89, 79};
  std::vector<TokenId> many = few;
  many.push_back(32);
  for (const char* name :
       {kUntiedModel, "qwen2_tiny", "gemma2_tiny", "bloom_tiny", "gpt_oss_tiny"}) {
    SCOPED_TRACE(name);
    for (const bool rows : {true, false}) {
      // The number of the library's products.
      const auto run = [&](bool products, const std::vector<TokenId>& tokens, uint64_t* count) {
        EmulatedDevice::State state;
        const auto model =
            *Load(&state, name, ComputeType::kBFloat16, {}, {.rows = rows, .products = products});
        const auto step = Step(*model, tokens, kernels::ElementType::kBFloat16);
        EXPECT_TRUE(step.ok()) << step.status();
        *count = state.products;
        return *step;
      };
      uint64_t apart = 0, fused = 0;
      const std::vector<float> expected = run(false, few, &apart);
      const std::vector<float> logits = run(true, few, &fused);
      EXPECT_LT(fused, apart);
      double errors = 0, squares = 0;
      for (size_t t = 0; t < expected.size(); ++t) {
        errors += std::pow(double{logits[t]} - expected[t], 2);
        squares += std::pow(double{expected[t]}, 2);
      }
      EXPECT_LT(std::sqrt(errors / squares), 3e-3) << rows;
      // With more rows, both are the same launches.
      EXPECT_EQ(run(true, many, &fused), run(false, many, &apart));
      EXPECT_EQ(fused, apart);
    }
  }
}

// Products of all heads, whose inputs are columns of the same rows, round these once. Products of
// other rows, or with matrices of other types, round their own.
TEST(DeviceBackendTest, InputsOfTheSameRowsAreRoundedOnce) {
  using kernels::cuda::emulation::CountLaunches;
  EmulatedDevice::State state;
  const auto backend = MakeDeviceBackend(std::make_unique<EmulatedDevice>(&state),
                                         std::make_unique<HostProducts>(), ComputeType::kAuto);
  constexpr uint64_t kRows = 3, kHeads = 4, kInputs = 8, kOutputs = 2;
  std::vector<uint16_t> bits(kInputs * kOutputs);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(0x3f80 + 0x10 * i);
  const TensorInfo matrix = {.type = TensorType::kBFloat16,
                             .shape = {kOutputs, kInputs},
                             .bytes = absl::MakeConstSpan(
                                 reinterpret_cast<const std::byte*>(bits.data()), 2 * bits.size())};
  const auto weights = *backend->MakeLinear({&matrix, 1}, {});
  const FloatMemory memory = *backend->Allocate(8 * (kHeads * (kInputs + 1)));
  const FloatMemory apart = *backend->Allocate(8 * kInputs),
                    out = *backend->Allocate(8 * kHeads * 2);
  const FloatMemory alone = *backend->Allocate(8 * kHeads * 2);
  const auto view = [&](const FloatMemory& of, uint64_t cols) {
    return RowsView{.data = of.get(), .stride = cols, .rows = kRows, .cols = cols};
  };
  const RowsView all = view(memory, kHeads * (kInputs + 1));
  for (uint64_t i = 0; i < kRows * all.cols; ++i) all.data[i] = 0.01f * static_cast<float>(i);
  std::fill_n(apart.get(), kRows * kInputs, 1.0f);
  std::vector<ProductOfRows> products;
  for (uint64_t h = 0; h < kHeads; ++h) {
    products.push_back({.weights = weights.get(),
                        .input = all.Columns(h * (kInputs + 1), kInputs),
                        .output = view(out, kHeads * kOutputs).Columns(h * kOutputs, kOutputs)});
  }
  ModelInput input;
  ModelConfig config;
  backend->BeginStep(input, config);
  uint64_t before = CountLaunches();
  backend->MultiplyEach(products);
  EXPECT_EQ(CountLaunches() - before, 1u);
  for (uint64_t h = 0; h < kHeads; ++h) {
    backend->Multiply(*weights, products[h].input,
                      view(alone, kHeads * kOutputs).Columns(h * kOutputs, kOutputs));
  }
  for (uint64_t i = 0; i < kRows * kHeads * kOutputs; ++i) {
    EXPECT_EQ(out.get()[i], alone.get()[i]) << i;
    EXPECT_NE(out.get()[i], 0);
  }
  products[1].input = view(apart, kInputs);
  before = CountLaunches();
  backend->MultiplyEach(products);
  EXPECT_EQ(CountLaunches() - before, kHeads);
}

// Weights exist once; a head that is tied to the embedding is not a second copy.
TEST(DeviceBackendTest, WeightsTakeTheirOwnBytes) {
  EmulatedDevice::State state;
  const auto model = *Load(&state, kTinyModel);
  const ModelConfig& config = model->config();
  ASSERT_TRUE(config.tie_word_embeddings);
  const uint64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  uint64_t numbers = config.vocab_size * hidden;
  for (const LayerConfig& layer : config.layers) {
    const uint64_t keys = uint64_t{layer.num_kv_heads} * config.head_dim;
    numbers += (2 * queries + 2 * keys + 3 * intermediate) * hidden;
  }
  EXPECT_GE(state.used_bytes, numbers * sizeof(float));
  // Norms.
  EXPECT_LE(state.used_bytes, numbers * sizeof(float) + (uint64_t{64} << 10));
}

TEST(DeviceBackendTest, OutOfMemoryWhileLoadingLeavesNothing) {
  EmulatedDevice::State state;
  uint64_t needed = 0;
  {
    const auto model = Load(&state, kTinyModel);
    ASSERT_TRUE(model.ok());
    needed = state.used_bytes;
  }
  // The memory runs out at one allocation after another.
  for (uint64_t bytes = 0; bytes < needed; bytes += needed / 13) {
    state.device_bytes = bytes;
    const auto model = Load(&state, kTinyModel);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(ReasonOf(model.status()), Reason::kOutOfMemory) << model.status();
    EXPECT_EQ(state.used_bytes, 0u);
  }
}

TEST(DeviceBackendTest, OutOfMemoryInAStepIsItsErrorAndNotTheNextOnes) {
  EmulatedDevice::State state;
  const auto model = *Load(&state, kTinyModel, ComputeType::kBFloat16);
  const uint64_t loaded = state.used_bytes;
  ASSERT_TRUE(Step(*model).ok());
  const uint64_t needed = state.used_bytes;
  const auto again = *Load(&state, kTinyModel, ComputeType::kBFloat16);
  int refused = 0;
  for (uint64_t room = 0; room < needed - loaded; room += 512) {
    state.device_bytes = needed + loaded + room;
    const absl::Status status = Step(*again).status();
    if (status.ok()) continue;
    EXPECT_EQ(ReasonOf(status), Reason::kOutOfMemory) << status;
    ++refused;
  }
  EXPECT_GT(refused, 3);
  state.device_bytes = uint64_t{1} << 40;
  EXPECT_TRUE(Step(*again).ok());
  // A step that is not larger than an earlier one allocates nothing.
  state.device_bytes = state.used_bytes;
  EXPECT_TRUE(Step(*again).ok());
}

// Each copy of a step fails once, also in the first step, which makes the permanent copies.
TEST(DeviceBackendTest, AStepBehindAFailedOneIsRight) {
  EmulatedDevice::State state;
  const std::vector<float> expected = *Step(*Load(&state, kTinyModel).value());
  ASSERT_FALSE(expected.empty());
  for (uint32_t good = 0; good < 3; ++good) {
    const auto model = *Load(&state, kTinyModel);
    state.copy = absl::InternalError("cudaMemcpyAsync: cudaErrorUnknown");
    state.good_copies = good;
    EXPECT_EQ(Step(*model).status().code(), absl::StatusCode::kInternal) << good;
    state.copy = absl::OkStatus();
    const auto logits = Step(*model);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_EQ(*logits, expected) << good;
  }
}

TEST(DeviceBackendTest, WhatFailsInAStepIsNamedAndDoesNotStay) {
  EmulatedDevice::State state;
  const auto model = *Load(&state, kTinyModel);
  ASSERT_TRUE(Step(*model).ok());
  state.copy = absl::InternalError("cudaMemcpyAsync: cudaErrorInvalidValue");
  absl::Status status = Step(*model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("upload: cudaMemcpyAsync"));
  state.copy = absl::OkStatus();
  // A kernel's failure is known when it has run.
  state.wait = absl::InternalError("cudaStreamSynchronize: cudaErrorIllegalAddress");
  status = Step(*model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step: cudaStreamSynchronize"));
  state.wait = absl::OkStatus();
  EXPECT_TRUE(Step(*model).ok());
}

}  // namespace
}  // namespace pagoda::cuda
