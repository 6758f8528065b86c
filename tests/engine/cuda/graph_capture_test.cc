// When graphs are captured, kept, replayed and dropped; and what happens if a launch's arguments
// change although they were captured. On the emulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/graph_warnings.h"
#include "engine/model/backend/forwarding_backend.h"
#include "engine/model/cuda/device_backend.h"
#include "engine/model/cuda/kernels/row_kernels.h"
#include "engine/model/cuda/step/step_graphs.h"
#include "engine/model/layers/transformer.h"
#include "kernels/cuda/device/launch_record.h"
#include "kernels/cuda/device/runtime.h"
#include "tests/base/require.h"
#include "tests/engine/cuda/emulated_device.h"
#include "tests/engine/cuda/played_steps.h"
#include "tests/engine/cuda/test_backend.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/model/model_runner.h"
#include "tests/kernels/cuda_emulation/launch_count.h"

namespace pagoda::cuda {
namespace {

using kernels::KvLayer;
using kernels::cuda::LaunchRecord;
using kernels::cuda::ScopedLaunchRecord;
using ::testing::HasSubstr;

// Steps that add `addend` to a number in device memory.
class GraphKeepingTest : public testing::Test {
 protected:
  GraphKeepingTest() : number_(&device_, MemorySide::kDevice) {
    EXPECT_TRUE(number_.Reserve(2 * sizeof(float)).ok());
    number_.as<float>()[0] = 0;
    number_.as<float>()[1] = 1;
  }

  // The sum after one more step.
  float Step(const std::vector<uint64_t>& shape) {
    const absl::Status ran = graphs_.Run(shape, pools_, [&] {
      ++calls_;
      const RowsView sum = {.data = number_.as<float>(), .stride = 1, .rows = 1, .cols = 1};
      RowsView addend = sum;
      addend.data += 1;
      return kernels::cuda::StatusOf("addition", LaunchAdd(addend, sum, device_.stream()));
    });
    EXPECT_TRUE(ran.ok()) << ran;
    return number_.as<float>()[0];
  }

  EmulatedDevice::State state_;
  EmulatedDevice device_{&state_};
  DeviceBuffer number_;
  std::vector<KvLayer> pools_ = std::vector<KvLayer>(2);
  StepGraphs graphs_{&device_, GpuGraphs::kAuto};
  int calls_ = 0;
};

TEST_F(GraphKeepingTest, TheFirstStepRunsPlainlyTheSecondIsCapturedLaterOnesAreReplayed) {
  EXPECT_EQ(Step({1}), 1);
  EXPECT_EQ(state_.captures, 0u);
  EXPECT_EQ(Step({1}), 2);
  EXPECT_EQ(graphs_.counts().captured, 1u);
  EXPECT_EQ(calls_, 2);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(Step({1}), i);
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(graphs_.counts().replayed, 3u);
  // Numbers in device memory are read anew.
  number_.as<float>()[1] = 10;
  EXPECT_EQ(Step({1}), 15);
  EXPECT_EQ(Step({2}), 25);
  EXPECT_EQ(calls_, 3) << "another shape has no graph";
}

TEST_F(GraphKeepingTest, TheLeastRecentlyUsedGraphLeaves) {
  for (uint64_t shape = 0; shape < StepGraphs::kMostGraphs; ++shape) {
    Step({shape});
    Step({shape});
  }
  EXPECT_EQ(state_.graphs, StepGraphs::kMostGraphs);
  Step({0});
  Step({1000});
  Step({1000});
  EXPECT_EQ(state_.graphs, StepGraphs::kMostGraphs);
  EXPECT_EQ(graphs_.counts().dropped, 1u);
  const int calls = calls_;
  Step({0});
  EXPECT_EQ(calls_, calls) << "it was used recently";
  Step({1});
  EXPECT_EQ(calls_, calls + 1) << "it left";
  EXPECT_LE(state_.most_graphs, StepGraphs::kMostGraphs);
}

TEST_F(GraphKeepingTest, ChangesOfMemoryAndPoolsDropAllGraphs) {
  const auto replays = [&] {
    const uint64_t before = graphs_.counts().replayed;
    Step({1});
    return graphs_.counts().replayed > before;
  };
  const auto capture = [&] {
    Step({1});
    Step({1});
    EXPECT_TRUE(replays());
  };
  capture();
  DeviceBuffer other(&device_, MemorySide::kDevice);
  EXPECT_TRUE(other.Reserve(64).ok());
  EXPECT_FALSE(replays());
  EXPECT_EQ(state_.graphs, 0u);
  capture();
  { const DeviceBuffer freed = std::move(other); }
  EXPECT_FALSE(replays());
  std::byte pool[64];
  const std::function<void(KvLayer&)> changes[] = {
      [&](KvLayer& layer) { layer.keys = pool; },
      [&](KvLayer& layer) { layer.values = pool; },
      [&](KvLayer& layer) { layer.num_slots = 3; },
      [&](KvLayer& layer) { layer.slot_stride_bytes = 32; },
      [&](KvLayer& layer) { layer.type = kernels::ElementType::kBFloat16; },
      [&](KvLayer& layer) { layer.scales.keys = reinterpret_cast<const float*>(pool); },
      [&](KvLayer& layer) { layer.scales.slot_stride = 4; }};
  for (const auto& change : changes) {
    capture();
    change(pools_.back());
    EXPECT_FALSE(replays());
  }
  capture();
  pools_.pop_back();
  EXPECT_FALSE(replays());
}

TEST_F(GraphKeepingTest, AFailedCaptureOrLaunchEndsGraphsAndLosesNoStep) {
  Step({1});
  state_.capture = absl::InternalError("no graph");
  EXPECT_EQ(Step({1}), 2);
  EXPECT_EQ(graphs_.counts().failures, 1u);
  EXPECT_THAT(graphs_.counts().problem, HasSubstr("no graph"));
  EXPECT_FALSE(graphs_.on());
  state_.capture = absl::OkStatus();
  for (int i = 3; i < 6; ++i) EXPECT_EQ(Step({1}), i);
  EXPECT_EQ(state_.captures, 1u) << "it is not tried again";
  EXPECT_EQ(graphs_.counts().failures, 1u);
}

TEST_F(GraphKeepingTest, AFailedLaunchOfAGraphRunsTheStepPlainly) {
  Step({1});
  Step({1});
  EXPECT_EQ(Step({1}), 3);
  state_.launch = absl::InternalError("no launch");
  EXPECT_EQ(Step({1}), 4);
  EXPECT_EQ(Step({1}), 5);
  EXPECT_EQ(graphs_.counts().failures, 1u);
  EXPECT_EQ(state_.graphs, 0u);
}

// A buffer that the first step did not need grows in the second.
TEST_F(GraphKeepingTest, ACaptureInWhichMemoryGrowsIsTriedAgainLater) {
  DeviceBuffer growing(&device_, MemorySide::kDevice);
  uint64_t wanted = 0;
  const auto step = [&] {
    return graphs_.Run({1}, pools_, [&] {
      ++calls_;
      return wanted == 0 ? absl::OkStatus() : growing.Grow(wanted);
    });
  };
  EXPECT_TRUE(step().ok());
  wanted = 100;
  EXPECT_TRUE(step().ok());
  EXPECT_EQ(calls_, 3) << "the capture failed, and then it ran plainly";
  EXPECT_TRUE(graphs_.on());
  EXPECT_TRUE(step().ok());
  EXPECT_TRUE(step().ok());
  EXPECT_TRUE(step().ok());
  EXPECT_EQ(graphs_.counts().captured, 1u);
  EXPECT_EQ(graphs_.counts().replayed, 1u);
}

// CUDA refuses to free memory in a capture. The old memory of a buffer is not lost by that.
TEST_F(GraphKeepingTest, ABufferThatGrowsInACaptureGivesItsOldMemoryBack) {
  DeviceBuffer growing(&device_, MemorySide::kDevice);
  ASSERT_TRUE(growing.Grow(128).ok());
  const uint64_t used = state_.used_bytes;
  uint64_t wanted = 128;
  uint64_t used_in_capture = 0;
  const auto step = [&] {
    return graphs_.Run({1}, pools_, [&] {
      const absl::Status grown = growing.Grow(wanted);
      if (graphs_.capturing()) used_in_capture = state_.used_bytes;
      return grown;
    });
  };
  EXPECT_TRUE(step().ok());
  wanted = 1024;
  EXPECT_TRUE(step().ok());
  EXPECT_EQ(used_in_capture, used) << "it is freed behind the capture";
  EXPECT_EQ(growing.bytes(), 1024u);
  EXPECT_EQ(state_.used_bytes, used + 1024 - 128);
  EXPECT_EQ(state_.graphs, 0u);
  EXPECT_TRUE(graphs_.on());
}

// A backend whose attention has an argument that changes from step to step.
class ChangingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void BeginStep(const ModelInput& input, const ModelConfig& config) override {
    scale_ *= 1.02f;
    ForwardingBackend::BeginStep(input, config);
  }
  void Attend(const AttentionShape& shape, const RowsView& queries, const KvLayer& kv,
              const RowsView& output) override {
    AttentionShape changed = shape;
    changed.scale *= scale_;
    ForwardingBackend::Attend(changed, queries, kv, output);
  }

 private:
  float scale_ = 1.0f;
};

Played PlayChanging(GpuGraphs graphs, StepGraphCounts* counts) {
  const auto model =
      LoadModel(GoldenDir(kUntiedModel),
                std::make_unique<ChangingBackend>(MakeTestBackend(ComputeType::kAuto, graphs)));
  const std::unique_ptr<KvMemory> memory = MakeTestKvMemory();
  Played played = Play(*model, memory.get(), {.steps = 24, .most_sequences = 2});
  *counts = model->backend().graph_counts();
  return played;
}

// The comparisons of step_graphs_test.cc can fail.
TEST(ChangingArgumentTest, AReplayHasTheOldOneAndTheCheckFindsThat) {
  StepGraphCounts off, on, checked;
  const Played expected = PlayChanging(GpuGraphs::kOff, &off);
  const Played replayed = PlayChanging(GpuGraphs::kAuto, &on);
  EXPECT_GT(on.replayed, 0u);
  EXPECT_NE(replayed.logits, expected.logits);
  const Played found = PlayChanging(GpuGraphs::kCheck, &checked);
  EXPECT_GT(checked.mismatches, 0u);
  EXPECT_EQ(checked.replayed, 0u);
  EXPECT_THAT(checked.problem, testing::ContainsRegex("launch [0-9]+, .*: byte [0-9]+ of its"));
  EXPECT_EQ(found.tokens, expected.tokens) << "such a step does not run by the old graph";
  EXPECT_EQ(found.logits, expected.logits);
}

struct DecodeModel {
  explicit DecodeModel(GpuGraphs graphs)
      : model(LoadModel(GoldenDir(kUntiedModel),
                        MakeDeviceBackend(std::make_unique<EmulatedDevice>(&state),
                                          std::make_unique<HostProducts>(&state),
                                          ComputeType::kAuto, {}, {}, graphs))),
        memory(MakeTestKvMemory()),
        runner(*model, {.kv_type = kernels::ElementType::kBFloat16, .memory = memory.get()}) {
    for (uint32_t s = 0; s < 3; ++s) {
      const size_t sequence = runner.AddSequence();
      runner.Run({{{.sequence = sequence, .tokens = {s, 5, 7}, .num_logits = 1}}});
      decode.push_back({.sequence = sequence, .tokens = {11}, .num_logits = 1});
    }
  }

  EmulatedDevice::State state;
  const std::unique_ptr<Transformer> model;
  const std::unique_ptr<KvMemory> memory;
  ModelRunner runner;
  std::vector<ModelRunner::Share> decode;
};

TEST(ReplayedStepTest, IsOneLaunch) {
  DecodeModel world(GpuGraphs::kAuto);
  for (int i = 0; i < 4; ++i) world.runner.Run(world.decode);
  EXPECT_GT(world.model->backend().graph_counts().replayed, 0u);
  const EmulatedDevice::State before = world.state;
  const uint64_t kernels = kernels::cuda::emulation::CountLaunches();
  world.runner.Run(world.decode);
  EXPECT_EQ(world.state.graph_launches - before.graph_launches, 1u);
  EXPECT_EQ(kernels::cuda::emulation::CountLaunches() - kernels, 1u) << "the angles";
  EXPECT_EQ(world.state.products - before.products, 0u);
  EXPECT_EQ(world.state.copies - before.copies, 2u) << "the input and the logits";
  EXPECT_EQ(world.state.waits - before.waits, 1u);
}

// The rows behind the sequences have no place in the cache.
TEST(ReplayedStepTest, WritesTheKvOfItsSequencesOnly) {
  DecodeModel plain(GpuGraphs::kOff), graphed(GpuGraphs::kAuto);
  for (int i = 0; i < 5; ++i) {
    plain.runner.Run(plain.decode);
    graphed.runner.Run(graphed.decode);
  }
  EXPECT_GT(graphed.model->backend().graph_counts().replayed, 0u);
  for (uint32_t layer = 0; layer < plain.model->config().layers.size(); ++layer) {
    EXPECT_EQ(graphed.runner.WrittenBytes(layer), plain.runner.WrittenBytes(layer)) << layer;
  }
}

// A context grows within its table's stride until attention cuts it, and needs a merge.
TEST(ReplayedStepTest, AContextThatIsCutHasAnotherGraph) {
  const auto play = [](GpuGraphs graphs, StepGraphCounts* counts) {
    const auto model =
        LoadModel(GoldenDir(kUntiedModel), MakeTestBackend(ComputeType::kAuto, graphs));
    const std::unique_ptr<KvMemory> memory = MakeTestKvMemory();
    ModelRunner runner(*model,
                       {.kv_type = kernels::ElementType::kBFloat16, .memory = memory.get()});
    std::vector<std::vector<float>> logits;
    // The first context is cut, so that the workspace does not grow later. The second one is cut
    // from 208 tokens on.
    for (const size_t prompt : {260, 200}) {
      const size_t sequence = runner.AddSequence();
      runner.Run({{{.sequence = sequence, .tokens = std::vector<TokenId>(prompt, 5)}}});
      for (TokenId step = 0; step < 14; ++step) {
        logits.push_back(
            runner.Run({{{.sequence = sequence, .tokens = {step}, .num_logits = 1}}}).front());
      }
    }
    *counts = model->backend().graph_counts();
    return logits;
  };
  StepGraphCounts off, on, checked;
  const auto expected = play(GpuGraphs::kOff, &off);
  EXPECT_EQ(play(GpuGraphs::kAuto, &on), expected);
  EXPECT_GE(on.captured - on.dropped, 2u) << "whole, and cut";
  EXPECT_EQ(play(GpuGraphs::kCheck, &checked), expected);
  EXPECT_EQ(checked.mismatches, 0u) << checked.problem;
}

// Steps with different numbers of draws have one graph.
TEST(ReplayedStepTest, DrawsAreNotAPartOfTheShape) {
  DecodeModel world(GpuGraphs::kCheck);
  for (uint32_t s = 3; s < 8; ++s) {
    world.decode.push_back(
        {.sequence = world.runner.AddSequence(), .tokens = {s}, .num_logits = 1});
  }
  const auto run = [&](size_t sequences) {
    const std::vector<ModelRunner::Share> some(
        world.decode.begin(), world.decode.begin() + static_cast<std::ptrdiff_t>(sequences));
    world.runner.RunWithDraws(some,
                              std::vector<TokenDraw>(sequences, {.kind = TokenDraw::Kind::kToken}));
  };
  for (int i = 0; i < 4; ++i) run(8);
  const uint64_t replayed = world.model->backend().graph_counts().replayed;
  run(5);
  world.runner.Run({world.decode.data(), 6});
  run(7);
  const StepGraphCounts counts = world.model->backend().graph_counts();
  EXPECT_EQ(counts.replayed, replayed + 3);
  EXPECT_EQ(counts.mismatches, 0u) << counts.problem;
  EXPECT_EQ(world.state.graphs, 1u);
}

TEST(ReplayedStepTest, AFailedCaptureDoesNotFailTheStep) {
  DecodeModel plain(GpuGraphs::kOff), failing(GpuGraphs::kAuto);
  failing.state.capture = absl::InternalError("no graph");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(failing.runner.Run(failing.decode), plain.runner.Run(plain.decode)) << i;
  }
  EXPECT_EQ(failing.model->backend().graph_counts().failures, 1u);
  EXPECT_EQ(failing.state.captures, 1u);
}

TEST(ReplayedStepTest, PromptsAndStepsThatWantFewLogitsAreNotReplayed) {
  DecodeModel world(GpuGraphs::kAuto);
  std::vector<ModelRunner::Share> some = world.decode, prompts = world.decode;
  some[1].num_logits = 0;
  prompts[2].tokens = {3, 4};
  for (int i = 0; i < 4; ++i) {
    world.runner.Run(some);
    world.runner.Run(prompts);
  }
  EXPECT_EQ(world.state.captures, 0u);
}

TEST(ReplayedStepTest, OtherPoolsAreNotThoseOfTheGraph) {
  DecodeModel world(GpuGraphs::kAuto);
  for (int i = 0; i < 4; ++i) world.runner.Run(world.decode);
  EXPECT_EQ(world.state.graphs, 1u);
  ModelRunner other(*world.model,
                    {.kv_type = kernels::ElementType::kBFloat16, .memory = world.memory.get()});
  const size_t sequence = other.AddSequence();
  other.Run({{{.sequence = sequence, .tokens = {1}, .num_logits = 1}}});
  EXPECT_EQ(world.state.graphs, 0u);
}

// An earlier mismatch does not hide that there are no graphs any more.
TEST(GraphWarningsTest, EachKindIsToldOnce) {
  GraphWarnings warnings;
  StepGraphCounts counts;
  EXPECT_EQ(warnings.Next(counts), "");
  counts.mismatches = 1;
  counts.problem = "a grid";
  EXPECT_EQ(warnings.Next(counts), "the launches of a step were not those of its graph: a grid");
  ++counts.mismatches;
  EXPECT_EQ(warnings.Next(counts), "");
  counts.failures = 1;
  counts.problem = "no memory";
  EXPECT_EQ(warnings.Next(counts), "decode steps run without CUDA graphs from now on: no memory");
  EXPECT_EQ(warnings.Next(counts), "");
}

TEST(LaunchRecordTest, TellsTheFirstDifference) {
  EmulatedDevice::State state;
  EmulatedDevice device(&state);
  DeviceBuffer memory(&device, MemorySide::kDevice);
  ASSERT_TRUE(memory.Reserve(1024).ok());
  std::fill_n(memory.as<float>(), 256, 0.0f);
  const RowsView rows = {.data = memory.as<float>(), .stride = 4, .rows = 2, .cols = 4};
  const auto record = [&](float cap, const RowsView& of) {
    LaunchRecord made;
    const ScopedLaunchRecord scope(&made);
    LaunchClear(of, device.stream());
    LaunchSoftCap(cap, of, device.stream());
    return made;
  };
  using kernels::cuda::DifferenceOf;
  const LaunchRecord one = record(1, rows);
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(DifferenceOf(one, record(1, rows)), "");
  EXPECT_THAT(DifferenceOf(one, record(2, rows)),
              testing::ContainsRegex("launch 1, .*: byte [0-9]+ of its arguments"));
  RowsView more = rows;
  more.rows = 32;
  EXPECT_THAT(DifferenceOf(one, record(1, more)), HasSubstr("launch 0"));
  LaunchRecord longer = one;
  longer.push_back(one.front());
  EXPECT_EQ(DifferenceOf(one, longer), "there were 2 launches, there are 3");
  LaunchClear(rows, device.stream());
  EXPECT_EQ(kernels::cuda::CurrentLaunchRecord(), nullptr);
}

}  // namespace
}  // namespace pagoda::cuda
