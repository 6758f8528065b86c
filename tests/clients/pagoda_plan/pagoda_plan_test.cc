// Runs the program, and checks exit codes, the standard output, and that its JSON parses.
#include "clients/pagoda_plan/parser.h"

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/clients/fixtures/commands.h"
#include "tests/clients/fixtures/fake_engine.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

TEST(PagodaPlanTest, HelpAndVersionSucceed) {
  const Outcome help = RunProgram("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out,
              AllOf(HasSubstr("Examples:"), HasSubstr("size"), HasSubstr("replay"),
                    HasSubstr("trace"), HasSubstr("workload"), HasSubstr("PAGODA_ENDPOINT"),
                    HasSubstr("The daemon of workload:"), Not(HasSubstr("pagodactl"))));
  const Outcome version = RunProgram("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("pagoda-plan "));
}

TEST(PagodaPlanTest, EachCommandHasItsOwnExamples) {
  GlobalOptions globals;
  Action chosen;
  CLI::App app("", "pagoda-plan");
  BuildPlanParser(app, globals, chosen);
  int commands = 0;
  VisitCommands(app, "", [&](const CLI::App& command, const std::string& path) {
    ++commands;
    const Outcome help = RunProgram(absl::StrCat(path, " --help"));
    EXPECT_EQ(help.exit_code, 0) << path;
    EXPECT_THAT(help.out, Not(HasSubstr("pagodactl"))) << path;
    EXPECT_THAT(help.out, HasSubstr("\nOptions:\n")) << path;
    const std::vector<std::string> parts = absl::StrSplit(command.get_footer(), "Examples:\n");
    EXPECT_THAT(parts.back(), HasSubstr(absl::StrCat("pagoda-plan ", path))) << path;
  });
  EXPECT_EQ(commands, 7);
}

TEST(PagodaPlanTest, WordsComplete) {
  EXPECT_THAT(Complete({""}), IsSupersetOf({"size", "replay", "trace", "workload", "--output"}));
  EXPECT_THAT(Complete({"replay", "--policy", "l"}), UnorderedElementsAre("lru", "learned"));
  EXPECT_THAT(Complete({"replay", "comp"}), ElementsAre("complete.sh"));
  EXPECT_THAT(Complete({"workload", "--"}), IsSupersetOf({"--turns", "--endpoint"}));
  EXPECT_THAT(Complete({"size", "--"}), Not(Contains("--turns")));
}

TEST(PagodaPlanTest, AnUnknownCommandIsNamedWithTheNearest) {
  const Outcome outcome = RunProgram("replya trace.jsonl");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err, "pagoda-plan: there is no command 'replya'; did you mean 'replay'?\n");
}

TEST(PagodaPlanTest, BadUsageExitsWithTwoAndPrintsNoResult) {
  for (const char* arguments : {"",
                                "frobnicate",
                                "size -o xml",
                                "completion",
                                "workload --concurrency 0",
                                "workload --turns -1",
                                "replay",
                                "replay --blocks 3",
                                "replay /nonexistent --blocks 3",
                                ("replay " CHAT_TRACE),
                                ("replay " CHAT_TRACE " --blocks 3 --policy fifo"),
                                ("replay " CHAT_TRACE " --blocks 0 --host-blocks 5"),
                                ("replay " CHAT_TRACE " --blocks 3 --host-blocks x"),
                                "size",
                                "size --preset qwen3-8b --layers 1x1x1",
                                "size --preset qwen4",
                                "size --layers 36x8",
                                "size --model /nonexistent",
                                "size --preset qwen3-8b --primary 80",
                                "size --preset qwen3-8b --dtype int4",
                                "size --preset qwen3-8b --sequence-tokens 0"}) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

TEST(PagodaPlanTest, AWorkloadWithoutADaemonExitsWithThreeAndAHint) {
  for (const char* arguments : {"--endpoint unix:/nonexistent/pagoda.sock workload",
                                "workload --endpoint unix:/nonexistent/pagoda.sock"}) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 3) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err,
                AllOf(StartsWith("pagoda-plan: "), HasSubstr("unix:/nonexistent/pagoda.sock"),
                      HasSubstr("deploy/run.sh")));
  }
}

TEST(PagodaPlanTest, AnErrorOfTheDaemonExitsWithOne) {
  const TempDirectory directory;
  const std::string endpoint = "unix:" + directory.File("pagodad.sock");
  FakeEngine engine;  // Has no CacheService.
  grpc::ServerBuilder builder;
  builder.AddListeningPort(endpoint, grpc::InsecureServerCredentials());
  builder.RegisterService(&engine);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const Outcome outcome = RunProgram("workload", "PAGODA_ENDPOINT=" + endpoint);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  server->Shutdown();
}

TEST(PagodaPlanTest, ReplayPrintsItsFiguresAsJson) {
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

TEST(PagodaPlanTest, ReplayShowsHostTiersBesideNone) {
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

TEST(PagodaPlanTest, ReplayTakesALimitAndPrintsATable) {
  EXPECT_EQ(
      Json::parse(RunProgram("-o json replay " CHAT_TRACE " --blocks 0 --limit 7").out)["requests"],
      7);
  const Outcome table = RunProgram("replay " CHAT_TRACE " --blocks 0");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr("(unlimited)"), HasSubstr("HIT RATE"), HasSubstr(" %")));
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos);
}

TEST(PagodaPlanTest, SizeShowsWhatATokenTakesAndWhatFits) {
  const Outcome outcome =
      RunProgram("size --preset qwen3-8b --primary 80GiB --secondary 200GiB -o json");
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

  const Outcome table = RunProgram("size --preset qwen3-8b --primary 80GiB");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("qwen3-8b, bfloat16"), HasSubstr("36 layers of 8 x 128"),
                               HasSubstr("144.0 KiB in all layers"), HasSubstr("18,204"),
                               HasSubstr("fits 71 sequences of 8,192 tokens at once")));
}

TEST(PagodaPlanTest, SizeDividesAMemoryBetweenWindows) {
  const Outcome outcome =
      RunProgram("size --layers 52x16x128@1024,10x16x128 --primary 40GiB --sequences 4 -o json");
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

TEST(PagodaPlanTest, SizeReadsACheckpointsConfiguration) {
  const Outcome outcome = RunProgram("size --model " GOLDEN_MODEL " -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["model"], "qwen3_tiny");
  EXPECT_EQ(json["bytes_per_token"], 2 * 2 * 2 * 32 * 4);
  EXPECT_FALSE(json.contains("primary"));
  const Outcome half = RunProgram("size --model " GOLDEN_MODEL " --dtype bfloat16 -o json");
  EXPECT_EQ(Json::parse(half.out)["bytes_per_token"], 2 * 2 * 2 * 32 * 2);
}

TEST(PagodaPlanTest, ASizeThatCannotBeExitsWithOne) {
  const Outcome small = RunProgram("size --preset qwen3-8b --primary 1MiB");
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_THAT(small.err, HasSubstr("does not hold one block"));
  const TempDirectory directory;
  std::ofstream(directory.File("config.json")) << "{}";
  const Outcome empty = RunProgram("size --model " + directory.path());
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.err, HasSubstr("num_hidden_layers"));
}

TEST(PagodaPlanTest, ABadTraceExitsWithOneAndNamesTheLine) {
  const TempDirectory directory;
  const std::string path = directory.File("bad.jsonl");
  std::ofstream(path) << "{\"timestamp\": 0, \"hash_ids\": [1]}\nnonsense\n";
  const Outcome outcome = RunProgram(absl::StrCat("replay ", path, " --blocks 3"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(absl::StrCat(path, ":2: ")));
}

TEST(PagodaPlanTest, AMemoryThatIsTooSmallFails) {
  const Outcome none = RunProgram("size --preset qwen3-8b --primary 512MiB");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.out, HasSubstr("fits 0 sequences of 8,192 tokens at once"));
  EXPECT_THAT(none.err, AllOf(HasSubstr("primary tier in 512MiB fits 0 of 1 sequence"),
                              HasSubstr("which take 1.1 GiB")));
  const Outcome few = RunProgram("size --preset qwen3-8b --primary 80GiB --sequences 72");
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_THAT(few.err, HasSubstr("fits 71 of 72 sequences"));
}

}  // namespace
}  // namespace pagoda
