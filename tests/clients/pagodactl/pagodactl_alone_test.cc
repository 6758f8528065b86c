// Runs the program without a daemon, and checks exit codes, the standard output, and that its JSON
// parses.
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(PagodactlTest, HelpAndVersionSucceed) {
  const Outcome help = RunProgram("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:"), HasSubstr("status"), HasSubstr("watch"),
                              HasSubstr("generate"), HasSubstr("workload"), HasSubstr("replay"),
                              HasSubstr("plan"), HasSubstr("PAGODA_ENDPOINT")));
  const Outcome version = RunProgram("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("pagodactl "));
}

constexpr const char* kBadUsage[] = {"",
                                     "frobnicate",
                                     "status --frobnicate",
                                     "status -o xml",
                                     "--timeout 0 status",
                                     "--timeout -3 status",
                                     "watch --count 0",
                                     "watch --from-revision x",
                                     "watch --from-revision 1 --snapshot",
                                     "watch --type moved",
                                     "watch --window wide",
                                     "watch --chunk-tokens 256",
                                     "watch --hashes --chunk-tokens 0",
                                     "generate",
                                     "generate --prompt-tokens 1,x",
                                     "generate --prompt-tokens 1 --random-prompt 2",
                                     "generate --prompt-tokens 1 --max-new-tokens 0",
                                     "workload --concurrency 0",
                                     "workload --turns -1",
                                     "replay",
                                     "replay --blocks 3",
                                     "replay /nonexistent --blocks 3",
                                     ("replay " CHAT_TRACE),
                                     ("replay " CHAT_TRACE " --blocks 3 --policy fifo"),
                                     ("replay " CHAT_TRACE " --blocks 0 --host-blocks 5"),
                                     ("replay " CHAT_TRACE " --blocks 3 --host-blocks x"),
                                     "plan",
                                     "plan --preset qwen3-8b --layers 1x1x1",
                                     "plan --preset qwen4",
                                     "plan --layers 36x8",
                                     "plan --model /nonexistent",
                                     "plan --preset qwen3-8b --primary 80",
                                     "plan --preset qwen3-8b --dtype int4",
                                     "plan --preset qwen3-8b --sequence-tokens 0",
                                     "pin",
                                     "pin --tokens 1,x",
                                     "pin --tokens 1 --token-file -",
                                     "pin --tokens 1 --lease 0",
                                     "pin --all",
                                     "unpin",
                                     "unpin x",
                                     "pins 3",
                                     "offload",
                                     "prefetch --all",
                                     "invalidate --tokens 1 --all",
                                     "retain --tokens 1",
                                     "retain --tokens 1 --priority 101",
                                     "retain --tokens 1 --priority 3 --duration -1",
                                     "top --interval 0",
                                     "top --interval 1 --interval 2",
                                     "sessions --limit 0",
                                     "sequences --session x",
                                     "inspect",
                                     "inspect --all",
                                     "end-session",
                                     "end-session x",
                                     "quarantine frob",
                                     "quarantine release",
                                     "quarantine --force",
                                     "drain 3",
                                     "bench --seconds 0",
                                     "bench --batch 0",
                                     "bench --batch 4097",
                                     "bench --concurrency 0",
                                     "completion",
                                     "completion fish"};

TEST(PagodactlTest, BadUsageExitsWithTwoAndPrintsNoResult) {
  for (const char* arguments : kBadUsage) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

TEST(PagodactlTest, NoDaemonExitsWithThreeAndAHint) {
  for (const char* arguments : {"status",
                                "watch",
                                "generate --prompt-tokens 1",
                                "workload",
                                "status -o json",
                                "pins",
                                "pin --tokens 1",
                                "unpin 1",
                                "offload --tokens 1",
                                "prefetch --tokens 1",
                                "invalidate --all",
                                "retain --tokens 1 --priority 3",
                                "top",
                                "top --once -o json",
                                "caches",
                                "caches show a",
                                "caches drop a",
                                "caches open a --model m --layers 1x1x8",
                                "sessions",
                                "sequences",
                                "tenants",
                                "inspect --tokens 1",
                                "end-session 1",
                                "quarantine",
                                "quarantine release 1",
                                "drain --wait",
                                "bench"}) {
    const Outcome outcome =
        RunProgram(absl::StrCat(arguments, " --endpoint unix:/nonexistent/pagoda.sock"));
    EXPECT_EQ(outcome.exit_code, 3) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("unix:/nonexistent/pagoda.sock"), HasSubstr("deploy/run.sh")));
  }
}

TEST(PagodactlTest, ReplayPrintsItsFiguresAsJson) {
  const Outcome outcome = RunProgram("replay " CHAT_TRACE " --blocks 100 -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["requests"], Lines(ReadFile(CHAT_TRACE)).size());
  EXPECT_EQ(json["capacity_blocks"], 100);
  ASSERT_THAT(json["runs"], SizeIs(1));
  const Json& run = json["runs"][0];
  EXPECT_EQ(run["host_blocks"], 0);
  EXPECT_GT(run["hit_rate"], 0.0);
  EXPECT_LT(run["hit_rate"], 1.0);
  EXPECT_GT(run["evictions"], 0);
  EXPECT_GT(run["operations_per_second"], 0.0);
}

TEST(PagodactlTest, ReplayShowsHostTiersBesideNone) {
  const std::string replay = "replay " CHAT_TRACE " --one-by-one --blocks 100 --host-blocks ";
  const Outcome outcome = RunProgram(replay + "100,300 --policy lru,learned -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json runs = Json::parse(outcome.out)["runs"];
  ASSERT_THAT(runs, SizeIs(6));
  for (size_t policy = 0; policy < 2; ++policy) {
    const Json& none = runs[3 * policy];
    const Json& small = runs[3 * policy + 1];
    const Json& large = runs[3 * policy + 2];
    EXPECT_EQ(none["policy"], policy == 0 ? "lru" : "learned");
    EXPECT_EQ(none["host_blocks_hit"], 0);
    EXPECT_EQ(none["offloads"], 0);
    EXPECT_EQ(small["host_blocks"], 100);
    EXPECT_EQ(large["host_blocks"], 300);
    EXPECT_GT(small["hit_rate"], none["hit_rate"]);
    EXPECT_GT(large["hit_rate"], small["hit_rate"]);
    EXPECT_GT(large["host_blocks_hit"], 0);
    EXPECT_EQ(large["onboards"], large["host_blocks_hit"]);
  }

  const Outcome table = RunProgram(replay + "100 --policy lru");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  const std::vector<std::string> lines = Lines(table.out);
  ASSERT_THAT(lines, SizeIs(6));
  EXPECT_THAT(lines[3], HasSubstr("HOST BLOCKS"));
  EXPECT_THAT(lines[4], StartsWith("lru                  0"));
  EXPECT_THAT(lines[5], StartsWith("lru                100"));
}

TEST(PagodactlTest, ReplayTakesALimitAndPrintsATable) {
  EXPECT_EQ(
      Json::parse(RunProgram("-o json replay " CHAT_TRACE " --blocks 0 --limit 7").out)["requests"],
      7);
  const Outcome table = RunProgram("replay " CHAT_TRACE " --blocks 0");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr("(unlimited)"), HasSubstr("HIT RATE"), HasSubstr(" %")));
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos);
}

TEST(PagodactlTest, PlanShowsWhatATokenTakesAndWhatFits) {
  const Outcome outcome =
      RunProgram("plan --preset qwen3-8b --primary 80GiB --secondary 200GiB -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["bytes_per_token"], 144 << 10);
  EXPECT_EQ(json["windows"][0]["bytes_per_block"], 32 * (144 << 10));
  EXPECT_EQ(json["windows"][0]["blocks_per_sequence"], 8192 / 32);
  EXPECT_EQ(json["sequences_bytes"], uint64_t{8192} * (144 << 10));
  // 80 GiB / 4.5 MiB; 200 GiB without the spare.
  EXPECT_EQ(json["primary"]["blocks"]["full"], 18204);
  EXPECT_EQ(json["primary"]["max_concurrent_sequences"], 18204 / 256);
  EXPECT_EQ(json["secondary"]["blocks"]["full"], 45510);

  const Outcome table = RunProgram("plan --preset qwen3-8b --primary 80GiB");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("qwen3-8b, bfloat16"), HasSubstr("36 layers of 8 x 128"),
                               HasSubstr("144.0 KiB in all layers"), HasSubstr("18,204"),
                               HasSubstr("fits 71 sequences of 8,192 tokens at once")));
}

TEST(PagodactlTest, PlanDividesAMemoryBetweenWindows) {
  const Outcome outcome =
      RunProgram("plan --layers 52x16x128@1024,10x16x128 --primary 40GiB --sequences 4 -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  const Json& window = json["windows"][0];
  const Json& full = json["windows"][1];
  EXPECT_EQ(window["window"], "1024");
  EXPECT_EQ(full["window"], "full");
  // (1,024 + 512) / 32 and one for an unaligned begin; 8,192 / 32.
  EXPECT_EQ(window["blocks_per_sequence"], 49);
  EXPECT_EQ(full["blocks_per_sequence"], 256);
  const uint64_t in_window = json["primary"]["blocks"]["1024"];
  const uint64_t in_full = json["primary"]["blocks"]["full"];
  EXPECT_NEAR(static_cast<double>(in_window) / 49, static_cast<double>(in_full) / 256, 0.1);
  EXPECT_EQ(json["primary"]["bytes"], in_window * window["bytes_per_block"].get<uint64_t>() +
                                          in_full * full["bytes_per_block"].get<uint64_t>());
  EXPECT_LE(json["primary"]["bytes"].get<uint64_t>(), uint64_t{40} << 30);
}

TEST(PagodactlTest, PlanReadsACheckpointsConfiguration) {
  const Outcome outcome = RunProgram("plan --model " GOLDEN_MODEL " -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["model"], "qwen3_tiny");
  EXPECT_EQ(json["bytes_per_token"], 2 * 2 * 2 * 32 * 4);
  EXPECT_FALSE(json.contains("primary"));
  const Outcome half = RunProgram("plan --model " GOLDEN_MODEL " --dtype bfloat16 -o json");
  EXPECT_EQ(Json::parse(half.out)["bytes_per_token"], 2 * 2 * 2 * 32 * 2);
}

TEST(PagodactlTest, APlanThatCannotBeExitsWithOne) {
  const Outcome small = RunProgram("plan --preset qwen3-8b --primary 1MiB");
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_THAT(small.err, HasSubstr("does not hold one block"));
  const TempDirectory directory;
  std::ofstream(directory.File("config.json")) << "{}";
  const Outcome empty = RunProgram("plan --model " + directory.path());
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.err, HasSubstr("num_hidden_layers"));
}

TEST(PagodactlTest, ABadTraceExitsWithOneAndNamesTheLine) {
  const TempDirectory directory;
  const std::string path = directory.File("bad.jsonl");
  std::ofstream(path) << "{\"timestamp\": 0, \"hash_ids\": [1]}\nnonsense\n";
  const Outcome outcome = RunProgram(absl::StrCat("replay ", path, " --blocks 3"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(absl::StrCat(path, ":2: ")));
}

}  // namespace
}  // namespace pagoda
