// K and V in float8: how far the logits are from those over fp32, and that chunks do not change
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/model/backend/reference_backend.h"
#include "engine/model/cpu/cpu_backend.h"
#include "engine/model/layers/transformer.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/model/model_runner.h"

namespace pagoda {
namespace {

using kernels::ElementType;
using Rows = std::vector<std::vector<float>>;

// The bounds on the distance of a model's logits from those over fp32: the root of the mean square
// of the differences, relative to that of the logits. The models have random weights and few
// layers, whose scores differ widely, so they answer to the rounding more than trained ones.
struct Bounds {
  const char* model;
  double e4m3;
  double e5m2;
};
constexpr Bounds kBounds[] = {
    {kTinyModel, 0.07, 0.13},         {"llama3_tiny", 0.15, 0.26},
    {"gemma3_tiny", 0.11, 0.22},       // Sliding windows.
    {"deepseek_v3_tiny", 0.24, 0.50},  // Latents: one scale for all of a block.
    {"gpt_oss_tiny", 0.21, 0.35},      // Sinks, and blocks that leave the window.
};

// Two ways to compute the same differ in the last bits of K and V. Where that moves a number over
// the boundary between two float8 numbers, it moves by 1/8 or 1/4. Most runs have no such number,
// and differ by 1e-6.
constexpr double kMovedNumbers = 0.02;

class Float8KvTest : public testing::TestWithParam<std::tuple<Bounds, ElementType>> {
 protected:
  Float8KvTest()
      : model_(Load(*MakeCpuBackend({.num_threads = 1, .compute = ComputeType::kFloat32}))) {}

  static GoldenModel golden_model() { return {bounds().model, bounds().model}; }
  static Bounds bounds() { return std::get<0>(GetParam()); }
  static ElementType type() { return std::get<1>(GetParam()); }

  static std::unique_ptr<Transformer> Load(std::unique_ptr<Backend> backend) {
    return LoadModel(GoldenDir(golden_model().name), std::move(backend));
  }

  // The logits that choose the golden's ids, if its text runs in steps of `step` tokens.
  static Rows Run(Transformer& model, const Golden& golden, size_t step, ElementType kv_type) {
    ModelRunner runner(model, {.kv_type = kv_type});
    const size_t sequence = runner.AddSequence();
    std::vector<TokenId> text = golden.prompt;
    text.insert(text.end(), golden.ids.begin(), golden.ids.end() - 1);
    const size_t known = golden.prompt.size() - 1;
    Rows logits;
    for (size_t first = 0; first < text.size(); first += step) {
      const size_t end = std::min(first + step, text.size());
      Rows rows = runner.Run(
          {{{.sequence = sequence,
             .tokens = {text.begin() + static_cast<ptrdiff_t>(first),
                        text.begin() + static_cast<ptrdiff_t>(end)},
             .num_logits = static_cast<uint32_t>(end - std::min(end, std::max(first, known)))}}});
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
    return logits;
  }

  const std::unique_ptr<Transformer> model_;
  const std::vector<Golden> goldens_ = ReadGoldenCases(golden_model());
};

INSTANTIATE_TEST_SUITE_P(Models, Float8KvTest,
                         testing::Combine(testing::ValuesIn(kBounds),
                                          testing::Values(ElementType::kFloat8E4M3,
                                                          ElementType::kFloat8E5M2)),
                         [](const auto& named) {
                           const bool e4m3 = std::get<1>(named.param) == ElementType::kFloat8E4M3;
                           return std::string(std::get<0>(named.param).model) +
                                  (e4m3 ? "_e4m3" : "_e5m2");
                         });

struct Distance {
  double squares = 0;
  double errors = 0;
  size_t same_choices = 0;

  void Add(const Rows& actual, const Rows& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t row = 0; row < actual.size(); ++row) {
      ASSERT_EQ(actual[row].size(), expected[row].size());
      for (size_t i = 0; i < actual[row].size(); ++i) {
        errors += std::pow(double{actual[row][i]} - expected[row][i], 2);
        squares += std::pow(double{expected[row][i]}, 2);
      }
      const auto choice = [](const std::vector<float>& logits) {
        return std::max_element(logits.begin(), logits.end()) - logits.begin();
      };
      same_choices += choice(actual[row]) == choice(expected[row]);
    }
  }
  double Relative() const { return std::sqrt(errors / squares); }
};

TEST_P(Float8KvTest, LogitsStayNearThoseOverFloat32) {
  Distance distance;
  for (const Golden& golden : goldens_) {
    distance.Add(Run(*model_, golden, 1000, type()), golden.logits);
  }
  RecordProperty("relative_distance", std::to_string(distance.Relative()));
  RecordProperty("same_choices", static_cast<int>(distance.same_choices));
  EXPECT_LT(distance.Relative(),
            type() == ElementType::kFloat8E4M3 ? bounds().e4m3 : bounds().e5m2);
  EXPECT_GT(distance.Relative(), 1e-4) << "it is not stored in float8";
}

TEST_P(Float8KvTest, ChunksAndDecodeGiveTheLogitsOfOnePass) {
  for (const size_t step : {size_t{1}, size_t{7}}) {
    Distance distance;
    for (const Golden& golden : goldens_) {
      distance.Add(Run(*model_, golden, step, type()), Run(*model_, golden, 1000, type()));
    }
    EXPECT_LT(distance.Relative(), kMovedNumbers) << "in steps of " << step;
  }
}

// Another implementation of the same rules, in fp64.
TEST_P(Float8KvTest, TheReferenceBackendAgrees) {
  const std::unique_ptr<Transformer> reference = Load(MakeReferenceBackend());
  Distance distance;
  for (const Golden& golden : goldens_) {
    distance.Add(Run(*model_, golden, 1000, type()), Run(*reference, golden, 1000, type()));
  }
  EXPECT_LT(distance.Relative(), kMovedNumbers);
}

}  // namespace
}  // namespace pagoda
