// The options of replay and trace: runs the program.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/clients/fixtures/program.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

nlohmann::json ReplayToJson(const std::string& arguments) {
  const Outcome outcome = RunProgram(absl::StrCat("replay ", arguments, " -o json"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

TEST(ReplayCommandTest, BadUsageIsRefused) {
  for (const char* bad :
       {"--blocks 10:x", "--blocks 100,0 --host-blocks 5", "--blocks 9 --policy opt",
        "--tiers hbm:gpu:9 --policy opt --one-by-one", "--tiers hbm:gpu:9 --svg a.svg",
        "--blocks 9 --one-by-one --decode-tokens-per-second 5",
        "--blocks 9 --prefill-tokens-per-second 0", "--blocks 9 --format x",
        "--blocks 9 --tokens-per-block 1"}) {
    const Outcome outcome = RunProgram(absl::StrCat("replay " CHAT_TRACE " ", bad));
    EXPECT_EQ(outcome.exit_code, 2) << bad;
    EXPECT_EQ(outcome.out, "") << bad;
  }
}

TEST(ReplayCommandTest, PoliciesAndCapacitiesGiveARunEach) {
  const auto json = ReplayToJson(CHAT_TRACE " --one-by-one --blocks 50:200:x2 --policy lru,opt");
  EXPECT_EQ(json["schedule"], "one_by_one");
  ASSERT_THAT(json["runs"], SizeIs(6));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["runs"][i]["capacity_blocks"], json["runs"][i + 3]["capacity_blocks"]);
    EXPECT_LT(json["runs"][i]["hit_rate"], json["runs"][i + 3]["hit_rate"]) << "opt knows more";
  }
}

TEST(ReplayCommandTest, RequestsOverlapUnlessTheyRunOneByOne) {
  const auto overlapping = ReplayToJson(CHAT_TRACE " --blocks 100");
  EXPECT_EQ(overlapping["schedule"], "overlapping");
  EXPECT_EQ(overlapping["prefill_tokens_per_second"], 10000);
  const auto& figures = overlapping["runs"][0]["overlap"];
  EXPECT_GT(figures["most_running_requests"], 1);
  EXPECT_GT(figures["waiting_requests"], 0);
  EXPECT_GT(figures["reply_blocks"], 0);
  EXPECT_EQ(figures["cut_replies"], 0);
  // With quick replies, fewer run at once.
  const auto quick = ReplayToJson(CHAT_TRACE " --blocks 100 --decode-tokens-per-second 4000");
  EXPECT_LT(quick["runs"][0]["overlap"]["most_running_requests"], figures["most_running_requests"]);
  EXPECT_FALSE(
      ReplayToJson(CHAT_TRACE " --blocks 100 --one-by-one")["runs"][0].contains("overlap"));
}

TEST(ReplayCommandTest, ReadsTheOtherFormat) {
  const auto json = ReplayToJson(BAILIAN_TRACE " --blocks 20");
  EXPECT_EQ(json["format"], "bailian");
  EXPECT_EQ(json["tokens_per_block"], 16);
  EXPECT_EQ(json["requests"], 6);
  EXPECT_EQ(json["runs"][0]["overlap"]["found_reply_blocks"], 5);
  const Outcome table = RunProgram("replay " BAILIAN_TRACE " --blocks 20");
  EXPECT_THAT(table.out, AllOf(HasSubstr("34 of 16 tokens requested"), HasSubstr("LONGEST WAIT")));
}

TEST(ReplayCommandTest, WarnsOfLengthsThatDoNotFit) {
  const Outcome wrong = RunProgram("replay " CHAT_TRACE " --blocks 300 --tokens-per-block 16");
  EXPECT_EQ(wrong.exit_code, 0);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr(":1: input_length"), HasSubstr("--tokens-per-block")));
}

TEST(ReplayCommandTest, DrawsAPicture) {
  const TempDirectory directory;
  const std::string path = directory.File("hits.svg");
  const Outcome drawn = RunProgram(
      absl::StrCat("replay " CHAT_TRACE " --blocks 50,200 --policy lru,learned --svg ", path));
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_THAT(ReadFile(path), AllOf(HasSubstr("<svg"), HasSubstr(">lru<"), HasSubstr(">learned<"),
                                    HasSubstr("</svg>")));
  const Outcome failed =
      RunProgram("replay " CHAT_TRACE " --blocks 50 --svg /nonexistent/hits.svg");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, HasSubstr("cannot write /nonexistent/hits.svg"));
}

TEST(TraceCommandTest, WhatItWritesCanBeReplayed) {
  const TempDirectory directory;
  const std::string path = directory.File("agents.jsonl");
  const std::string command = "trace generate --kind agents --requests 50 --tokens-per-block 256 ";
  const Outcome written = RunProgram(command + path);
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out, "");
  EXPECT_EQ(RunProgram(command).out, ReadFile(path));
  EXPECT_NE(RunProgram(command + "--seed 2").out, ReadFile(path));
  const auto json = ReplayToJson(path + " --blocks 0");
  EXPECT_EQ(json["requests"], 50);
  EXPECT_EQ(json["tokens_per_block"], 256);
}

TEST(TraceCommandTest, BadUsageIsRefused) {
  for (const char* bad : {"trace", "trace generate --kind x", "trace generate --requests 0",
                          "trace generate --hours 0", "trace generate --tokens-per-block 48"}) {
    EXPECT_EQ(RunProgram(bad).exit_code, 2) << bad;
  }
  const Outcome failed = RunProgram("trace generate --requests 5 /nonexistent/trace.jsonl");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, HasSubstr("cannot write /nonexistent/trace.jsonl"));
}

}  // namespace
}  // namespace pagoda
