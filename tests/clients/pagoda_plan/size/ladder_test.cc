#include "clients/pagoda_plan/size/ladder.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LadderTest, ReadsTiersOfBytesAndOfBlocks) {
  const auto ladder = ParseLadder("hbm:gpu:80GiB,dram:host:1000,nvme-0:disk:2TiB");
  ASSERT_TRUE(ladder.ok()) << ladder.status();
  ASSERT_EQ(ladder->size(), 3u);
  EXPECT_EQ((*ladder)[0].name, "hbm");
  EXPECT_EQ((*ladder)[0].medium, Medium::kGpu);
  EXPECT_EQ(std::get<ByteBudget>((*ladder)[0].budget).bytes, uint64_t{80} << 30);
  EXPECT_EQ((*ladder)[0].SizeText(), "80GiB");
  EXPECT_EQ((*ladder)[1].medium, Medium::kHost);
  EXPECT_TRUE((*ladder)[1].in_blocks());
  EXPECT_THAT(std::get<BlockBudget>((*ladder)[1].budget).blocks, ElementsAre(1000));
  EXPECT_EQ((*ladder)[1].SizeText(), "1,000 blocks");
  EXPECT_EQ((*ladder)[2].name, "nvme-0");
  EXPECT_EQ((*ladder)[2].medium, Medium::kDisk);
  EXPECT_EQ(FindDisk(*ladder), &(*ladder)[2]);

  const std::vector<TierRequest> requests = TierRequests(*ladder);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[2].medium, Medium::kDisk);
  EXPECT_EQ(requests[2].name, "nvme-0");
  EXPECT_EQ(std::get<ByteBudget>(requests[2].budget).bytes, uint64_t{2} << 40);
}

TEST(LadderTest, TheFirstTierMayLieOnTheHostAndALadderMayHaveNoDisk) {
  const auto ladder = ParseLadder("a:host:1");
  ASSERT_TRUE(ladder.ok()) << ladder.status();
  EXPECT_EQ((*ladder)[0].SizeText(), "1 block");
  EXPECT_EQ(FindDisk(*ladder), nullptr);
}

TEST(LadderTest, WhatIsNoLadderIsRefusedAndNamed) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "NAME:MEDIUM:SIZE"},
      {"hbm:80GiB", "\"hbm:80GiB\" is not NAME:MEDIUM:SIZE"},
      {"hbm:gpu:1:2", "NAME:MEDIUM:SIZE"},
      {"hbm:gpu:1,", "NAME:MEDIUM:SIZE"},
      {":gpu:1", "is not a tier name"},
      {"h b:gpu:1", "is not a tier name"},
      {"hbm:tape:1", "\"tape\" is not a medium"},
      {"hbm:gpu:0", "\"0\" is neither bytes"},
      {"hbm:gpu:0GiB", "is neither bytes"},
      {"hbm:gpu:-1", "is neither bytes"},
      {"hbm:gpu:80G", "\"80G\" is neither bytes"},
      {"hbm:gpu:268435457", "268435456 blocks"},
      {"a:disk:1", "engines compute"},
      {"a:gpu:1,b:gpu:1", "GPU memory"},
      {"a:host:1,b:disk:1,c:host:1", "tier 'b' is on disk; only the last tier can be"},
      {"a:host:1,b:disk:1,c:disk:1", "tier 'b' is on disk; only the last tier can be"},
      {"a:gpu:1,b:disk:1", "tier 'b' is on disk; the tier right above it must be in host memory"},
      {"a:gpu:1,a:host:1", "two tiers are named 'a'"},
      {"a:host:1,b:host:1,c:host:1,d:host:1,e:host:1", "5 tiers"}};
  for (const auto& [text, why] : bad) {
    EXPECT_EQ(ReasonOf(ParseLadder(text).status()), Reason::kInvalidArgument) << text;
    EXPECT_THAT(CheckLadder(text), HasSubstr(why)) << text;
  }
  EXPECT_EQ(CheckLadder("a:host:1,b:host:1,c:host:1,d:disk:1"), "");
}

}  // namespace
}  // namespace pagoda
