// replay and size with any ladder of tiers: runs the program.
#include <cstdint>
#include <fstream>
#include <string>

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
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kSize[] =
    "size --preset qwen3-8b --tiers hbm:gpu:80GiB,dram:host:400GiB,nvme:disk:3TiB ";

Json RunJson(const std::string& arguments) {
  const Outcome outcome = RunProgram(arguments + " -o json");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

TEST(LadderCommandsTest, BadUsageExitsWithTwoAndPrintsNoResult) {
  for (const char* arguments :
       {"replay " CHAT_TRACE " --tiers hbm:gpu:100 --blocks 100",
        "replay " CHAT_TRACE " --tiers hbm:gpu:100 --host-blocks 100",
        "replay " CHAT_TRACE " --tiers hbm:gpu", "replay " CHAT_TRACE " --tiers hbm:gpu:80GiB",
        "replay " CHAT_TRACE " --tiers nvme:disk:100",
        "replay " CHAT_TRACE " --tiers a:gpu:9 --preset qwen3-8b --layers 1x1x1",
        "size --preset qwen3-8b --tiers hbm:gpu:80GiB --primary 80GiB",
        "size --preset qwen3-8b --tiers hbm:gpu:80GiB --secondary 80GiB",
        "size --preset qwen3-8b --tiers hbm:gpu:80GiB --write-budget 44MB/s",
        "size --preset qwen3-8b --primary 80GiB --drive-tbw 7PB",
        "replay " CHAT_TRACE " --tiers a:host:9,b:disk:9,c:host:9",
        "size --preset qwen3-8b --tiers a:host:9,b:disk:9,c:disk:9",
        "size --preset qwen3-8b --tiers a:host:9,b:disk:9 --write-budget 44MB",
        "size --preset qwen3-8b --tiers a:host:9,b:disk:9 --drive-tbw 7",
        "size --preset qwen3-8b --tiers a:host:9,b:disk:9 --drive-tbw 7PB --drive-dwpd 1",
        "size --preset qwen3-8b --tiers a:host:9,b:disk:9 --drive-years 5"}) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

// Half of bf16's bytes, and the scales: a float32 for K and V of each head and layer of a block.
TEST(LadderCommandsTest, SizeShowsThatFloat8TakesHalf) {
  constexpr uint64_t kScales = 36 * 2 * 8 * 4;
  const std::string plan = "size --preset qwen3-8b --primary 80GiB --dtype ";
  for (const char* dtype : {"fp8_e4m3", "fp8_e5m2"}) {
    const Json json = RunJson(plan + dtype);
    EXPECT_EQ(json["scale_bytes_per_block"], kScales);
    EXPECT_EQ(json["windows"][0]["bytes_per_block"], 32 * (72 << 10) + kScales);
    EXPECT_EQ(json["bytes_per_token"], (72 << 10) + kScales / 32);
    EXPECT_EQ(json["primary"]["max_concurrent_sequences"], 142);
  }
  const Json bf16 = RunJson(plan + "bfloat16");
  EXPECT_EQ(bf16["scale_bytes_per_block"], 0);
  EXPECT_EQ(bf16["windows"][0]["bytes_per_block"], 32 * (144 << 10));
  EXPECT_EQ(bf16["primary"]["max_concurrent_sequences"], 71);
  EXPECT_THAT(RunProgram(plan + "fp8_e4m3").out,
              HasSubstr("scales     2.2 KiB of a block: a float32 per layer and head"));
  EXPECT_THAT(RunProgram(plan + "bfloat16").out, Not(HasSubstr("scales")));
}

// Computed by hand, with bytes: a block of 512 tokens of one layer of K and V, of one head of one
// element of 2 bytes, is 2 KiB. Each block is written to the disk through dram when its request
// ends. Blocks of hbm fall to these copies. 5 displaces 1 from the disk. The second 2 comes from
// the disk through dram to hbm.
TEST(LadderCommandsTest, ReplayPrintsTheFiguresOfEachTier) {
  const TempDirectory directory;
  const std::string path = directory.File("trace.jsonl");
  std::ofstream trace(path);
  int64_t time = 0;
  for (const int id : {1, 2, 3, 4, 5, 2}) {
    trace << "{\"timestamp\": " << time << ", \"hash_ids\": [" << id << "]}\n";
    time += 1000;
  }
  trace.close();
  const std::string command = absl::StrCat(
      "replay ", path,
      " --one-by-one --policy lru --layers 1x1x1 --tiers hbm:gpu:4KiB,dram:host:36KiB,nvme:disk:4");
  const Json json = RunJson(command);
  EXPECT_EQ(json["block_bytes"], 2048);
  EXPECT_EQ(json["trace_seconds"], 5);
  ASSERT_THAT(json["runs"], SizeIs(1));
  const Json& run = json["runs"][0];
  EXPECT_EQ(run["evictions"], 1);
  EXPECT_FALSE(run.contains("host_blocks"));
  ASSERT_THAT(run["tiers"], SizeIs(3));
  const Json& hbm = run["tiers"][0];
  EXPECT_EQ(hbm["name"], "hbm");
  EXPECT_EQ(hbm["medium"], "gpu");
  EXPECT_EQ(hbm["capacity_blocks"], 2);
  EXPECT_EQ(hbm["capacity_bytes"], 4096);
  EXPECT_EQ(hbm["blocks_written"], 1);
  EXPECT_EQ(hbm["bytes_read"], 9 * 2048);  // 5 for the disk, and 4 that left for the next tier.
  EXPECT_EQ(hbm["free_evictions"], 0);
  // A block of 2 KiB, the spare and the 16 staging slots above a disk.
  const Json& dram = run["tiers"][1];
  EXPECT_EQ(dram["capacity_blocks"], 1);
  EXPECT_EQ(dram["blocks_written"], 10);
  EXPECT_EQ(dram["hit_tokens"], 0);
  const Json& nvme = run["tiers"][2];
  EXPECT_EQ(nvme["medium"], "disk");
  EXPECT_EQ(nvme["hit_tokens"], 512);
  EXPECT_DOUBLE_EQ(nvme["hit_rate"], 1.0 / 6);
  EXPECT_EQ(nvme["bytes_written"], 5 * 2048);
  EXPECT_EQ(nvme["bytes_read"], 2048);
  EXPECT_EQ(nvme["evictions"], 0);
  EXPECT_EQ(nvme["free_evictions"], 0);
  EXPECT_DOUBLE_EQ(nvme["bytes_written_per_second"], 5 * 2048 / 5.0);

  const Outcome table = RunProgram(command);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("reads and writes of nvme take no time"), HasSubstr("FREE EVICT"),
                    HasSubstr("BYTES WRITTEN"), HasSubstr("10.0 KiB"),
                    HasSubstr("nvme is written at 2.05 kB/s on average, over the 5.00 s")));
}

TEST(LadderCommandsTest, ADiskHitsWithEachSchedule) {
  for (const char* schedule : {"", " --one-by-one"}) {
    const Json json = RunJson(absl::StrCat(
        "replay " CHAT_TRACE " --policy lru,learned --tiers hbm:gpu:100,dram:host:50,nvme:disk:400",
        schedule));
    ASSERT_THAT(json["runs"], SizeIs(2));
    for (const Json& run : json["runs"]) {
      const Json& tiers = run["tiers"];
      EXPECT_GT(tiers[2]["hit_tokens"], 0) << run["policy"] << schedule;
      EXPECT_EQ(uint64_t{tiers[0]["hit_tokens"]} + uint64_t{tiers[1]["hit_tokens"]} +
                    uint64_t{tiers[2]["hit_tokens"]},
                uint64_t{run["blocks_hit"]} * 512)
          << run["policy"] << schedule;
    }
  }
}

TEST(LadderCommandsTest, ReplayOfBlocksKnowsNoBytes) {
  const std::string command =
      "replay " CHAT_TRACE " --tiers hbm:gpu:100,dram:host:300 --policy lru,learned";
  const Json json = RunJson(command);
  EXPECT_FALSE(json.contains("block_bytes"));
  ASSERT_THAT(json["runs"], SizeIs(2));
  EXPECT_EQ(json["runs"][1]["policy"], "learned");
  EXPECT_FALSE(json["runs"][0]["tiers"][1].contains("bytes_written"));
  // The same figures as for the short form of the options.
  const Json brief = RunJson("replay " CHAT_TRACE " --blocks 100 --host-blocks 300 --policy lru");
  const Json& in_short = brief["runs"][1];
  EXPECT_EQ(in_short["hit_rate"], json["runs"][0]["hit_rate"]);
  EXPECT_EQ(in_short["host_hit_rate"], json["runs"][0]["tiers"][1]["hit_rate"]);
  EXPECT_EQ(in_short["tiers"][1]["name"], "secondary");
  EXPECT_EQ(in_short["tiers"][1]["blocks_written"], in_short["offloads"]);

  const Outcome table = RunProgram(command);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("\nlru: "), HasSubstr("\nlearned: "),
                               Not(HasSubstr("BYTES")), Not(HasSubstr("disk"))));
}

TEST(LadderCommandsTest, SizeSizesALadder) {
  const Json json = RunJson(kSize);
  ASSERT_THAT(json["tiers"], SizeIs(3));
  EXPECT_EQ(json["tiers"][0]["name"], "hbm");
  EXPECT_EQ(json["tiers"][0]["blocks"]["full"], 18204);
  EXPECT_EQ(json["tiers"][0]["max_concurrent_sequences"], 71);
  EXPECT_EQ(json["tiers"][1]["medium"], "host");
  // 400 GiB / 4.5 MiB, without the spare and the staging slots above a disk.
  EXPECT_EQ(json["tiers"][1]["blocks"]["full"], 91022 - 17);
  // A slot of the file is 4.5 MiB and a page.
  EXPECT_EQ(json["tiers"][2]["blocks"]["full"], 698444);
  EXPECT_FALSE(json["tiers"][1].contains("drive"));
  EXPECT_FALSE(json["tiers"][2]["drive"].contains("life_years"));
  EXPECT_EQ(json["config"],
            "cache:\n"
            "  tokens_per_block: 32\n"
            "  kv_dtype: bfloat16\n"
            "  tiers:\n"
            "    - {name: hbm, medium: gpu, size: 80GiB}\n"
            "    - {name: dram, medium: host, size: 400GiB}\n"
            "    - {name: nvme, medium: disk, size: 3TiB}\n");
  const Outcome table = RunProgram(kSize);
  EXPECT_THAT(table.out, AllOf(HasSubstr("nvme tier, disk, in 3TiB"), HasSubstr("698,444"),
                               HasSubstr("has 17 spare slots, for running copies"),
                               Not(HasSubstr("one spare slot")),
                               HasSubstr(json["config"].get<std::string>())));
}

TEST(LadderCommandsTest, SizeGivesBlocksToEveryWindow) {
  const Json json = RunJson(
      "size --layers 52x16x128@1024,10x16x128 --tiers a:host:100,b:disk:70 --sequence-tokens 2048");
  EXPECT_EQ(json["tiers"][0]["blocks"]["1024"], 100);
  EXPECT_EQ(json["tiers"][1]["blocks"]["full"], 70);
  EXPECT_THAT(json["config"].get<std::string>(),
              AllOf(HasSubstr("workload: {sequence_tokens: 2048, chunk_tokens: 512}"),
                    HasSubstr("{name: b, medium: disk, size: 70}")));
}

TEST(LadderCommandsTest, SizeSaysHowLongADriveLasts) {
  const std::string budget = absl::StrCat(kSize, "--write-budget=44MB/s --drive-size 3.84TB ");
  const Json written = RunJson(budget + "--drive-tbw=7PB")["tiers"][2]["drive"];
  EXPECT_DOUBLE_EQ(written["endurance_bytes"], 7e15);
  EXPECT_DOUBLE_EQ(written["write_budget_bytes_per_second"], 44e6);
  EXPECT_NEAR(written["life_years"], 5.0447, 0.0001);
  EXPECT_NEAR(written["one_write_per_day_bytes_per_second"], 44.44e6, 0.01e6);
  EXPECT_NEAR(written["writes_per_day"], 0.99, 0.001);

  const Json rated = RunJson(budget + "--drive-dwpd=3 --drive-years=3")["tiers"][2]["drive"];
  EXPECT_DOUBLE_EQ(rated["endurance_bytes"], 3.84e12 * 3 * 3 * 365);
  EXPECT_NEAR(rated["life_years"], 9 / 0.99, 0.001);
  // Five years unless the command line says otherwise.
  EXPECT_NEAR(RunJson(budget + "--drive-dwpd=1")["tiers"][2]["drive"]["life_years"], 5 / 0.99,
              0.001);

  const Outcome table = RunProgram(budget + "--drive-tbw=7PB");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("one write of the drive per day (3.84 TB) is 44.4 MB/s"),
                    HasSubstr("a budget of 44.0 MB/s is 3.80 TB per day, 0.99 writes of the drive"),
                    HasSubstr("the drive endures 7.00 PB of writes"),
                    HasSubstr("it lasts 5.0 years if the budget is always used up")));
}

TEST(LadderCommandsTest, ADriveWithoutASizeIsAsLargeAsItsTier) {
  const Json json = RunJson(kSize);
  EXPECT_EQ(json["tiers"][2]["drive"]["capacity_bytes"], json["tiers"][2]["bytes"]);
  EXPECT_THAT(RunProgram(kSize).out, HasSubstr("as large as the tier) is 38.2 MB/s"));
}

TEST(LadderCommandsTest, ATierLargerThanItsDriveExitsWithOne) {
  const Outcome outcome = RunProgram(absl::StrCat(kSize, "--drive-size 1.92TB"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err,
              HasSubstr("the nvme tier needs 3.30 TB, more than its drive of 1.92 TB"));
}

}  // namespace
}  // namespace pagoda
