// Every architecture through the whole engine: the answers are Hugging Face transformers', however
// the cache is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "engine/basic_cache_client.h"
#include "engine/engine.h"
#include "tests/engine/golden.h"
#include "tests/engine/test_cache.h"

namespace pagoda {
namespace {

constexpr uint32_t kTokensPerBlock = 16;
constexpr float kTolerance = 1e-4f;

struct Setting {
  TestCache::Sizes blocks = {.primary_blocks = 128};
  EngineBackend backend = EngineBackend::kAuto;
  uint32_t max_step_tokens = 512;
  uint32_t max_running_sequences = 256;
  Preemption preemption = Preemption::kOffload;
};

struct Answer {
  absl::StatusOr<GenerateReport> report = absl::UnknownError("not ended");
  std::vector<TokenId> ids;
  float worst_logit_difference = 0;
};

GenerateRequest RequestFor(const Golden& golden) {
  return {.prompt = golden.prompt, .max_new_tokens = static_cast<uint32_t>(golden.ids.size())};
}

Engine::Options EngineOptions(const GoldenModel& model, const Setting& setting) {
  return {.model_dir = GoldenDir(model.name),
          .backend = setting.backend,
          .cpu = {.num_threads = 1, .compute = ComputeType::kFloat32},
          .scheduler = {.max_step_tokens = setting.max_step_tokens,
                        .max_running_sequences = setting.max_running_sequences,
                        .preemption = setting.preemption}};
}

// Receives a golden's tokens, and compares their logits.
bool TakeToken(const Golden& golden, const GeneratedToken& token, Answer& answer) {
  const std::vector<float>& expected = golden.logits[answer.ids.size()];
  for (size_t t = 0; t < expected.size(); ++t) {
    const float difference = std::abs(token.logits[t] - expected[t]);
    // NaN counts as the worst error.
    if (!(difference <= answer.worst_logit_difference)) answer.worst_logit_difference = difference;
  }
  answer.ids.push_back(token.token);
  return true;
}

// Submits all of them so that they run at once, however slow the submission is. Returns the answers
// in the order of the goldens.
std::vector<Answer> GenerateAll(Engine& engine, const std::vector<Golden>& goldens) {
  std::vector<Answer> answers(goldens.size());
  absl::BlockingCounter left(static_cast<int>(goldens.size()));
  absl::Notification all_submitted;
  for (size_t i = 0; i < goldens.size(); ++i) {
    const absl::Status submitted = engine.Submit(
        RequestFor(goldens[i]),
        [&, i](const GeneratedToken& token) {
          all_submitted.WaitForNotification();
          return TakeToken(goldens[i], token, answers[i]);
        },
        [&answer = answers[i], &left](absl::StatusOr<GenerateReport> report) {
          answer.report = std::move(report);
          left.DecrementCount();
        });
    EXPECT_TRUE(submitted.ok()) << submitted;
    if (!submitted.ok()) left.DecrementCount();
  }
  all_submitted.Notify();
  left.Wait();
  return answers;
}

// While the first one generates, the second one arrives with a higher priority.
std::vector<Answer> GenerateInterrupted(Engine& engine, const Golden& first, const Golden& second) {
  std::vector<Answer> answers(2);
  absl::BlockingCounter left(2);
  const auto end = [&left](Answer& answer) {
    return [&answer, &left](absl::StatusOr<GenerateReport> report) {
      answer.report = std::move(report);
      left.DecrementCount();
    };
  };
  const auto interrupt = [&] {
    GenerateRequest request = RequestFor(second);
    request.priority = 1;
    const absl::Status submitted = engine.Submit(
        std::move(request),
        [&](const GeneratedToken& token) { return TakeToken(second, token, answers[1]); },
        end(answers[1]));
    EXPECT_TRUE(submitted.ok()) << submitted;
  };
  const absl::Status submitted = engine.Submit(
      RequestFor(first),
      [&](const GeneratedToken& token) {
        if (answers[0].ids.size() == 5) interrupt();
        return TakeToken(first, token, answers[0]);
      },
      end(answers[0]));
  EXPECT_TRUE(submitted.ok()) << submitted;
  left.Wait();
  return answers;
}

void ExpectGolden(const Golden& golden, const Answer& answer) {
  SCOPED_TRACE(testing::Message() << "a prompt of " << golden.prompt.size() << " tokens");
  ASSERT_TRUE(answer.report.ok()) << answer.report.status();
  EXPECT_EQ(answer.ids, golden.ids);
  EXPECT_LE(answer.worst_logit_difference, kTolerance);
}

class GoldenEngineTest : public testing::TestWithParam<GoldenModel> {
 protected:
  // The four prompts, at once or one after the other.
  enum class When { kAtOnce, kInTurn };
  std::vector<Answer> ExpectGoldens(Engine& engine, When when, const std::vector<Golden>& goldens) {
    std::vector<Answer> answers;
    if (when == When::kAtOnce) {
      answers = GenerateAll(engine, goldens);
    } else {
      for (const Golden& golden : goldens) answers.push_back(GenerateAll(engine, {golden}).front());
    }
    for (size_t i = 0; i < goldens.size(); ++i) ExpectGolden(goldens[i], answers[i]);
    return answers;
  }

  struct Served {
    std::unique_ptr<TestCache> cache;
    std::unique_ptr<Engine> engine;
  };
  Served Serve(const Setting& setting,
               std::function<absl::Status(const CopyOrder&)> before_copy = nullptr) {
    Served served;
    const Engine::Options options = EngineOptions(GetParam(), setting);
    served.cache = std::make_unique<TestCache>(
        *Engine::CacheSpecForModel(options.model_dir, kTokensPerBlock, DType::kFloat32),
        setting.blocks, std::move(before_copy));
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        Engine::Create(options, served.cache->OpenClient());
    EXPECT_TRUE(engine.ok()) << engine.status();
    served.engine = *std::move(engine);
    return served;
  }

  // Three sequences at a time, with room for the longest golden.
  std::unique_ptr<Engine> ServeBasic(
      const Setting& setting, KvArrangement arrangement = KvArrangement::kTensorPerSequence) {
    const Engine::Options options = EngineOptions(GetParam(), setting);
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(
        options, *MakeBasicCacheClient({.spec = *Engine::CacheSpecForModel(
                                            options.model_dir, kTokensPerBlock, DType::kFloat32),
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
  Served served = Serve({});
  ExpectGoldens(*served.engine, When::kInTurn, goldens_);
  const std::vector<Answer> again = ExpectGoldens(*served.engine, When::kInTurn, goldens_);
  for (size_t i = 0; i < goldens_.size(); ++i) {
    EXPECT_EQ(again[i].report->reused_tokens, goldens_[i].prompt.size() - 1);
  }
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(GoldenEngineTest, InChunksOfSevenTokens) {
  Served served = Serve({.max_step_tokens = 7});
  ExpectGoldens(*served.engine, When::kInTurn, goldens_);
  EXPECT_TRUE(served.cache->NothingHeld());
}

// 200 tokens and their answer, on a pool without capacity for 96 more, which arrive meanwhile and
// take the only slot. Also if all windows slide, so that no sequence ever needs more capacity than
// it has.
TEST_P(GoldenEngineTest, PreemptedAndComputedAgain) {
  Served served = Serve({.blocks = {.primary_blocks = 18},
                         .max_running_sequences = 1,
                         .preemption = Preemption::kRecompute});
  const std::vector<Answer> answers = GenerateInterrupted(*served.engine, goldens_[3], goldens_[2]);
  ExpectGolden(goldens_[3], answers[0]);
  ExpectGolden(goldens_[2], answers[1]);
  EXPECT_EQ(answers[0].report->preemptions, 1u);
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(GoldenEngineTest, OffloadedAndBroughtUpInTheMiddle) {
  std::atomic<int> brought_up = 0;
  Served served =
      Serve({.blocks = {.primary_blocks = 18, .secondary_blocks = 64}, .max_running_sequences = 1},
            [&](const CopyOrder& order) {
              brought_up += order.source.tier == Tier::kSecondary;
              return absl::OkStatus();
            });
  const std::vector<Answer> answers = GenerateInterrupted(*served.engine, goldens_[3], goldens_[2]);
  ExpectGolden(goldens_[3], answers[0]);
  ExpectGolden(goldens_[2], answers[1]);
  EXPECT_EQ(answers[0].report->preemptions, 1u);
  EXPECT_GT(brought_up, 0);
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(GoldenEngineTest, InABatchOfSixteen) {
  Served served = Serve({.blocks = {.primary_blocks = 256}, .max_step_tokens = 40});
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
  const std::vector<Answer> answers = ExpectGoldens(*engine, When::kAtOnce, goldens_);
  for (const Answer& answer : answers) EXPECT_EQ(answer.report->reused_tokens, 0u);
}

TEST_P(GoldenEngineTest, WithTheReferenceBackend) {
  Served served = Serve({.backend = EngineBackend::kReference});
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
  Served served = Serve({});
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
