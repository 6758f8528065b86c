// Answers of random weights that must conform to a grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "base/error.h"
#include "engine/engine.h"
#include "engine/text/model_text.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/golden_runs.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;
using Kind = StructuredOutput::Kind;

constexpr GoldenModel kModel = {kTinyModel, kTinyModel};
// "<|im_end|>" or another special token would do: any token ends an answer if it is a stop token.
constexpr TokenId kEnd = 0;
constexpr char kSchema[] = R"({
  "type": "object",
  "properties": {
    "kind": {"enum": ["small", "large"]},
    "count": {"type": "integer", "minimum": 0, "maximum": 99},
    "good": {"type": "boolean"},
    "name": {"type": "string", "maxLength": 5}
  },
  "required": ["kind", "count", "good", "name"]
})";

using Answer = GoldenAnswer;

class StructuredEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasStructuredOutput()) GTEST_SKIP() << "this build has no structured output";
  }

  GenerateRequest Request(const StructuredOutput& wanted) const {
    GenerateRequest request{.prompt = prompt_, .max_new_tokens = 600, .stop_tokens = {kEnd}};
    request.grammar = Require(text_.CompileGrammar(wanted));
    return request;
  }

  Answer Generate(Engine& engine, const GenerateRequest& request) {
    return GenerateAll(engine, {request}).front();
  }

  // The text, without the end token.
  std::string TextOf(const Answer& answer) const {
    std::vector<TokenId> ids = answer.ids;
    if (!ids.empty() && ids.back() == kEnd) ids.pop_back();
    return (*text_.tokenizer)->Decode(ids);
  }

  void ExpectConforms(const Answer& answer) const {
    ASSERT_TRUE(answer.report.ok()) << answer.report.status();
    EXPECT_EQ(answer.report->finish_reasons.front(), FinishReason::kStopToken) << TextOf(answer);
    const auto value = nlohmann::json::parse(TextOf(answer), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(value.is_object()) << TextOf(answer);
    EXPECT_EQ(value.size(), 4u) << value;
    EXPECT_TRUE(value.value("kind", "") == "small" || value.value("kind", "") == "large") << value;
    ASSERT_TRUE(value["count"].is_number_unsigned()) << value;
    EXPECT_LE(value["count"].get<int>(), 99);
    EXPECT_TRUE(value["good"].is_boolean()) << value;
    EXPECT_TRUE(value["name"].is_string()) << value;
  }

  const ModelText text_ = ModelText::Load(GoldenDir(kTinyModel));
  const std::vector<TokenId> prompt_ = ReadGolden(kTinyModel).prompt;
};

TEST_F(StructuredEngineTest, EveryAnswerConformsToTheSchema) {
  ServedModel served = Serve(kModel, {.blocks = {.primary_blocks = 1024}});
  std::vector<GenerateRequest> requests;
  for (const float temperature : {0.0f, 1.5f}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      requests.push_back(Request({Kind::kJsonSchema, kSchema}));
      requests.back().sampling = {.temperature = temperature, .seed = seed};
      if (seed % 3 == 1) requests.back().sampling.top_k = 20;
      if (seed % 3 == 2) requests.back().sampling.top_p = 0.9f;
      if (seed % 5 == 1) requests.back().sampling.repetition_penalty = 1.3f;
      if (temperature == 0 && seed == 4) break;
    }
  }
  for (const Answer& answer : GenerateAll(*served.engine, requests)) ExpectConforms(answer);
}

TEST_F(StructuredEngineTest, AnswersAreWholeMatchesOfAnExpression) {
  ServedModel served = Serve(kModel, {.blocks = {.primary_blocks = 1024}});
  const std::string expression = "(yes|no)( [a-z]{2,6}){3}[.!]";
  std::vector<GenerateRequest> requests;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    requests.push_back(Request({Kind::kRegex, expression}));
    requests.back().sampling = {.temperature = 1.5f, .seed = seed};
  }
  for (const Answer& answer : GenerateAll(*served.engine, requests)) {
    ASSERT_TRUE(answer.report.ok()) << answer.report.status();
    EXPECT_TRUE(std::regex_match(TextOf(answer), std::regex(expression))) << TextOf(answer);
  }
}

TEST_F(StructuredEngineTest, AnyObjectIsAnObject) {
  ServedModel served = Serve(kModel, {.blocks = {.primary_blocks = 1024}});
  std::vector<GenerateRequest> requests;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    requests.push_back(Request({Kind::kJsonObject, ""}));
    requests.back().sampling = {.temperature = 1.5f, .seed = seed};
  }
  size_t complete = 0;
  for (const Answer& answer : GenerateAll(*served.engine, requests)) {
    ASSERT_TRUE(answer.report.ok()) << answer.report.status();
    const std::string text = TextOf(answer);
    EXPECT_EQ(text.substr(0, 1), "{");
    if (answer.report->finish_reasons.front() != FinishReason::kStopToken) continue;
    EXPECT_TRUE(nlohmann::json::parse(text, nullptr, false).is_object()) << text;
    ++complete;
  }
  EXPECT_GT(complete, 0u);
}

// Draft tokens are guessed from the text so far, which the grammar may not allow.
TEST_F(StructuredEngineTest, DraftTokensChangeNothing) {
  ServedModel served = Serve(kModel, {.blocks = {.primary_blocks = 1024}});
  uint32_t accepted = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    GenerateRequest request = Request({Kind::kRegex, "((ab)+c|(ab)+d){6,9}"});
    request.sampling = {.temperature = 1.0f, .seed = seed};
    const Answer plain = Generate(*served.engine, request);
    request.max_draft_tokens = 8;
    const Answer drafted = Generate(*served.engine, request);
    ASSERT_TRUE(plain.report.ok() && drafted.report.ok()) << drafted.report.status();
    EXPECT_EQ(drafted.ids, plain.ids);
    accepted += drafted.report->accepted_draft_tokens;
  }
  EXPECT_GT(accepted, 0u);
}

TEST_F(StructuredEngineTest, TheOthersOfABatchAnswerAsAlone) {
  GenerateRequest plain{.prompt = prompt_, .max_new_tokens = 40};
  plain.sampling = {.temperature = 1.0f, .seed = 7};
  GenerateRequest structured = Request({Kind::kJsonSchema, kSchema});
  structured.sampling = plain.sampling;
  ServedModel alone = Serve(kModel, {});
  const Answer expected = Generate(*alone.engine, plain);
  const Answer expected_structured = Generate(*alone.engine, structured);
  ServedModel together = Serve(kModel, {});
  const std::vector<Answer> answers = GenerateAll(*together.engine, {structured, plain, plain});
  EXPECT_EQ(answers[1].ids, expected.ids);
  EXPECT_EQ(answers[2].ids, expected.ids);
  EXPECT_EQ(answers[0].ids, expected_structured.ids);
  EXPECT_NE(expected.ids.front(), expected_structured.ids.front());
}

TEST_F(StructuredEngineTest, SamplesFollowTheGrammarEachForItself) {
  ServedModel served = Serve(kModel, {.blocks = {.primary_blocks = 1024}});
  GenerateRequest request = Request({Kind::kRegex, "[ab]{9}"});
  request.sampling = {.temperature = 1.5f, .seed = 3};
  request.num_samples = 6;
  std::vector<std::vector<TokenId>> ids(6);
  const auto report = served.engine->Generate(request, [&](const GeneratedToken& token) {
    ids[token.sample].push_back(token.token);
    return true;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  for (const std::vector<TokenId>& sample : ids) {
    EXPECT_TRUE(std::regex_match(TextOf({.ids = sample}), std::regex("[ab]{9}")));
  }
}

TEST_F(StructuredEngineTest, APreemptedAnswerKeepsItsPlace) {
  GenerateRequest request = Request({Kind::kJsonSchema, kSchema});
  request.sampling = {.temperature = 1.0f, .seed = 5};
  ServedModel large = Serve(kModel, {});
  const Answer expected = Generate(*large.engine, request);
  ServedModel served = Serve(kModel, {.max_running_sequences = 1});
  Answer answer;
  absl::BlockingCounter left(2);
  ASSERT_TRUE(served.engine
                  ->Submit(
                      request,
                      [&](const GeneratedToken& token) {
                        answer.ids.push_back(token.token);
                        if (answer.ids.size() != 5) return true;
                        const absl::Status submitted = served.engine->Submit(
                            {.prompt = prompt_, .max_new_tokens = 3, .priority = 1},
                            [](const GeneratedToken&) { return true; },
                            [&](const absl::StatusOr<GenerateReport>&) { left.DecrementCount(); });
                        EXPECT_TRUE(submitted.ok()) << submitted;
                        return true;
                      },
                      [&](absl::StatusOr<GenerateReport> report) {
                        answer.report = std::move(report);
                        left.DecrementCount();
                      })
                  .ok());
  left.Wait();
  ExpectConforms(answer);
  EXPECT_EQ(answer.report->preemptions, 1u);
  EXPECT_EQ(answer.ids, expected.ids);
}

TEST_F(StructuredEngineTest, WithoutEndTokensTheAnswerEndsWithItsText) {
  ServedModel served = Serve(kModel, {});
  GenerateRequest request = Request({Kind::kRegex, "[ab]{3}"});
  request.stop_tokens = {};
  const Answer answer = Generate(*served.engine, request);
  ASSERT_TRUE(answer.report.ok()) << answer.report.status();
  EXPECT_EQ(answer.report->finish_reasons.front(), FinishReason::kStopToken);
  EXPECT_TRUE(std::regex_match((*text_.tokenizer)->Decode(answer.ids), std::regex("[ab]{3}")));
}

TEST_F(StructuredEngineTest, StopTokensOutsideTheVocabularyAreIgnored) {
  ServedModel served = Serve(kModel, {});
  GenerateRequest request = Request({Kind::kRegex, "[ab]{3}"});
  request.stop_tokens = {kEnd, 4'000'000'000};
  const Answer answer = Generate(*served.engine, request);
  ASSERT_TRUE(answer.report.ok()) << answer.report.status();
  EXPECT_EQ(answer.ids.back(), kEnd);
}

TEST_F(StructuredEngineTest, ABeamSearchIsRefused) {
  ServedModel served = Serve(kModel, {});
  GenerateRequest request = Request({Kind::kRegex, "a"});
  request.beam_width = 2;
  const absl::Status status = served.engine->Check(request);
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidSampling);
  EXPECT_THAT(status.message(), HasSubstr("structured output"));
}

TEST(StructuredTextTest, AModelWithoutATokenizerRefuses) {
  const ModelText text = ModelText::Load(GoldenDir("llama3_tiny"));
  EXPECT_EQ(ReasonOf(text.CompileGrammar({Kind::kRegex, "a"}).status()), Reason::kInvalidArgument);
}

}  // namespace
}  // namespace pagoda
