// How replays are presented: the list of capacities, the table, JSON and the picture.
#include "clients/pagoda_plan/replay/replay_text.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "clients/pagoda_plan/replay/block_counts.h"
#include "clients/pagoda_plan/replay/hit_rate_chart.h"
#include "clients/pagoda_plan/replay/replay_opt.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(BlockCountsTest, ReadsListsAndRanges) {
  EXPECT_THAT(*ParseBlockCounts("0"), ElementsAre(0));
  EXPECT_THAT(*ParseBlockCounts("1000,3000"), ElementsAre(1000, 3000));
  EXPECT_THAT(*ParseBlockCounts("10:100:x2"), ElementsAre(10, 20, 40, 80, 100));
  EXPECT_THAT(*ParseBlockCounts("10:40:x2"), ElementsAre(10, 20, 40));
  EXPECT_THAT(*ParseBlockCounts("1:5:x1.000000000001"), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(*ParseBlockCounts("7,2:4:x1.5,9"), ElementsAre(7, 2, 3, 4, 9));
}

TEST(BlockCountsTest, RefusesWhatIsNone) {
  for (const char* bad :
       {"", "x", "1,", "-1", "1:2", "1:9:2", "1:9:x1", "1:9:xnan", "0:9:x2", "9:1:x2", "5:5:x2",
        "1:9:x2:3", "999999999", "1:9:x", "1:100000:x1.0001"}) {
    EXPECT_FALSE(ParseBlockCounts(bad).ok()) << bad;
    EXPECT_NE(CheckBlockCounts(bad), "") << bad;
  }
  EXPECT_EQ(CheckBlockCounts("5"), "");
}

ReplayRun RunOf(const std::string& policy, std::vector<uint32_t> tier_blocks, uint64_t hit) {
  ReplayRun run{policy, std::move(tier_blocks), {}};
  run.report.tokens_per_block = 512;
  for (const uint32_t blocks : run.tier_blocks) {
    run.report.tiers.push_back({.capacity_blocks = blocks});
  }
  run.report.requests = 10;
  run.report.blocks_requested = 100;
  run.report.blocks_hit = hit;
  return run;
}

ReplayResults TwoPolicies() {
  ReplayResults results;
  results.runs = {RunOf("lru", {1000}, 20), RunOf("lru", {4000}, 30), RunOf("lru", {1000, 500}, 25),
                  RunOf(kOptPolicy, {1000}, 40), RunOf(kOptPolicy, {4000}, 50)};
  return results;
}

TEST(ReplayTextTest, SeveralCapacitiesHaveAColumn) {
  const std::vector<std::string> lines = absl::StrSplit(ReplayText(TwoPolicies()), '\n');
  EXPECT_THAT(lines[3], HasSubstr("POLICY         BLOCKS   HOST BLOCKS   HIT RATE"));
  EXPECT_THAT(lines[4], HasSubstr("lru             1,000             0    20.00 %"));
  EXPECT_THAT(lines[6], HasSubstr("lru             1,000           500    25.00 %"));
  EXPECT_THAT(lines[7], HasSubstr("opt             1,000             0    40.00 %          -"));
}

TEST(ReplayTextTest, WaitsHaveColumns) {
  ReplayResults results;
  results.service = ServiceModel{.prefill_tokens_per_second = 5000, .decode_tokens_per_second = 30};
  results.runs = {RunOf("lru", {1000}, 20)};
  results.runs[0].report.overlap = {.most_running = 12,
                                    .waiting_requests = 3,
                                    .total_wait = absl::Seconds(20),
                                    .longest_wait = absl::Seconds(9)};
  EXPECT_THAT(ReplayText(results),
              AllOf(HasSubstr("prefill at 5,000 tokens per second, decode at 30 per sequence"),
                    HasSubstr("RUNNING    WAITED  LONGEST WAIT"),
                    HasSubstr("     12         3        9.00 s")));
  const nlohmann::ordered_json json = ReplayJson(results);
  EXPECT_EQ(json["schedule"], "overlapping");
  EXPECT_EQ(json["decode_tokens_per_second"], 30);
  const auto& overlap = json["runs"][0]["overlap"];
  EXPECT_EQ(overlap["most_running_requests"], 12);
  EXPECT_EQ(overlap["waiting_requests"], 3);
  EXPECT_EQ(overlap["mean_wait_seconds"], 2);
  EXPECT_EQ(overlap["longest_wait_seconds"], 9);
}

TEST(ReplayTextTest, JsonHasEveryRun) {
  const nlohmann::ordered_json json = ReplayJson(TwoPolicies());
  EXPECT_EQ(json["schedule"], "one_by_one");
  EXPECT_EQ(json["format"], "mooncake");
  ASSERT_THAT(json["runs"], SizeIs(5));
  EXPECT_EQ(json["runs"][1]["capacity_blocks"], 4000);
  EXPECT_EQ(json["runs"][2]["host_blocks"], 500);
  EXPECT_EQ(json["runs"][3]["policy"], "opt");
  EXPECT_EQ(json["runs"][3]["hit_rate"], 0.4);
  EXPECT_FALSE(json["runs"][3].contains("tiers")) << "opt does not say where a block is";
  EXPECT_FALSE(json["runs"][0].contains("overlap"));
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ReplayTextTest, ThePictureHasALineForEachPolicyAndHostTier) {
  const std::string svg = ReplaySvg(TwoPolicies());
  EXPECT_THAT(svg, AllOf(HasSubstr("<svg xmlns="), HasSubstr("</svg>\n"), HasSubstr(">lru<"),
                         HasSubstr(">lru + 500 host<"), HasSubstr(">opt<"),
                         HasSubstr("hit rate</text>"), HasSubstr("capacity in blocks</text>"),
                         HasSubstr(">1,000<"), HasSubstr(">2,000<"), HasSubstr(">50 %<")));
  // Each line and its sample in the legend.
  EXPECT_EQ(Count(svg, "<polyline"), 6u);
  // 1,000 is the left end and 4,000 the right end; 50 % is the top.
  EXPECT_THAT(svg, HasSubstr("points=\"72.0,120.8 640.0,48.0\""));
}

TEST(HitRateChartTest, TextsAreEscapedAndOnePointHasAPlace) {
  const std::string svg = HitRateSvg("<a & \"b\">", {{"<x>", {{100, 0}}}});
  EXPECT_THAT(svg, AllOf(HasSubstr("&lt;a &amp; &quot;b&quot;&gt;"), HasSubstr("&lt;x&gt;"),
                         HasSubstr("points=\"356.0,412.0\""), Not(HasSubstr("nan")),
                         Not(HasSubstr("inf"))));
}

}  // namespace
}  // namespace pagoda
