// The input and output of pagoda-engine. tests/e2e/engine/test_engine_process.py runs the program
// itself.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/serve/run/line_reader.h"
#include "engine/serve/run/request_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Event = LineReader::Event;

constexpr uint32_t kDefaultTokens = 20;

class LineReaderTest : public testing::Test {
 protected:
  ~LineReaderTest() override {
    CloseInput();
    close(ends_[0]);
  }

  void Write(const std::string& text) {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseInput() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  // The next line; "(end)" or "(woken)" if there is none.
  std::string Next() {
    std::string line;
    const absl::StatusOr<Event> event = reader().Next(line);
    EXPECT_TRUE(event.ok()) << event.status();
    return *event == Event::kLine ? line : *event == Event::kEnd ? "(end)" : "(woken)";
  }
  LineReader& reader() { return reader_; }

 private:
  // The pipe's ends. The test writes to the second one.
  static std::array<int, 2> Pipe() {
    std::array<int, 2> ends;
    PAGODA_CHECK(pipe(ends.data()) == 0, "there are pipes");
    return ends;
  }

  std::array<int, 2> ends_ = Pipe();
  LineReader reader_{ends_[0]};
};

TEST_F(LineReaderTest, CutsWhatComesIntoLines) {
  Write("one\n\ntw");
  EXPECT_EQ(Next(), "one");
  EXPECT_EQ(Next(), "");
  Write("o\nthree");
  EXPECT_EQ(Next(), "two");
  CloseInput();
  EXPECT_EQ(Next(), "three") << "a last line needs no newline";
  EXPECT_EQ(Next(), "(end)");
  EXPECT_EQ(Next(), "(end)");
}

TEST_F(LineReaderTest, IsWokenWhileNothingComesAndBeforeWhatDid) {
  std::thread waker([this] { reader().Wake(); });
  EXPECT_EQ(Next(), "(woken)");
  waker.join();
  Write("one\n");
  reader().Wake();
  reader().Wake();
  EXPECT_EQ(Next(), "(woken)");
  EXPECT_EQ(Next(), "one");
}

TEST(LineReaderBoundTest, ALineHasABound) {
  const TempDirectory directory;
  const int file = open(directory.File("zeros").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, LineReader::kMaxLineBytes + (1 << 20)), 0);
  LineReader reader(file);
  std::string line;
  EXPECT_EQ(ReasonOf(reader.Next(line).status()), Reason::kInvalidArgument);
  close(file);
}

TEST(RequestLineTest, ReadsEveryField) {
  const RequestLine line = ParseRequestLine(
      R"({"id": "a", "prompt": [1, 2], "max_new_tokens": 7, "stop_tokens": [3], "cache_salt": "s",
          "temperature": 0.5, "top_k": 4, "top_p": 0.25, "repetition_penalty": 1.5, "seed": 9,
          "num_samples": 2, "max_draft_tokens": 3, "priority": 1, "beam_width": 4,
          "length_penalty": 0.5, "early_stopping": true})",
      kDefaultTokens);
  ASSERT_TRUE(line.request.ok()) << line.request.status();
  EXPECT_EQ(line.id, "a");
  EXPECT_THAT(line.request->prompt, ElementsAre(1, 2));
  EXPECT_THAT(line.request->stop_tokens, ElementsAre(3));
  EXPECT_EQ(line.request->max_new_tokens, 7u);
  EXPECT_EQ(line.request->name_space.cache_salt, "s");
  const SamplingParams& sampling = line.request->sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 4u);
  EXPECT_EQ(sampling.top_p, 0.25f);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.seed, 9u);
  EXPECT_EQ(line.request->num_samples, 2u);
  EXPECT_EQ(line.request->max_draft_tokens, 3u);
  EXPECT_EQ(line.request->priority, 1);
  EXPECT_EQ(line.request->beam_width, 4u);
  EXPECT_EQ(line.request->length_penalty, 0.5f);
  EXPECT_TRUE(line.request->early_stopping);
  const RequestLine least = ParseRequestLine(R"({"prompt": [1]})", kDefaultTokens);
  ASSERT_TRUE(least.request.ok());
  EXPECT_TRUE(least.id.is_null());
  EXPECT_EQ(least.request->max_new_tokens, kDefaultTokens);
  EXPECT_FALSE(least.request->is_beam_search());
}

TEST(RequestLineTest, NamesWhatIsWrong) {
  for (const auto& [text, message] : {
           std::pair("{", "not JSON"),
           std::pair("[1]", "not a JSON object"),
           std::pair(R"({"id": 1})", "no prompt"),
           std::pair(R"({"prompt": 1})", "prompt is not a list"),
           std::pair(R"({"prompt": [1, -1]})", "prompt[1] is not a token id: -1"),
           std::pair(R"({"prompt": [4294967296]})", "prompt[0] is not a token id"),
           std::pair(R"({"prompt": [1.5]})", "prompt[0] is not a token id"),
           std::pair(R"({"prompt": [1], "max_new_tokens": "2"})", "max_new_tokens is not a count"),
           std::pair(R"({"prompt": [1], "cache_salt": 2})", "cache_salt is not a string"),
           std::pair(R"({"prompt": [1], "best_of": 1})", "unknown field 'best_of'"),
           std::pair(R"({"prompt": [1], "top_k": -1})", "top_k is not a valid number"),
           std::pair(R"({"prompt": [1], "id": [2]})", "id is neither"),
           std::pair(R"({"prompt": [1], "beam_width": -1})", "beam_width is not a valid number"),
           std::pair(R"({"prompt": [1], "length_penalty": "1"})", "length_penalty is not a valid"),
           std::pair(R"({"prompt": [1], "early_stopping": 1})", "early_stopping is not a flag: 1"),
       }) {
    const absl::Status status = ParseRequestLine(text, kDefaultTokens).request.status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << text;
  }
}

// Copies and texts of a value call themselves for each level.
TEST(RequestLineTest, ADeepLineUsesNoStack) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& line : {deep, R"({"prompt":[)" + deep + "]}", R"({"id":)" + deep + "}"}) {
    EXPECT_EQ(ReasonOf(ParseRequestLine(line, 1).request.status()), Reason::kInvalidArgument);
  }
  const std::string brackets = R"({"prompt":[1],"cache_salt":"\"[[[[[[[[[[[[[[[[[[[[[[[["})";
  EXPECT_TRUE(ParseRequestLine(brackets, 1).request.ok()) << "within a text";
}

TEST(RequestLineTest, AnswersAreOneLine) {
  const Generated generated = {.tokens = {{5, 6}},
                               .report = {.finish_reasons = {FinishReason::kStopToken},
                                          .prompt_tokens = 9,
                                          .reused_tokens = 8,
                                          .generated_tokens = 2,
                                          .preemptions = 1,
                                          .drafted_tokens = 4,
                                          .accepted_draft_tokens = 3,
                                          .queue_time = absl::Milliseconds(1),
                                          .time_to_first_token = absl::Microseconds(1500),
                                          .total_time = absl::Milliseconds(2)}};
  EXPECT_EQ(AnswerLine(7, generated),
            R"({"id":7,"tokens":[5,6],"prompt_tokens":9,"reused_tokens":8,"reused_lower_tokens":0,)"
            R"("generated_tokens":2,"finish_reason":"stop token","time_to_first_token_ms":1.5,)"
            R"("queue_ms":1.0,"total_ms":2.0,"tokens_per_second":2000.0,"preemptions":1,)"
            R"("drafted_tokens":4,"accepted_draft_tokens":3})");
  Generated search = generated;
  search.tokens.push_back({7});
  search.report.finish_reasons.push_back(FinishReason::kLength);
  search.report.beam_scores = {-0.5f, -0.75f};
  EXPECT_THAT(AnswerLine(7, search), HasSubstr(R"("beam_scores":[-0.5,-0.75])"));
  EXPECT_EQ(AnswerLine("x", MakeError(Reason::kInvalidPrompt, "a\nb")),
            R"({"id":"x","error":{"reason":"INVALID_PROMPT","message":"a\nb"}})");
  EXPECT_EQ(AnswerLine(nullptr, absl::UnavailableError("gone")),
            R"({"id":null,"error":{"reason":"UNAVAILABLE","message":"gone"}})");
}

}  // namespace
}  // namespace pagoda
