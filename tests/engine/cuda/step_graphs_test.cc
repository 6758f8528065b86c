// Decode steps that are captured and replayed give the answers of steps that are not. On the
// emulation a graph is a list of launches with copies of their arguments.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/engine_options.h"
#include "engine/checkpoint/adapter.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/words/gpu_graphs.h"
#include "tests/base/require.h"
#include "tests/engine/cuda/played_steps.h"
#include "tests/engine/cuda/test_backend.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda {
namespace {

using kernels::ElementType;
using kernels::cuda::IsEmulated;

struct GraphedModel {
  const char* name;
  ElementType kv_type;
  std::vector<std::string> adapters = {};
  FusedChoice fused = {};
};

std::unique_ptr<Transformer> Load(const GraphedModel& model, GpuGraphs graphs) {
  const std::string dir = GoldenDir(model.name);
  const ModelConfig config = Require(LoadModelConfig(dir));
  Checkpoint checkpoint = Require(Checkpoint::Open(dir));
  const std::vector<AdaptableModule> modules = AdaptableModulesOf(config, checkpoint);
  std::vector<Adapter> adapters;
  for (const std::string& adapter : model.adapters) {
    adapters.push_back(Require(Adapter::Open(GoldenDir(adapter), modules)));
  }
  return Require(Transformer::Create(config, std::move(checkpoint),
                                     MakeTestBackend(ComputeType::kAuto, graphs, model.fused),
                                     std::move(adapters)));
}

class StepGraphsTest : public testing::TestWithParam<GraphedModel> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoBackend(); !why.empty()) GTEST_SKIP() << why;
  }

  Played PlayWith(GpuGraphs graphs, StepGraphCounts* counts) const {
    const auto model = Load(GetParam(), graphs);
    const std::unique_ptr<KvMemory> memory = MakeTestKvMemory();
    const PlayOptions options = {.kv_type = GetParam().kv_type,
                                 .steps = !IsEmulated()                 ? 400u
                                          : GetParam().adapters.empty() ? 40u
                                                                        : 100u,
                                 .most_sequences = GetParam().adapters.empty() ? 7u : 3u,
                                 .num_adapters = static_cast<uint32_t>(GetParam().adapters.size())};
    Played played = Play(*model, memory.get(), options);
    *counts = model->backend().graph_counts();
    return played;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Models, StepGraphsTest,
    testing::Values(GraphedModel{kUntiedModel, ElementType::kBFloat16},
                    GraphedModel{"llama3_tiny", ElementType::kBFloat16},
                    GraphedModel{"gemma2_tiny", ElementType::kFloat16},
                    GraphedModel{"phi3_longrope_tiny", ElementType::kFloat32},
                    GraphedModel{"bloom_tiny", ElementType::kBFloat16},
                    GraphedModel{kTinyModel, ElementType::kFloat8E4M3},
                    GraphedModel{kTinyModel,
                                 ElementType::kBFloat16,
                                 {},
                                 {.rows = false, .heads = false, .products = false}},
                    GraphedModel{kTinyModel,
                                 ElementType::kBFloat16,
                                 {"adapters/qwen3_all", "adapters/qwen3_attention"}}),
    [](const auto& model) {
      return std::string(model.param.name) + std::to_string(int(model.param.kv_type)) +
             (model.param.adapters.empty() ? "" : "WithAdapters") +
             (model.param.fused.rows ? "" : "NotFused");
    });

TEST_P(StepGraphsTest, AnswerAsStepsWithoutGraphs) {
  StepGraphCounts off, on;
  const Played expected = PlayWith(GpuGraphs::kOff, &off);
  const Played played = PlayWith(GpuGraphs::kAuto, &on);
  EXPECT_EQ(off.captured + off.replayed, 0u);
  EXPECT_EQ(on.failures, 0u) << on.problem;
  EXPECT_GE(on.captured, 1u);
  EXPECT_GT(on.replayed, on.captured);
  ASSERT_EQ(played.tokens, expected.tokens);
  ASSERT_EQ(played.logits.size(), expected.logits.size());
  for (size_t step = 0; step < expected.logits.size(); ++step) {
    ASSERT_EQ(played.logits[step].size(), expected.logits[step].size()) << step;
    for (size_t i = 0; i < expected.logits[step].size(); ++i) {
      ASSERT_EQ(played.logits[step][i], expected.logits[step][i]) << "step " << step;
    }
  }
}

// Two steps of a shape have the same launches with the same arguments, whatever their tokens,
// lengths and tables.
TEST_P(StepGraphsTest, StepsOfAShapeHaveEqualLaunches) {
  StepGraphCounts counts;
  PlayWith(GpuGraphs::kCheck, &counts);
  EXPECT_EQ(counts.mismatches, 0u) << counts.problem;
  EXPECT_EQ(counts.failures, 0u) << counts.problem;
  EXPECT_GT(counts.replayed, counts.captured);
}

}  // namespace
}  // namespace pagoda
