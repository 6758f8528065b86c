#include "clients/pagodactl/trace.h"

#include <fstream>
#include <string>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/temp_directory.h"

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
    const auto requests = ReadTrace(path, 0);
    EXPECT_EQ(ReasonOf(requests.status()), Reason::kInvalidArgument) << line;
    EXPECT_THAT(std::string(requests.status().message()), HasSubstr(path + ":3: ")) << line;
    return std::string(requests.status().message());
  }

 private:
  const TempDirectory directory_;
};

TEST_F(TraceTest, ReadsTimestampsAndIds) {
  const auto requests = ReadTrace(WriteFile(std::string(kGood) + "\r\n"), 0);
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_THAT(*requests, SizeIs(1));
  EXPECT_EQ(requests->front().timestamp_ms, 7);
  EXPECT_THAT(requests->front().hash_ids, ElementsAre(0u, 18446744073709551615u));
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

TEST_F(TraceTest, TheLimitEndsBeforeABadLine) {
  const std::string path = WriteFile(std::string(kGood) + "\nbad\n");
  EXPECT_FALSE(ReadTrace(path, 2).ok());
  EXPECT_THAT(*ReadTrace(path, 1), SizeIs(1));
}

TEST_F(TraceTest, AnEmptyFileIsAnEmptyTrace) {
  EXPECT_THAT(*ReadTrace(WriteFile(""), 0), IsEmpty());
}

TEST_F(TraceTest, AMissingFileIsNamed) {
  EXPECT_THAT(std::string(ReadTrace("/nonexistent.jsonl", 0).status().message()),
              HasSubstr("/nonexistent.jsonl"));
}

}  // namespace
}  // namespace pagoda
