// The program without a daemon, through its own library: every golden model with each place of the
// KV and both backends of the CPU, conversations, and measurements.
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/error.h"
#include "clients/pagoda_run/chat.h"
#include "clients/pagoda_run/local_model.h"
#include "clients/pagoda_run/report_text.h"
#include "clients/pagoda_run/run_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LocalModel::Options OptionsFor(const std::string& model) {
  return {.model = GoldenDir(model),
          .backend = EngineBackend::kCpu,
          .compute = ComputeType::kFloat32,
          .threads = 1,
          .context = 256};
}

LocalAnswer AnswerTo(LocalModel& model, const Golden& golden) {
  LocalModel::Request request{.prompt = {.tokens = golden.prompt, .stop_tokens = {}},
                              .max_new_tokens = static_cast<uint32_t>(golden.ids.size())};
  return Require(model.Answer(std::move(request)));
}

class GoldenRunTest : public testing::TestWithParam<GoldenModel> {
 protected:
  void ExpectGoldens(LocalModel::Options options) {
    const std::unique_ptr<LocalModel> model = Require(LocalModel::Load(std::move(options)));
    for (const Golden& golden : ReadGoldenCases(GetParam())) {
      const LocalAnswer answer = AnswerTo(*model, golden);
      EXPECT_EQ(answer.tokens, golden.ids) << "a prompt of " << golden.prompt.size();
      EXPECT_EQ(answer.report.prompt_tokens, golden.prompt.size());
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Models, GoldenRunTest, testing::ValuesIn(kGoldenModels),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(GoldenRunTest, PagedOnTheCpu) { ExpectGoldens(OptionsFor(GetParam().name)); }

TEST_P(GoldenRunTest, FlatOnTheCpu) {
  LocalModel::Options options = OptionsFor(GetParam().name);
  options.kv = LocalKv::kFlat;
  ExpectGoldens(std::move(options));
}

TEST_P(GoldenRunTest, BasicOnTheCpuWithTwoThreads) {
  LocalModel::Options options = OptionsFor(GetParam().name);
  options.kv = LocalKv::kBasic;
  options.threads = 2;
  ExpectGoldens(std::move(options));
}

TEST_P(GoldenRunTest, PagedByTheReferenceInSmallBlocksAndSteps) {
  LocalModel::Options options = OptionsFor(GetParam().name);
  options.backend = EngineBackend::kReference;
  options.tokens_per_block = 4;
  options.max_step_tokens = 50;
  ExpectGoldens(std::move(options));
}

TEST_P(GoldenRunTest, BasicByTheReference) {
  LocalModel::Options options = OptionsFor(GetParam().name);
  options.kv = LocalKv::kBasic;
  options.backend = EngineBackend::kReference;
  ExpectGoldens(std::move(options));
}

// Fewer bits round K and V in the same way in each place.
TEST(LocalModelTest, EachPlaceOfKvAnswersTheSameInEveryType) {
  const Golden golden = ReadGolden(kTinyModel);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E5M2}) {
    std::vector<std::vector<TokenId>> answers;
    for (const LocalKv kv : {LocalKv::kPaged, LocalKv::kFlat, LocalKv::kBasic}) {
      LocalModel::Options options = OptionsFor(kTinyModel);
      options.backend = EngineBackend::kReference;
      options.kv = kv;
      options.kv_dtype = dtype;
      answers.push_back(AnswerTo(*Require(LocalModel::Load(std::move(options))), golden).tokens);
    }
    EXPECT_EQ(answers[0], answers[1]) << DTypeName(dtype);
    EXPECT_EQ(answers[0], answers[2]) << DTypeName(dtype);
  }
}

TEST(LocalModelTest, OnlyAPagedCacheFindsAPromptAgain) {
  const Golden golden = ReadGolden(kTinyModel);
  for (const LocalKv kv : {LocalKv::kPaged, LocalKv::kFlat, LocalKv::kBasic}) {
    LocalModel::Options options = OptionsFor(kTinyModel);
    options.kv = kv;
    const std::unique_ptr<LocalModel> model = Require(LocalModel::Load(std::move(options)));
    EXPECT_EQ(AnswerTo(*model, golden).report.reused_tokens, 0u);
    EXPECT_EQ(AnswerTo(*model, golden).report.reused_tokens,
              kv == LocalKv::kPaged ? golden.prompt.size() - 1 : 0);
  }
}

// The pool holds little more than one context: older conversations are evicted.
TEST(LocalModelTest, PromptsThatFillTheContextFollowEachOther) {
  LocalModel::Options options = OptionsFor(kTinyModel);
  options.context = 96;
  const std::unique_ptr<LocalModel> model = Require(LocalModel::Load(std::move(options)));
  for (TokenId first = 1; first <= 5; ++first) {
    LocalModel::Request request{.prompt = {.tokens = std::vector<TokenId>(90, first)},
                                .max_new_tokens = 100};
    const LocalAnswer answer = Require(model->Answer(std::move(request)));
    EXPECT_EQ(answer.tokens.size(), 6u) << "the context ends the answer";
  }
  LocalModel::Request full{.prompt = {.tokens = std::vector<TokenId>(96, 1)}};
  const absl::Status refused = model->Answer(std::move(full)).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalidPrompt);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--context"));
}

TEST(LocalModelTest, RefusesWhatCannotBe) {
  LocalModel::Options options = OptionsFor(kTinyModel);
  options.backend = EngineBackend::kCuda;
  for (const LocalKv kv : {LocalKv::kFlat, LocalKv::kBasic}) {
    options.kv = kv;
    EXPECT_EQ(ReasonOf(LocalModel::Load(options).status()), Reason::kInvalidArgument);
  }
  options.model = GoldenDir("none");
  EXPECT_EQ(ReasonOf(LocalModel::Load(options).status()), Reason::kInvalidCheckpoint);
}

TEST(LocalModelTest, TellsOfLoadingAndGivesTokensInOrder) {
  LocalModel::Options options = OptionsFor(kTinyModel);
  std::vector<uint64_t> loaded;
  options.on_load = [&](uint64_t bytes) { loaded.push_back(bytes); };
  const std::unique_ptr<LocalModel> model = Require(LocalModel::Load(std::move(options)));
  EXPECT_GT(loaded.size(), 2u);
  EXPECT_TRUE(std::is_sorted(loaded.begin(), loaded.end()));
  std::vector<TokenId> given;
  std::string text;
  LocalModel::Request request{.prompt = Require(model->ReadText("Hello")), .max_new_tokens = 9};
  request.on_token = [&](TokenId token, const std::string& part) {
    if (given.empty() || given.size() < 9) given.push_back(token);
    text += part;
  };
  const LocalAnswer answer = Require(model->Answer(std::move(request)));
  EXPECT_EQ(answer.tokens, given);
  EXPECT_EQ(answer.text, text);
}

TEST(LocalModelTest, StopEndsAnAnswerAndTheNextOneRuns) {
  const std::unique_ptr<LocalModel> model = Require(LocalModel::Load(OptionsFor(kTinyModel)));
  EXPECT_FALSE(model->Stop()) << "there is no answer";
  // The tiny model can be done before this thread sees its first token, so this tries again.
  LocalAnswer stopped;
  for (int attempt = 0; attempt < 200; ++attempt) {
    LocalModel::Request request{.prompt = {.tokens = {1, 2, 3}}, .max_new_tokens = 250};
    request.on_token = [&](TokenId, const std::string&) { EXPECT_TRUE(model->Stop()); };
    stopped = Require(model->Answer(std::move(request)));
    if (stopped.tokens.size() < 250) break;
  }
  EXPECT_TRUE(stopped.is_stopped);
  EXPECT_LT(stopped.tokens.size(), 250u);
  EXPECT_EQ(stopped.report.generated_tokens, stopped.tokens.size());
  EXPECT_THAT(ReportText(stopped), HasSubstr("ended by stopped"));
  LocalModel::Request next{.prompt = {.tokens = {1, 2, 3}}, .max_new_tokens = 250};
  const LocalAnswer whole = Require(model->Answer(std::move(next)));
  EXPECT_FALSE(whole.is_stopped);
  EXPECT_EQ(whole.tokens.size(), 250u);
}

class ChatTest : public testing::Test {
 protected:
  // Runs the lines. Returns the reused tokens of each answer.
  std::vector<uint32_t> Say(LocalKv kv, const std::string& lines) {
    LocalModel::Options options = OptionsFor(kTinyModel);
    options.kv = kv;
    const std::unique_ptr<LocalModel> model = Require(LocalModel::Load(std::move(options)));
    std::vector<uint32_t> reused;
    Chat chat(model.get(), {.system = "Be brief.",
                            .answer =
                                [&](LocalPrompt prompt) {
                                  prompts_.push_back(prompt.tokens);
                                  LocalModel::Request request{.prompt = std::move(prompt),
                                                              .max_new_tokens = 4};
                                  auto answer = model->Answer(std::move(request));
                                  if (answer.ok()) reused.push_back(answer->report.reused_tokens);
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
  const std::vector<uint32_t> reused = Say(LocalKv::kPaged, "Hello there\n\nAnd you?\n/quit\nno\n");
  ASSERT_EQ(reused.size(), 2u);
  EXPECT_EQ(reused[0], 0u);
  // All of the first turn's prompt, up to the last block.
  EXPECT_GE(reused[1], prompts_[0].size() - 1);
  EXPECT_TRUE(std::equal(prompts_[0].begin(), prompts_[0].end(), prompts_[1].begin()));
}

TEST_F(ChatTest, TheBasicCacheReusesNothing) {
  EXPECT_THAT(Say(LocalKv::kBasic, "Hello there\nAnd you?\n"), ElementsAre(0, 0));
}

TEST_F(ChatTest, ResetBeginsAgain) {
  Say(LocalKv::kPaged, "Hello there\n/reset\nHello there\n");
  ASSERT_EQ(prompts_.size(), 2u);
  EXPECT_EQ(prompts_[0], prompts_[1]);
}

TEST_F(ChatTest, AFailedTurnIsForgotten) {
  const std::vector<uint32_t> reused =
      Say(LocalKv::kPaged, "Hello there\n" + std::string(2000, 'x') + "\nAnd you?\n");
  EXPECT_EQ(errors_.size(), 1u);
  ASSERT_EQ(reused.size(), 2u);
  ASSERT_EQ(prompts_.size(), 3u);
  EXPECT_LT(prompts_[2].size(), 256u);
}

TEST(ReportTextTest, SeparatesThePromptFromTheDecoding) {
  LocalAnswer answer{.tokens = {1, 2, 3},
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
  EXPECT_EQ(json["time_to_first_token_seconds"], 3.0);
  EXPECT_EQ(json["prompt_tokens_per_second"], 50.0);
  EXPECT_EQ(json["decode_tokens_per_second"], 0.5);
  EXPECT_EQ(json["finish_reason"], "stop token");
  EXPECT_EQ(json["stopped"], false);
  answer.report.generated_tokens = 1;
  EXPECT_EQ(DecodeTokensPerSecond(answer.report), 0.0);
  EXPECT_THAT(ReportText(answer), testing::Not(HasSubstr("decode")));
  const LocalAnswer none{.is_stopped = true};
  EXPECT_EQ(ReportText(none), "stopped before the first token");
  EXPECT_FALSE(AnswerJson(none).contains("prompt_tokens"));
}

TEST(RunOptionsTest, TakesOneKindOfPromptOrChats) {
  const auto parse = [](std::vector<std::string> arguments, RunOptions& options) {
    CLI::App app;
    AddRunOptions(app, options);
    std::reverse(arguments.begin(), arguments.end());
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError&) {
      return false;
    }
    return true;
  };
  RunOptions chats;
  ASSERT_TRUE(parse({"model.gguf", "--kv", "basic", "--backend", "reference", "--kv-dtype",
                     "bfloat16", "--temperature", "0.5", "--json"},
                    chats));
  EXPECT_TRUE(chats.chats());
  EXPECT_EQ(chats.model.model, "model.gguf");
  EXPECT_EQ(chats.model.kv, LocalKv::kBasic);
  EXPECT_EQ(chats.model.backend, EngineBackend::kReference);
  EXPECT_EQ(chats.model.kv_dtype, DType::kBFloat16);
  EXPECT_EQ(SamplingOf(chats.sampling).temperature, 0.5f);
  EXPECT_EQ(chats.output, OutputFormat::kJson);
  RunOptions ids;
  ASSERT_TRUE(parse({"m", "--tokens", "1,2"}, ids));
  EXPECT_FALSE(ids.chats());
  RunOptions wrong;
  EXPECT_FALSE(parse({}, wrong)) << "no model";
  EXPECT_FALSE(parse({"m", "--tokens", "1", "--prompt", "a"}, wrong));
  EXPECT_FALSE(parse({"m", "--tokens", "a"}, wrong));
  EXPECT_FALSE(parse({"m", "--kv", "none"}, wrong));
  EXPECT_FALSE(parse({"m", "--priority", "1"}, wrong));
  EXPECT_FALSE(parse({"m", "--tokens-per-block", "0"}, wrong));
}

}  // namespace
}  // namespace pagoda
