// The engine without a daemon: every golden model with each place of the
// KV and both backends of the CPU, conversations, and measurements.
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/serve/prompt/chat.h"
#include "engine/serve/prompt/report_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/serve/local/local_model.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LocalEngine::Options OptionsFor(const std::string& model) {
  return LocalOptions(GoldenDir(model), 256);
}

PromptAnswer AnswerTo(LocalModel& model, const Golden& golden) {
  return Require(model.answers.Answer(
      {.prompt = golden.prompt, .max_new_tokens = static_cast<uint32_t>(golden.ids.size())}));
}

class LocalGoldenTest : public testing::TestWithParam<GoldenModel> {
 protected:
  void ExpectGoldens(LocalEngine::Options options) {
    LocalModel model(std::move(options));
    for (const Golden& golden : ReadGoldenCases(GetParam())) {
      const PromptAnswer answer = AnswerTo(model, golden);
      EXPECT_EQ(answer.tokens, golden.ids) << "a prompt of " << golden.prompt.size();
      EXPECT_EQ(answer.report.prompt_tokens, golden.prompt.size());
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Models, LocalGoldenTest, testing::ValuesIn(kGoldenModels),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(LocalGoldenTest, PagedOnTheCpu) { ExpectGoldens(OptionsFor(GetParam().name)); }

TEST_P(LocalGoldenTest, FlatOnTheCpu) {
  LocalEngine::Options options = OptionsFor(GetParam().name);
  options.kv = KvMode::kFlat;
  ExpectGoldens(std::move(options));
}

TEST_P(LocalGoldenTest, BasicOnTheCpuWithTwoThreads) {
  LocalEngine::Options options = OptionsFor(GetParam().name);
  options.kv = KvMode::kBasic;
  options.engine.cpu.num_threads = 2;
  ExpectGoldens(std::move(options));
}

TEST_P(LocalGoldenTest, PagedByTheReferenceInSmallBlocksAndSteps) {
  LocalEngine::Options options = OptionsFor(GetParam().name);
  options.engine.backend = EngineBackend::kReference;
  options.tokens_per_block = 4;
  options.engine.scheduler.max_step_tokens = 50;
  ExpectGoldens(std::move(options));
}

TEST_P(LocalGoldenTest, BasicByTheReference) {
  LocalEngine::Options options = OptionsFor(GetParam().name);
  options.kv = KvMode::kBasic;
  options.engine.backend = EngineBackend::kReference;
  ExpectGoldens(std::move(options));
}

// Fewer bits round K and V in the same way in each place.
TEST(LocalEngineTest, EachPlaceOfKvAnswersTheSameInEveryType) {
  const Golden golden = ReadGolden(kTinyModel);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E5M2}) {
    std::vector<std::vector<TokenId>> answers;
    for (const KvMode kv : {KvMode::kPaged, KvMode::kFlat, KvMode::kBasic}) {
      LocalEngine::Options options = OptionsFor(kTinyModel);
      options.engine.backend = EngineBackend::kReference;
      options.kv = kv;
      options.kv_dtype = dtype;
      LocalModel model(std::move(options));
      answers.push_back(AnswerTo(model, golden).tokens);
    }
    EXPECT_EQ(answers[0], answers[1]) << DTypeName(dtype);
    EXPECT_EQ(answers[0], answers[2]) << DTypeName(dtype);
  }
}

TEST(LocalEngineTest, OnlyAPagedCacheFindsAPromptAgain) {
  const Golden golden = ReadGolden(kTinyModel);
  for (const KvMode kv : {KvMode::kPaged, KvMode::kFlat, KvMode::kBasic}) {
    LocalEngine::Options options = OptionsFor(kTinyModel);
    options.kv = kv;
    LocalModel model(std::move(options));
    EXPECT_EQ(AnswerTo(model, golden).report.reused_tokens, 0u);
    EXPECT_EQ(AnswerTo(model, golden).report.reused_tokens,
              kv == KvMode::kPaged ? golden.prompt.size() - 1 : 0);
  }
}

// The pool holds little more than one context: older conversations are evicted.
TEST(LocalEngineTest, PromptsThatFillTheContextFollowEachOther) {
  LocalEngine::Options options = OptionsFor(kTinyModel);
  options.context = 96;
  LocalModel model(std::move(options));
  for (TokenId first = 1; first <= 5; ++first) {
    const PromptAnswer answer = Require(
        model.answers.Answer({.prompt = std::vector<TokenId>(90, first), .max_new_tokens = 100}));
    EXPECT_EQ(answer.tokens.size(), 6u) << "the context ends the answer";
  }
  const absl::Status refused =
      model.answers.Answer({.prompt = std::vector<TokenId>(96, 1)}).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalidPrompt);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--context"));
}

TEST(LocalEngineTest, RefusesWhatCannotBe) {
  LocalEngine::Options options = OptionsFor(kTinyModel);
  options.engine.backend = EngineBackend::kCuda;
  for (const KvMode kv : {KvMode::kFlat, KvMode::kBasic}) {
    options.kv = kv;
    EXPECT_EQ(ReasonOf(LocalEngine::Create(options).status()), Reason::kInvalidArgument);
  }
  options.engine.model_dir = GoldenDir("none");
  EXPECT_EQ(ReasonOf(LocalEngine::Create(options).status()), Reason::kInvalidCheckpoint);
}

TEST(LocalEngineTest, TellsOfLoadingAndGivesTokensInOrder) {
  LocalEngine::Options options = OptionsFor(kTinyModel);
  std::vector<uint64_t> loaded;
  options.engine.on_load = [&](uint64_t bytes) { loaded.push_back(bytes); };
  LocalModel model(std::move(options));
  EXPECT_GT(loaded.size(), 2u);
  EXPECT_TRUE(std::is_sorted(loaded.begin(), loaded.end()));
  std::vector<TokenId> given;
  std::string text;
  const ModelPrompt prompt = Require(model.answers.ReadText("Hello"));
  const PromptAnswer answer = Require(model.answers.Answer(
      {.prompt = prompt.tokens, .max_new_tokens = 9, .stop_tokens = prompt.stop_tokens},
      {.on_token = [&](TokenId token, const std::string& part) {
        given.push_back(token);
        text += part;
      }}));
  EXPECT_EQ(answer.tokens, given);
  EXPECT_EQ(answer.text, text);
}

TEST(LocalEngineTest, StopEndsAnAnswerAndTheNextOneRuns) {
  LocalModel model(OptionsFor(kTinyModel));
  EXPECT_FALSE(model.answers.Stop()) << "there is no answer";
  // The tiny model can be done before this thread sees its first token, so this tries again.
  PromptAnswer stopped;
  for (int attempt = 0; attempt < 200; ++attempt) {
    stopped = Require(model.answers.Answer(
        {.prompt = {1, 2, 3}, .max_new_tokens = 250},
        {.on_token = [&](TokenId, const std::string&) { EXPECT_TRUE(model.answers.Stop()); }}));
    if (stopped.tokens.size() < 250) break;
  }
  EXPECT_TRUE(stopped.is_stopped);
  EXPECT_LT(stopped.tokens.size(), 250u);
  EXPECT_EQ(stopped.report.generated_tokens, stopped.tokens.size());
  EXPECT_THAT(ReportText(stopped), HasSubstr("ended by stopped"));
  const PromptAnswer whole =
      Require(model.answers.Answer({.prompt = {1, 2, 3}, .max_new_tokens = 250}));
  EXPECT_FALSE(whole.is_stopped);
  EXPECT_EQ(whole.tokens.size(), 250u);
}

class ChatTest : public testing::Test {
 protected:
  // Runs the lines. Returns the reused tokens of each answer.
  std::vector<uint32_t> Say(KvMode kv, const std::string& lines) {
    LocalEngine::Options options = OptionsFor(kTinyModel);
    options.kv = kv;
    LocalModel model(std::move(options));
    std::vector<uint32_t> reused;
    Chat chat(&model.answers, {.system = "Be brief.",
                               .answer =
                                   [&](ModelPrompt prompt) {
                                     prompts_.push_back(prompt.tokens);
                                     auto answer =
                                         model.answers.Answer({.prompt = std::move(prompt.tokens),
                                                               .max_new_tokens = 4,
                                                               .stop_tokens = prompt.stop_tokens});
                                     if (answer.ok())
                                       reused.push_back(answer->report.reused_tokens);
                                     return answer;
                                   },
                               .on_error =
                                   [&](const absl::Status& error) {
                                     errors_.push_back(std::string(error.message()));
                                     return true;
                                   }});
    std::istringstream input(lines);
    EXPECT_TRUE(chat.Run(input).ok());
    return reused;
  }

  std::vector<std::vector<TokenId>> prompts_;
  std::vector<std::string> errors_;
};

TEST_F(ChatTest, LaterTurnsReuseTheConversation) {
  const std::vector<uint32_t> reused = Say(KvMode::kPaged, "Hello there\n\nAnd you?\n/quit\nno\n");
  ASSERT_EQ(reused.size(), 2u);
  EXPECT_EQ(reused[0], 0u);
  // All of the first turn's prompt, up to the last block.
  EXPECT_GE(reused[1], prompts_[0].size() - 1);
  EXPECT_TRUE(std::equal(prompts_[0].begin(), prompts_[0].end(), prompts_[1].begin()));
}

TEST_F(ChatTest, TheBasicCacheReusesNothing) {
  EXPECT_THAT(Say(KvMode::kBasic, "Hello there\nAnd you?\n"), ElementsAre(0, 0));
}

TEST_F(ChatTest, ResetBeginsAgain) {
  Say(KvMode::kPaged, "Hello there\n/reset\nHello there\n");
  ASSERT_EQ(prompts_.size(), 2u);
  EXPECT_EQ(prompts_[0], prompts_[1]);
}

TEST_F(ChatTest, AFailedTurnIsForgotten) {
  const std::vector<uint32_t> reused =
      Say(KvMode::kPaged, "Hello there\n" + std::string(2000, 'x') + "\nAnd you?\n");
  EXPECT_EQ(errors_.size(), 1u);
  ASSERT_EQ(reused.size(), 2u);
  ASSERT_EQ(prompts_.size(), 3u);
  EXPECT_LT(prompts_[2].size(), 256u);
}

TEST(ReportTextTest, SeparatesThePromptFromTheDecoding) {
  PromptAnswer answer{.tokens = {1, 2, 3},
                      .text = "abc",
                      .report = {.finish_reasons = {FinishReason::kStopToken},
                                 .prompt_tokens = 120,
                                 .reused_tokens = 20,
                                 .generated_tokens = 3,
                                 .queue_time = absl::Seconds(1),
                                 .time_to_first_token = absl::Seconds(3),
                                 .total_time = absl::Seconds(7)}};
  EXPECT_EQ(PromptTokensPerSecond(answer.report), 50.0);
  EXPECT_EQ(DecodeTokensPerSecond(answer.report), 0.5);
  EXPECT_EQ(ReportText(answer),
            "120 prompt tokens, 20 reused (16.67 %); first token after 3.00 s; prompt 50.0 "
            "tokens/s, decode 0.5 tokens/s; 3 tokens, ended by stop token");
  const nlohmann::ordered_json json = AnswerJson(answer);
  EXPECT_EQ(json["tokens"], std::vector<TokenId>({1, 2, 3}));
  EXPECT_EQ(json["reused_tokens"], 20);
  EXPECT_EQ(json["time_to_first_token_ms"], 3000.0);
  EXPECT_EQ(json["prompt_tokens_per_second"], 50.0);
  EXPECT_EQ(json["decode_tokens_per_second"], 0.5);
  EXPECT_EQ(json["finish_reason"], "stop token");
  EXPECT_EQ(json["stopped"], false);
  answer.report.generated_tokens = 1;
  EXPECT_EQ(DecodeTokensPerSecond(answer.report), 0.0);
  EXPECT_THAT(ReportText(answer), testing::Not(HasSubstr("decode")));
  const PromptAnswer none{.is_stopped = true};
  EXPECT_EQ(ReportText(none), "stopped before the first token");
  EXPECT_FALSE(AnswerJson(none).contains("prompt_tokens"));
}

}  // namespace
}  // namespace pagoda
