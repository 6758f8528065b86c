// Float8 caches through the whole engine: however the cache is used, a prompt gets the tokens that
// it gets alone. float8_kv_test has the distance from fp32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/golden_runs.h"

namespace pagoda {
namespace {

// See kMovedNumbers in float8_kv_test.cc. The logits are of a few units.
constexpr float kTolerance = 0.05f;

constexpr GoldenModel kModels[] = {
    {kTinyModel, kTinyModel},
    {"gemma3_tiny", "gemma3_tiny"},            // Sliding windows.
    {"deepseek_v3_tiny", "deepseek_v3_tiny"},  // Latents.
    {"gpt_oss_tiny", "gpt_oss_tiny"},          // Sinks.
};

class Float8EngineTest : public testing::TestWithParam<std::tuple<GoldenModel, DType>> {
 protected:
  // The goldens' prompts with the answers of this model and cache, each alone.
  Float8EngineTest() : alone_(ReadGoldenCases(model())) {
    const ServedModel served = Serve({});
    const std::vector<GoldenAnswer> answers = GenerateInTurn(*served.engine, alone_);
    for (size_t i = 0; i < alone_.size(); ++i) {
      EXPECT_TRUE(answers[i].report.ok()) << answers[i].report.status();
      alone_[i].ids = answers[i].ids;
      alone_[i].logits = answers[i].logits;
    }
  }

  static GoldenModel model() { return std::get<0>(GetParam()); }

  static ServedModel Serve(EngineSetting setting,
                           std::function<absl::Status(const Order&)> before_copy = nullptr) {
    setting.kv_dtype = std::get<1>(GetParam());
    return pagoda::Serve(model(), setting, std::move(before_copy));
  }

  static void ExpectSame(const Golden& alone, const GoldenAnswer& answer) {
    SCOPED_TRACE(testing::Message() << "a prompt of " << alone.prompt.size() << " tokens");
    ASSERT_TRUE(answer.report.ok()) << answer.report.status();
    EXPECT_EQ(answer.ids, alone.ids);
    EXPECT_LE(answer.worst_logit_difference, kTolerance);
  }
  void ExpectSame(const std::vector<GoldenAnswer>& answers) const {
    for (size_t i = 0; i < answers.size(); ++i) ExpectSame(alone_[i % alone_.size()], answers[i]);
  }

  std::vector<Golden> alone_;
};
INSTANTIATE_TEST_SUITE_P(Models, Float8EngineTest,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::Values(DType::kFloat8E4M3, DType::kFloat8E5M2)),
                         [](const auto& named) {
                           return std::string(std::get<0>(named.param).name) + "_" +
                                  std::string(DTypeName(std::get<1>(named.param)));
                         });

TEST_P(Float8EngineTest, FromTheCache) {
  const ServedModel served = Serve({});
  GenerateInTurn(*served.engine, alone_);
  const std::vector<GoldenAnswer> again = GenerateInTurn(*served.engine, alone_);
  ExpectSame(again);
  for (size_t i = 0; i < alone_.size(); ++i) {
    EXPECT_EQ(again[i].report->reused_tokens, alone_[i].prompt.size() - 1);
  }
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(Float8EngineTest, InChunksOfSevenTokens) {
  const ServedModel served = Serve({.max_step_tokens = 7});
  ExpectSame(GenerateInTurn(*served.engine, alone_));
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(Float8EngineTest, PreemptedAndComputedAgain) {
  const ServedModel served = Serve({.blocks = {.primary_blocks = 18},
                                    .max_running_sequences = 1,
                                    .preemption = Preemption::kRecompute});
  const std::vector<GoldenAnswer> answers =
      GenerateInterrupted(*served.engine, alone_[3], alone_[2]);
  ExpectSame(alone_[3], answers[0]);
  ExpectSame(alone_[2], answers[1]);
  EXPECT_EQ(answers[0].report->preemptions, 1u);
}

TEST_P(Float8EngineTest, OffloadedAndBroughtUpInTheMiddle) {
  std::atomic<int> brought_up = 0;
  const ServedModel served =
      Serve({.blocks = {.primary_blocks = 18, .lower_blocks = 64}, .max_running_sequences = 1},
            [&](const Order& order) {
              brought_up += order.source.tier == Tier(1);
              return absl::OkStatus();
            });
  const std::vector<GoldenAnswer> answers =
      GenerateInterrupted(*served.engine, alone_[3], alone_[2]);
  ExpectSame(alone_[3], answers[0]);
  ExpectSame(alone_[2], answers[1]);
  EXPECT_EQ(answers[0].report->preemptions, 1u);
  EXPECT_GT(brought_up, 0);
}

TEST_P(Float8EngineTest, InABatchOfSixteen) {
  const ServedModel served = Serve({.blocks = {.primary_blocks = 256}, .max_step_tokens = 40});
  std::vector<Golden> sixteen;
  for (int i = 0; i < 4; ++i) sixteen.insert(sixteen.end(), alone_.begin(), alone_.end());
  ExpectSame(GenerateAll(*served.engine, sixteen));
  EXPECT_LT(served.engine->Stats().steps, 16 * 20u / 4);
}

// A fork's first new block is a copy of the shared one, with its scales.
TEST_P(Float8EngineTest, ThreeSamplesShareThePrompt) {
  const ServedModel served = Serve({});
  for (const Golden& golden : alone_) {
    GenerateRequest request = RequestFor(golden);
    request.num_samples = 3;
    std::vector<std::vector<TokenId>> ids(3);
    const auto report = served.engine->Generate(request, [&](const GeneratedToken& token) {
      ids[token.sample].push_back(token.token);
      return true;
    });
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(ids, testing::Each(golden.ids));
  }
}

TEST_P(Float8EngineTest, WithDraftTokens) {
  const ServedModel served = Serve({});
  for (const Golden& golden : alone_) {
    GenerateRequest request = RequestFor(golden);
    request.max_draft_tokens = 5;
    std::vector<TokenId> ids;
    const auto report = served.engine->Generate(request, [&](const GeneratedToken& token) {
      ids.push_back(token.token);
      return true;
    });
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(ids, golden.ids);
  }
}

}  // namespace
}  // namespace pagoda
