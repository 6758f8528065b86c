#include "engine/serve/openai/api_answer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/serve/openai/answer_stream.h"

namespace pagoda::server {
namespace {

using Kind = ApiRequest::Kind;

// Keeps the written data.
class RecordedExchange final : public HttpExchange {
 public:
  void Answer(const HttpResponse& response) override { answered = response; }
  bool BeginStream(const std::string& type) override {
    content_type = type;
    return true;
  }
  bool Write(absl::string_view bytes) override {
    text.append(bytes.data(), bytes.size());
    return there;
  }
  void EndStream() override { ended = true; }
  bool ClientIsThere() override { return there; }

  HttpResponse answered{.status = 0};
  std::string content_type;
  std::string text;
  bool ended = false;
  bool there = true;
};

ApiAnswer NewAnswer(Kind kind) {
  return ApiAnswer(kind, "m", ApiAnswer::TokenIds::kLeaveOut, ReuseNumbers::kShow,
                   absl::FromUnixSeconds(9));
}

std::vector<GenerateReport> Reports() {
  return {{.prompt_tokens = 5,
           .reused_tokens = 4,
           .reused_lower_tokens = 2,
           .generated_tokens = 11,
           .time_to_first_token = absl::Seconds(1),
           .total_time = absl::Seconds(3)},
          {.prompt_tokens = 6,
           .generated_tokens = 10,
           .time_to_first_token = absl::Seconds(2),
           .total_time = absl::Seconds(2)}};
}

// The queue time is excluded, the prefill time is not.
TEST(ApiAnswerTest, TokensPerSecondAreThoseOfTheTimeBehindTheQueue) {
  std::vector<GenerateReport> reports = {{.generated_tokens = 10,
                                          .queue_time = absl::Seconds(2),
                                          .time_to_first_token = absl::Seconds(3),
                                          .total_time = absl::Seconds(6)}};
  EXPECT_EQ(PagodaJson(reports, ReuseNumbers::kShow)["tokens_per_second"], 2.5);
  EXPECT_EQ(reports[0].tokens_per_second(), 2.5);
  reports.push_back({.generated_tokens = 20,
                     .queue_time = absl::Seconds(5),
                     .time_to_first_token = absl::Seconds(6),
                     .total_time = absl::Seconds(8)});
  EXPECT_EQ(PagodaJson(reports, ReuseNumbers::kShow)["tokens_per_second"], 5.0);
}

// The data of each event.
std::vector<std::string> Events(const std::string& text) {
  std::vector<std::string> events;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find("\n\n", at);
    EXPECT_EQ(text.substr(at, 6), "data: ");
    events.push_back(text.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

TEST(ApiAnswerTest, SumsTheReports) {
  EXPECT_EQ(UsageJson(Reports(), ReuseNumbers::kShow).dump(),
            R"({"prompt_tokens":11,"completion_tokens":21,"total_tokens":32,)"
            R"("prompt_tokens_details":{"cached_tokens":4}})");
  const Json pagoda = PagodaJson(Reports(), ReuseNumbers::kShow);
  EXPECT_EQ(pagoda["time_to_first_token_seconds"], 1.0);
  EXPECT_EQ(pagoda["total_seconds"], 3.0);
  EXPECT_EQ(pagoda["tokens_per_second"], TokensPerSecond(Reports()));
  EXPECT_EQ(PagodaJson({}, ReuseNumbers::kShow)["tokens_per_second"], 0.0);
  EXPECT_EQ(pagoda["reused_lower_tokens"], 2);
  EXPECT_FALSE(pagoda.contains("beam_scores"));
}

TEST(ApiAnswerTest, TheScoresOfBeamsAreInTheOrderOfTheChoices) {
  std::vector<GenerateReport> reports = Reports();
  reports[0].beam_scores = {-0.5f, -0.75f};
  reports[1].beam_scores = {-0.25f, -1.5f};
  EXPECT_EQ(PagodaJson(reports, ReuseNumbers::kShow)["beam_scores"].dump(),
            "[-0.5,-0.75,-0.25,-1.5]");
}

TEST(ApiAnswerTest, ACompletionAndAChat) {
  const std::vector<ChoicePiece> choices = {
      {.text = "a",
       .tokens = {1},
       .logprobs = {{.text = "a", .logprob = -0.5, .top = {{"a", -0.5f}, {"\uFFFD", -1.0f}}}},
       .finish_reason = "stop"},
      {.choice = 1, .text = "b", .finish_reason = "length"}};
  const Json completion = NewAnswer(Kind::kCompletion).Whole(choices, Reports());
  EXPECT_EQ(completion["object"], "text_completion");
  EXPECT_EQ(completion["created"], 9);
  EXPECT_EQ(completion["choices"][0]["text"], "a");
  EXPECT_EQ(completion["choices"][0]["logprobs"]["tokens"].dump(), R"(["a"])");
  EXPECT_EQ(completion["choices"][0]["logprobs"]["top_logprobs"][0]["a"], -0.5);
  EXPECT_EQ(completion["choices"][1]["finish_reason"], "length");
  EXPECT_TRUE(completion["choices"][1]["logprobs"].is_null());
  EXPECT_FALSE(completion["choices"][0].contains("token_ids"));
  const Json chat = NewAnswer(Kind::kChat).Whole(choices, Reports());
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "a");
  const Json row = chat["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(row["bytes"].dump(), "[97]");
  EXPECT_TRUE(row["top_logprobs"][1]["bytes"].is_null());
}

TEST(AnswerStreamTest, TheNumbersGoWithTheLastPiece) {
  const ApiAnswer answer = NewAnswer(Kind::kChat);
  RecordedExchange exchange;
  AnswerStream stream(&answer, &exchange, {.choices = 2, .is_chat = true});
  EXPECT_TRUE(stream.Add({}));
  EXPECT_EQ(exchange.content_type, "") << "nothing has come yet";
  const std::vector<ChoicePiece> pieces = {{.text = "a", .finish_reason = "stop"},
                                           {.choice = 1, .text = "b"},
                                           {.choice = 1, .text = "c", .finish_reason = "length"}};
  EXPECT_TRUE(stream.Add(pieces));
  stream.Finish(Reports());
  const std::vector<std::string> events = Events(exchange.text);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(Json::parse(events[2])["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(Json::parse(events[2]).contains("pagoda"));
  EXPECT_EQ(Json::parse(events[4])["choices"][0]["delta"]["content"], "c");
  EXPECT_EQ(Json::parse(events[4])["pagoda"]["reused_tokens"], 4);
  EXPECT_EQ(events[5], "[DONE]");
  EXPECT_TRUE(exchange.ended);
}

TEST(AnswerStreamTest, AnErrorBeforeTheFirstPieceHasItsOwnStatus) {
  const ApiAnswer answer = NewAnswer(Kind::kCompletion);
  RecordedExchange early;
  AnswerStream(&answer, &early, {}).Fail(MakeError(Reason::kQueueFull, "full"));
  EXPECT_EQ(early.answered.status, 429);
  RecordedExchange late;
  AnswerStream stream(&answer, &late, {});
  const std::vector<ChoicePiece> pieces = {{.text = "a"}};
  EXPECT_TRUE(stream.Add(pieces));
  stream.Fail(MakeError(Reason::kBlocksExhausted, "none"));
  EXPECT_EQ(late.answered.status, 0);
  EXPECT_EQ(Json::parse(Events(late.text).back())["error"]["code"], "blocks_exhausted");
  EXPECT_TRUE(late.ended);
}

TEST(AnswerStreamTest, SaysWhenTheClientHasGone) {
  const ApiAnswer answer = NewAnswer(Kind::kCompletion);
  RecordedExchange exchange;
  exchange.there = false;
  AnswerStream stream(&answer, &exchange, {});
  const std::vector<ChoicePiece> pieces = {{.text = "a"}};
  EXPECT_FALSE(stream.Add(pieces));
}

}  // namespace
}  // namespace pagoda::server
