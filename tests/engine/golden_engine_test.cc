// Every architecture through the whole engine: the answers are Hugging Face transformers', however
// the cache is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/basic_cache/basic_cache_client.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/golden_runs.h"

namespace pagoda {
namespace {

constexpr float kTolerance = 1e-4f;

void ExpectGolden(const Golden& golden, const GoldenAnswer& answer) {
  SCOPED_TRACE(testing::Message() << "a prompt of " << golden.prompt.size() << " tokens");
  ASSERT_TRUE(answer.report.ok()) << answer.report.status();
  EXPECT_EQ(answer.ids, golden.ids);
  EXPECT_LE(answer.worst_logit_difference, kTolerance);
}

class GoldenEngineTest : public testing::TestWithParam<GoldenModel> {
 protected:
  // The four prompts, at once or one after the other.
  enum class When { kAtOnce, kInTurn };
  std::vector<GoldenAnswer> ExpectGoldens(Engine& engine, When when,
                                          const std::vector<Golden>& goldens) {
    std::vector<GoldenAnswer> answers =
        when == When::kAtOnce ? GenerateAll(engine, goldens) : GenerateInTurn(engine, goldens);
    for (size_t i = 0; i < goldens.size(); ++i) ExpectGolden(goldens[i], answers[i]);
    return answers;
  }

  ServedModel Serve(const EngineSetting& setting,
                    std::function<absl::Status(const Order&)> before_copy = nullptr) {
    return pagoda::Serve(GetParam(), setting, std::move(before_copy));
  }

  // Three sequences at a time, with room for the longest golden.
  std::unique_ptr<Engine> ServeBasic(
      const EngineSetting& setting, KvArrangement arrangement = KvArrangement::kTensorPerSequence) {
    const Engine::Options options = EngineOptionsFor(GetParam(), setting);
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(
        options,
        *MakeBasicCacheClient({.spec = *Engine::CacheSpecForModel(
                                   options.model_dir, kGoldenTokensPerBlock, DType::kFloat32),
                               .max_sequences = 3,
                               .max_sequence_tokens = 256,
                               .pages = {.reservation = Reservation::kSparse},
                               .arrangement = arrangement}));
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  const std::vector<Golden> goldens_ = ReadGoldenCases(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Models, GoldenEngineTest, testing::ValuesIn(kGoldenModels),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(GoldenEngineTest, AloneAndAgainFromTheCache) {
  ServedModel served = Serve({});
  ExpectGoldens(*served.engine, When::kInTurn, goldens_);
  const std::vector<GoldenAnswer> again = ExpectGoldens(*served.engine, When::kInTurn, goldens_);
  for (size_t i = 0; i < goldens_.size(); ++i) {
    EXPECT_EQ(again[i].report->reused_tokens, goldens_[i].prompt.size() - 1);
  }
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(GoldenEngineTest, InChunksOfSevenTokens) {
  ServedModel served = Serve({.max_step_tokens = 7});
  ExpectGoldens(*served.engine, When::kInTurn, goldens_);
  EXPECT_TRUE(served.cache->NothingHeld());
}

// 200 tokens and their answer, on a pool without capacity for 96 more, which arrive meanwhile and
// take the only slot. Also if all windows slide, so that no sequence ever needs more capacity than
// it has.
TEST_P(GoldenEngineTest, PreemptedAndComputedAgain) {
  ServedModel served = Serve({.blocks = {.primary_blocks = 18},
                              .max_running_sequences = 1,
                              .preemption = Preemption::kRecompute});
  const std::vector<GoldenAnswer> answers =
      GenerateInterrupted(*served.engine, goldens_[3], goldens_[2]);
  ExpectGolden(goldens_[3], answers[0]);
  ExpectGolden(goldens_[2], answers[1]);
  EXPECT_EQ(answers[0].report->preemptions, 1u);
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(GoldenEngineTest, OffloadedAndBroughtUpInTheMiddle) {
  std::atomic<int> brought_up = 0;
  ServedModel served =
      Serve({.blocks = {.primary_blocks = 18, .lower_blocks = 64}, .max_running_sequences = 1},
            [&](const Order& order) {
              brought_up += order.source.tier == Tier(1);
              return absl::OkStatus();
            });
  const std::vector<GoldenAnswer> answers =
      GenerateInterrupted(*served.engine, goldens_[3], goldens_[2]);
  ExpectGolden(goldens_[3], answers[0]);
  ExpectGolden(goldens_[2], answers[1]);
  EXPECT_EQ(answers[0].report->preemptions, 1u);
  EXPECT_GT(brought_up, 0);
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(GoldenEngineTest, InABatchOfSixteen) {
  ServedModel served = Serve({.blocks = {.primary_blocks = 256}, .max_step_tokens = 40});
  std::vector<Golden> sixteen;
  for (int i = 0; i < 4; ++i) sixteen.insert(sixteen.end(), goldens_.begin(), goldens_.end());
  ExpectGoldens(*served.engine, When::kAtOnce, sixteen);
  // One after the other, they would need one step per generated token.
  EXPECT_LT(served.engine->Stats().steps, 16 * 20u / 4);
  EXPECT_TRUE(served.cache->NothingHeld());
}

// One tensor per sequence and layer, and an attention that shares no kernel with the others.
TEST_P(GoldenEngineTest, WithTheBasicCache) {
  const std::unique_ptr<Engine> engine = ServeBasic({});
  const std::vector<GoldenAnswer> answers = ExpectGoldens(*engine, When::kAtOnce, goldens_);
  for (const GoldenAnswer& answer : answers) EXPECT_EQ(answer.report->reused_tokens, 0u);
}

TEST_P(GoldenEngineTest, WithTheReferenceBackend) {
  ServedModel served = Serve({.backend = EngineBackend::kReference});
  ExpectGoldens(*served.engine, When::kAtOnce, goldens_);
  EXPECT_TRUE(served.cache->NothingHeld());
}

// The sequences take token slots in turn, so their blocks interleave.
TEST_P(GoldenEngineTest, InATokenFlatPool) {
  const std::unique_ptr<Engine> engine =
      ServeBasic({.max_step_tokens = 40, .max_running_sequences = 3}, KvArrangement::kTokenFlat);
  ExpectGoldens(*engine, When::kAtOnce, goldens_);
  ExpectGoldens(*engine, When::kInTurn, goldens_);
}

TEST_P(GoldenEngineTest, WithTheReferenceBackendAndTheBasicCache) {
  const std::unique_ptr<Engine> engine =
      ServeBasic({.backend = EngineBackend::kReference, .max_step_tokens = 7});
  ExpectGoldens(*engine, When::kInTurn, goldens_);
}

// Draft tokens from the text change only the number of steps.
TEST_P(GoldenEngineTest, WithDraftTokens) {
  ServedModel served = Serve({});
  for (const Golden& golden : goldens_) {
    // The prompt already contains the answer, so that there are draft tokens.
    GenerateRequest request = RequestFor(golden);
    request.prompt.insert(request.prompt.end(), golden.ids.begin(), golden.ids.end());
    std::vector<std::vector<TokenId>> answers(2);
    for (const uint32_t draft_tokens : {0u, 5u}) {
      request.max_draft_tokens = draft_tokens;
      request.name_space.cache_salt = std::to_string(draft_tokens);
      const auto report = served.engine->Generate(request, [&](const GeneratedToken& token) {
        answers[draft_tokens == 0 ? 0 : 1].push_back(token.token);
        return true;
      });
      ASSERT_TRUE(report.ok()) << report.status();
    }
    EXPECT_EQ(answers[0], answers[1]);
  }
  EXPECT_GT(served.engine->Stats().drafted_tokens, 0u);
}

}  // namespace
}  // namespace pagoda
