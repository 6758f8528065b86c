#include "clients/pagoda_plan/trace/trace.h"

#include <fstream>
#include <string>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kGood[] =
    R"({"timestamp": 7, "input_length": 600, "hash_ids": [0, 18446744073709551615]})";

class TraceTest : public testing::Test {
 protected:
  std::string WriteFile(const std::string& text) const {
    const std::string path = directory_.File("trace.jsonl");
    std::ofstream(path) << text;
    return path;
  }

  // The message for a file whose third line is `line`.
  std::string ErrorFor(const std::string& line) const {
    const std::string path = WriteFile(std::string(kGood) + "\n\n" + line + "\n");
    const auto trace = ReadTrace(path);
    EXPECT_EQ(ReasonOf(trace.status()), Reason::kInvalidArgument) << line;
    EXPECT_THAT(std::string(trace.status().message()), HasSubstr(path + ":3: ")) << line;
    return std::string(trace.status().message());
  }

 private:
  const TempDirectory directory_;
};

TEST_F(TraceTest, ReadsTimestampsAndIds) {
  const auto trace = ReadTrace(WriteFile(std::string(kGood) + "\r\n"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_THAT(trace->requests, SizeIs(1));
  const TraceRequest& request = trace->requests.front();
  EXPECT_EQ(request.timestamp_ms, 7);
  EXPECT_THAT(request.hash_ids, ElementsAre(0u, 18446744073709551615u));
  EXPECT_EQ(request.input_tokens, 600u);
  EXPECT_EQ(request.output_tokens, 0u);
  EXPECT_EQ(trace->format, TraceFormat::kMooncake);
  EXPECT_EQ(trace->tokens_per_block, 512u);
  EXPECT_EQ(trace->odd_lengths, 0u);
}

TEST_F(TraceTest, BadLinesAreNamedByFileAndLine) {
  EXPECT_THAT(ErrorFor("{\"timestamp\": 1"), EndsWith("not a JSON object"));
  EXPECT_THAT(ErrorFor("[1, 2]"), EndsWith("not a JSON object"));
  EXPECT_THAT(ErrorFor(R"({"hash_ids": []})"), HasSubstr("\"timestamp\""));
  EXPECT_THAT(ErrorFor(R"({"timestamp": "0", "hash_ids": []})"), HasSubstr("\"timestamp\""));
  EXPECT_THAT(ErrorFor(R"({"timestamp": 0})"), HasSubstr("\"hash_ids\""));
  EXPECT_THAT(ErrorFor(R"({"timestamp": 0, "hash_ids": 3})"), HasSubstr("\"hash_ids\""));
  EXPECT_THAT(ErrorFor(R"({"timestamp": 0, "hash_ids": [-1]})"), HasSubstr("hash id -1"));
  EXPECT_THAT(ErrorFor(R"({"timestamp": 0, "hash_ids": [1.5]})"), HasSubstr("hash id 1.5"));
}

TEST_F(TraceTest, HostileNumbersAreRefused) {
  const std::string rest = R"(, "hash_ids": []})";
  EXPECT_THAT(ErrorFor(R"({"timestamp": 1e300)" + rest), HasSubstr("out of range"));
  EXPECT_THAT(ErrorFor(R"({"timestamp": 0, "input_length": -1)" + rest), HasSubstr("input_length"));
  EXPECT_THAT(ErrorFor(R"({"timestamp": 0, "output_length": 16777217)" + rest),
              HasSubstr("from 0 to 16777216"));
  EXPECT_THAT(ErrorFor(R"({"timestamp": 0, "input_length": 16777216, "output_length": 1)" + rest),
              HasSubstr("more than 16777216 tokens"));
  std::string ids = "0";
  for (int i = 0; i < 32768; ++i) ids += ",0";
  EXPECT_THAT(ErrorFor(R"({"timestamp": 0, "hash_ids": [)" + ids + "]}"),
              HasSubstr("32769 hash ids of 512 tokens"));
}

TEST_F(TraceTest, AnEndlessLineIsRefused) {
  EXPECT_THAT(ErrorFor(std::string((4 << 20) + 1, ' ')), HasSubstr("longer than 4 MiB"));
}

constexpr char kChat[] =
    R"({"chat_id": 9, "parent_chat_id": 4, "timestamp": 61.114, "input_length": 20, )"
    R"("output_length": 5, "type": "text", "turn": 2, "hash_ids": [3, 4]})";

TEST_F(TraceTest, RecognisesBailian) {
  const auto trace = ReadTrace(WriteFile(kChat));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->format, TraceFormat::kBailian);
  EXPECT_EQ(trace->tokens_per_block, 16u);
  ASSERT_THAT(trace->requests, SizeIs(1));
  const TraceRequest& request = trace->requests.front();
  EXPECT_EQ(request.timestamp_ms, 61'114) << "seconds";
  EXPECT_EQ(request.chat_id, 9);
  EXPECT_EQ(request.parent_chat_id, 4);
  EXPECT_EQ(request.input_tokens, 20u);
  EXPECT_EQ(request.output_tokens, 5u);
}

TEST_F(TraceTest, TheFirstTurnHasNoParent) {
  const auto trace = ReadTrace(
      WriteFile(R"({"chat_id": 0, "parent_chat_id": -1, "timestamp": 0, "hash_ids": []})"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->requests.front().parent_chat_id, std::nullopt);
  EXPECT_EQ(trace->requests.front().chat_id, 0);
}

TEST_F(TraceTest, TheCallerCanNameTheFormatAndTheBlocks) {
  const std::string path = WriteFile(kChat);
  const auto trace =
      ReadTrace(path, {.format = TraceFormat::kMooncake, .tokens_per_block = uint32_t{64}});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->requests.front().timestamp_ms, 61) << "milliseconds";
  EXPECT_EQ(trace->requests.front().chat_id, std::nullopt);
  EXPECT_EQ(trace->tokens_per_block, 64u);
  for (const uint32_t bad : {0u, 1u, 48u, 2048u}) {
    EXPECT_THAT(std::string(ReadTrace(path, {.tokens_per_block = bad}).status().message()),
                HasSubstr(":1: "))
        << bad;
  }
}

TEST_F(TraceTest, TheTraceCanNameItsBlocks) {
  const auto trace = ReadTrace(WriteFile(
      R"({"timestamp": 0, "tokens_per_block": 32, "input_length": 40, "hash_ids": [1, 2]})"
      "\n"
      R"({"timestamp": 0, "input_length": 9, "hash_ids": [1]})"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->tokens_per_block, 32u);
}

TEST_F(TraceTest, LengthsThatDoNotFitTheIdsAreCounted) {
  const std::string path =
      WriteFile(R"({"timestamp": 0, "input_length": 512, "hash_ids": [1]})"
                "\n"
                R"({"timestamp": 0, "input_length": 48, "hash_ids": [1, 2, 3]})"
                "\n"
                R"({"timestamp": 0, "input_length": 1025, "hash_ids": [1]})");
  const auto wrong = ReadTrace(path);
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_EQ(wrong->odd_lengths, 2u);
  EXPECT_EQ(wrong->first_odd_line, 2u);
}

TEST_F(TraceTest, TheLimitEndsBeforeABadLine) {
  const std::string path = WriteFile(std::string(kGood) + "\nbad\n");
  EXPECT_FALSE(ReadTrace(path, {.limit = 2}).ok());
  EXPECT_THAT(ReadTrace(path, {.limit = 1})->requests, SizeIs(1));
}

TEST_F(TraceTest, AnEmptyFileIsAnEmptyTrace) {
  EXPECT_THAT(ReadTrace(WriteFile(""))->requests, IsEmpty());
}

TEST_F(TraceTest, AMissingFileIsNamed) {
  EXPECT_THAT(std::string(ReadTrace("/nonexistent.jsonl").status().message()),
              HasSubstr("/nonexistent.jsonl"));
}

}  // namespace
}  // namespace pagoda
