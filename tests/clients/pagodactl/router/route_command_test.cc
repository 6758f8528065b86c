// pagodactl route, with nodes that the test plays.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/router/chunk_hashes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/clients/router/fake_node.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kPromptTokens = 64;  // Four blocks.

class RouteCommandTest : public testing::Test {
 protected:
  RouteCommandTest() {
    for (uint32_t i = 0; i < kPromptTokens; ++i) tokens_.push_back(100 + i);
    blocks_ = ChunkHashes({.name_space = {.cache_salt = "team-a"}, .tokens = tokens_},
                          TokensPerBlock(16), 16);
  }

  // A node with the prompt's first `count` blocks.
  std::unique_ptr<FakeNode> Node(const std::string& name, size_t count, v1::Tier tier) {
    auto node = std::make_unique<FakeNode>(directory_.File(name), FakeCache(7));
    Fill(*node, count, tier);
    return node;
  }
  // For the next one who asks.
  void Fill(FakeNode& node, size_t count, v1::Tier tier) {
    std::vector<FakeBlock> blocks;
    for (size_t i = 0; i < count; ++i) blocks.push_back({blocks_[i].value(), tier});
    node.AwaitNoStream();
    node.Send(SnapshotMessage(7, 10, blocks));
  }
  std::string Prompt() const {
    return absl::StrCat("--salt team-a --tokens ", absl::StrJoin(tokens_, ","));
  }

  TempDirectory directory_;
  std::vector<TokenId> tokens_;
  std::vector<BlockHash> blocks_;
};

TEST_F(RouteCommandTest, ShowsTheBestNodeFirst) {
  const auto few = Node("few", 1, v1::TIER_PRIMARY), many = Node("many", 3, v1::TIER_SECOND);
  const auto none = Node("none", 0, v1::TIER_PRIMARY);
  const std::string arguments =
      absl::StrCat("route ", Prompt(), " --node few=", few->endpoint(),
                   ",few:7001 --node none=", none->endpoint(), " --node many=", many->endpoint(),
                   ",many:7001 --node away=unix:", directory_.File("away"),
                   // 64 bytes a token: 1 s to compute one, 0.5 s from host, 0.25 s from a peer.
                   " --recompute 1 --host-rate 128B --peer-rate 256B");
  const Outcome table = RunProgram(arguments);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  const std::vector<std::string> lines = Lines(table.out);
  ASSERT_EQ(lines.size(), 5u) << table.out;
  EXPECT_THAT(lines[0], AllOf(HasSubstr("NODE"), HasSubstr("COST")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("many "), HasSubstr(" 48 "), HasSubstr("following")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("few "), HasSubstr(" 16 "), HasSubstr("32 from many")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("none "), HasSubstr(" 0 "), HasSubstr("48 from many")));
  EXPECT_THAT(lines[4], AllOf(HasSubstr("away "), HasSubstr(" no "), HasSubstr("connecting: ")));

  Fill(*few, 1, v1::TIER_PRIMARY);
  Fill(*many, 3, v1::TIER_SECOND);
  Fill(*none, 0, v1::TIER_PRIMARY);
  const Outcome outcome = RunProgram(arguments + " -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["prompt_tokens"], 64);
  EXPECT_EQ(json["cache"], "main");
  ASSERT_EQ(json["nodes"].size(), 4u);
  EXPECT_EQ(json["nodes"][0]["name"], "many");
  EXPECT_EQ(json["nodes"][0]["matched_tokens"], 48);
  EXPECT_EQ(json["nodes"][0]["tier"], "dram");
  EXPECT_EQ(json["nodes"][0]["records"], 3);
  EXPECT_EQ(json["nodes"][0]["revision"], 10);
  EXPECT_DOUBLE_EQ(json["nodes"][0]["cost_seconds"], 48 * 0.5 + 16);
  EXPECT_EQ(json["nodes"][1]["tier"], "hbm");
  EXPECT_EQ(json["nodes"][1]["fetch_from"], "many");
  EXPECT_DOUBLE_EQ(json["nodes"][1]["cost_seconds"], 32 * 0.25 + 16);
  EXPECT_EQ(json["nodes"][2]["tier"], nullptr);
  EXPECT_EQ(json["nodes"][3]["alive"], false);
  EXPECT_EQ(json["nodes"][3]["matched_tokens"], nullptr);
  EXPECT_NE(json["nodes"][3]["error"], nullptr);
}

TEST_F(RouteCommandTest, FindsWholeChunksOnly) {
  const auto node = Node("few", 3, v1::TIER_PRIMARY);
  const Outcome outcome = RunProgram(absl::StrCat("route ", Prompt(), " -o json --chunk-tokens 32 ",
                                                  "--endpoint ", node->endpoint()));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json["nodes"].size(), 1u);
  EXPECT_EQ(json["nodes"][0]["name"], node->endpoint());
  EXPECT_EQ(json["nodes"][0]["matched_tokens"], 32);
  EXPECT_EQ(node->requests().front().chunk_tokens(), 32u);
}

TEST_F(RouteCommandTest, BadUsageIsRefused) {
  for (const char* arguments :
       {"route", "route --tokens 1 --node =unix:/x",
        "route --tokens 1 --node a=", "route --tokens 1 --chunk-tokens 0",
        "route --tokens 1 --recompute 0", "route --tokens 1 --peer-rate 3", "route --all"}) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }
  const Outcome twice = RunProgram("route --tokens 1 --node a=unix:/x --node a=unix:/y");
  EXPECT_EQ(twice.exit_code, 1);
  EXPECT_THAT(twice.err, HasSubstr("'a'"));
  const Outcome help = RunProgram("route --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
}

TEST_F(RouteCommandTest, WithoutAnyDaemonItSaysSo) {
  const Outcome outcome =
      RunProgram("route --tokens 1 --endpoint unix:/nonexistent/pagoda.sock --timeout 5");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("unix:/nonexistent/pagoda.sock"), HasSubstr("deploy/run.sh")));
}

}  // namespace
}  // namespace pagoda
