// The graph of every architecture on a GPU backend, compared with Hugging Face transformers'
// answers. The emulation is some ten thousand times slower than a GPU: there each test uses fewer
// tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/cuda/test_backend.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/model/model_runner.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda {
namespace {

using kernels::ElementType;
using kernels::cuda::IsEmulated;

// The model's own answers are fp32; so is everything here.
constexpr float kTolerance = 1e-4f;

void ExpectLogits(const std::vector<float>& actual, const std::vector<float>& expected,
                  TokenId chosen) {
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_EQ(std::max_element(actual.begin(), actual.end()) - actual.begin(), chosen);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], kTolerance) << "logit " << i;
  }
}

class CudaGoldenTest : public testing::TestWithParam<GoldenModel> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoBackend(); !why.empty()) GTEST_SKIP() << why;
  }

  std::unique_ptr<Transformer> Load(ComputeType compute) const {
    return LoadModel(GoldenDir(GetParam().name), MakeTestBackend(compute));
  }
  // How many tokens of the answer are generated.
  size_t Steps(const Golden& golden, size_t on_emulation) const {
    return IsEmulated() ? std::min(on_emulation, golden.ids.size()) : golden.ids.size();
  }

  const std::unique_ptr<KvMemory> memory_ = WhyNoBackend().empty() ? MakeTestKvMemory() : nullptr;
};
INSTANTIATE_TEST_SUITE_P(Models, CudaGoldenTest, testing::ValuesIn(kGoldenModels),
                         [](const auto& model) { return std::string(model.param.name); });

TEST_P(CudaGoldenTest, InOneShotAndTokenByToken) {
  const auto model = Load(ComputeType::kFloat32);
  // Prompts of 5, 33, 96 and 200 tokens. The longest passes its sliding windows.
  std::vector<Golden> cases = ReadGoldenCases(GetParam());
  if (IsEmulated() && model->windows().front() == kFullAttention) cases.pop_back();
  for (const Golden& golden : cases) {
    SCOPED_TRACE(golden.prompt.size());
    ModelRunner runner(*model, {.num_slots = 20, .memory = memory_.get()});
    const size_t sequence = runner.AddSequence(golden.computed_tokens());
    auto logits = runner.Run({{{.sequence = sequence, .tokens = golden.prompt, .num_logits = 1}}});
    const size_t steps = Steps(golden, golden.prompt.size() < 90 ? 8 : 2);
    for (size_t i = 0; i < steps; ++i) {
      ASSERT_EQ(logits.size(), 1u);
      ExpectLogits(logits[0], golden.logits[i], golden.ids[i]);
      if (HasFatalFailure()) return;
      logits = runner.Run({{{.sequence = sequence, .tokens = {golden.ids[i]}, .num_logits = 1}}});
    }
  }
}

// Chunks of one sequence next to tokens of another one, whose block tables have other lengths; and
// logits for several rows of a chunk, as in speculative decoding.
TEST_P(CudaGoldenTest, InRaggedBatches) {
  const auto model = Load(ComputeType::kFloat32);
  const std::vector<Golden> cases = ReadGoldenCases(GetParam());
  const Golden& decoding = cases[0];
  const Golden& chunked = cases[1];
  ModelRunner runner(*model,
                     {.tokens_per_block = 8, .num_slots = 24, .seed = 3, .memory = memory_.get()});
  const size_t first = runner.AddSequence(decoding.computed_tokens());
  const size_t second = runner.AddSequence(chunked.computed_tokens());
  auto logits = runner.Run({{{.sequence = first, .tokens = decoding.prompt, .num_logits = 1}}});
  std::vector<TokenId> text = chunked.prompt;
  text.insert(text.end(), chunked.ids.begin(), chunked.ids.end() - 1);
  const size_t known = chunked.prompt.size() - 1;  // The first token with known logits.
  const size_t end = known + Steps(chunked, 6);
  size_t answered = 0;
  size_t decoded = 0;
  for (size_t begin = 0; begin < end; begin += 13) {
    const size_t chunk_end = std::min(begin + 13, end);
    const auto wanted =
        static_cast<uint32_t>(chunk_end - std::min(chunk_end, std::max(begin, known)));
    ExpectLogits(logits.back(), decoding.logits[decoded], decoding.ids[decoded]);
    logits =
        runner.Run({{{.sequence = second,
                      .tokens = {text.begin() + static_cast<ptrdiff_t>(begin),
                                 text.begin() + static_cast<ptrdiff_t>(chunk_end)},
                      .num_logits = wanted},
                     {.sequence = first, .tokens = {decoding.ids[decoded]}, .num_logits = 1}}});
    ++decoded;
    ASSERT_EQ(logits.size(), wanted + 1);
    for (uint32_t row = 0; row < wanted; ++row, ++answered) {
      ExpectLogits(logits[row], chunked.logits[answered], chunked.ids[answered]);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(answered, end - known);
}

// The error of a tiny model's logits with weights, queries, K and V in 16 bits, on the kernels for
// them.
TEST_P(CudaGoldenTest, In16BitsWithinTheirRounding) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    // There is no option for fp16 products: over fp16 pools, products have the checkpoint's type.
    const auto model =
        Load(type == ElementType::kBFloat16 ? ComputeType::kBFloat16 : ComputeType::kAuto);
    double squares = 0, errors = 0;
    std::vector<Golden> cases = ReadGoldenCases(GetParam());
    if (IsEmulated()) cases.resize(2);
    for (const Golden& golden : cases) {
      ModelRunner runner(*model, {.kv_type = type, .num_slots = 20, .memory = memory_.get()});
      const size_t sequence = runner.AddSequence(golden.computed_tokens());
      const size_t steps = Steps(golden, 4);
      std::vector<TokenId> text = golden.prompt;
      text.insert(text.end(), golden.ids.begin(),
                  golden.ids.begin() + static_cast<ptrdiff_t>(steps) - 1);
      auto logits = runner.Run({{{.sequence = sequence,
                                  .tokens = {text.begin(), text.end() - 1},
                                  .num_logits = static_cast<uint32_t>(steps) - 1}}});
      logits.push_back(
          runner.Run({{{.sequence = sequence, .tokens = {text.back()}, .num_logits = 1}}})[0]);
      for (size_t row = 0; row < steps; ++row) {
        for (size_t i = 0; i < logits[row].size(); ++i) {
          errors += std::pow(double{logits[row][i]} - golden.logits[row][i], 2);
          squares += std::pow(double{golden.logits[row][i]}, 2);
        }
      }
    }
    const double relative = std::sqrt(errors / squares);
    RecordProperty(type == ElementType::kBFloat16 ? "bf16" : "fp16", std::to_string(relative));
    // A rounded router chooses other experts here and there.
    EXPECT_LT(relative, model->config().experts.has_value() ? 0.2 : 0.03);
    EXPECT_GT(relative, 1e-6) << "it is not computed in 16 bits";
  }
}

// fp8, with scales of blocks that the GPU fits: at most as far from fp32 as on the CPU
// (float8_kv_test), for one prompt in two chunks and single tokens.
TEST(CudaFloat8Test, LogitsStayNearThoseOverFloat32) {
  if (const std::string why = WhyNoBackend(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<KvMemory> memory = MakeTestKvMemory();
  const auto model = LoadModel(GoldenDir(kTinyModel), MakeTestBackend(ComputeType::kFloat32));
  const Golden golden = ReadGoldenCases({kTinyModel, kTinyModel})[1];
  ModelRunner runner(*model, {.kv_type = ElementType::kFloat8E4M3,
                              .tokens_per_block = 8,
                              .num_slots = 20,
                              .memory = memory.get()});
  const size_t sequence = runner.AddSequence();
  const auto middle = golden.prompt.begin() + 19;
  runner.Run({{{.sequence = sequence, .tokens = {golden.prompt.begin(), middle}}}});
  auto logits = runner.Run(
      {{{.sequence = sequence, .tokens = {middle, golden.prompt.end()}, .num_logits = 1}}});
  double squares = 0, errors = 0;
  for (size_t i = 0; i < 8; ++i) {
    ASSERT_EQ(logits.size(), 1u);
    for (size_t t = 0; t < logits[0].size(); ++t) {
      errors += std::pow(double{logits[0][t]} - golden.logits[i][t], 2);
      squares += std::pow(double{golden.logits[i][t]}, 2);
    }
    logits = runner.Run({{{.sequence = sequence, .tokens = {golden.ids[i]}, .num_logits = 1}}});
  }
  const double relative = std::sqrt(errors / squares);
  RecordProperty("relative_distance", std::to_string(relative));
  EXPECT_LT(relative, 0.07);
  EXPECT_GT(relative, 1e-3) << "it is not stored in float8";
}

}  // namespace
}  // namespace pagoda
