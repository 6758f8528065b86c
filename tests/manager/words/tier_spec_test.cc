#include "manager/words/tier_spec.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "manager/block_manager.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using testing::HasSubstr;

// Why a cache of one window does not get these tiers; empty if it does.
std::string Refusal(const std::vector<TierSpec>& tiers) {
  const absl::Status status = CheckTiers(tiers, 1);
  if (status.ok()) return "";
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(TierSpecTest, ANameIsShortAndPlain) {
  for (const char* name : {"primary", "tier2", "NVMe-0_a", "x"}) {
    EXPECT_TRUE(CheckTierName(name).ok()) << name;
  }
  EXPECT_TRUE(CheckTierName(std::string(kMaxTierName, 'a')).ok());
  for (const char* name : {"", "a b", "a/b", "\xc3\xa4", "a.b"}) {
    EXPECT_EQ(ReasonOf(CheckTierName(name)), Reason::kInvalidArgument) << name;
  }
  EXPECT_FALSE(CheckTierName(std::string(kMaxTierName + 1, 'a')).ok());
}

TEST(TierSpecTest, TheUsualTiersHaveTheirDefaultNames) {
  const std::vector<TierSpec> one = HostTiers({8});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "primary");
  const std::vector<TierSpec> two = HostTiers({8}, {2});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].name, "secondary");
  EXPECT_EQ(two[1].blocks_in(0), 2u);
  EXPECT_EQ(DefaultTierName(Tier{3}), "tier3");
}

TEST(TierSpecTest, AListHasOneToFourTiersOfDifferentNames) {
  EXPECT_THAT(Refusal({}), HasSubstr("0 tiers"));
  std::vector<TierSpec> tiers;
  for (size_t t = 0; t < kMaxTiers; ++t) {
    tiers.push_back({.name = DefaultTierName(Tier(t)), .blocks = {4}});
    EXPECT_EQ(Refusal(tiers), "");
  }
  tiers.push_back({.name = "one-more", .blocks = {4}});
  EXPECT_THAT(Refusal(tiers), HasSubstr("5 tiers"));
  tiers.pop_back();
  tiers.back().name = "primary";
  EXPECT_THAT(Refusal(tiers), HasSubstr("two tiers are called 'primary'"));
}

TEST(TierSpecTest, OnlyTheFirstTierNeedsBlocks) {
  EXPECT_THAT(Refusal(HostTiers({})), HasSubstr("0 block counts for 1 window"));
  EXPECT_THAT(Refusal(HostTiers({0})), HasSubstr("0 blocks in tier 'primary'"));
  EXPECT_EQ(Refusal(HostTiers({1}, {0})), "");
  EXPECT_THAT(Refusal(HostTiers({1}, {1, 1})), HasSubstr("2 block counts for 1 window"));
  std::vector<TierSpec> tiers = HostTiers({1}, {1});
  tiers[1].blocks = {};
  EXPECT_EQ(Refusal(tiers), "");
}

TEST(TierSpecTest, ThresholdsAndWatermarksHaveARange) {
  std::vector<TierSpec> tiers = HostTiers({1}, {1});
  tiers[1].min_priority = Priority{100};
  tiers[0].watermark_permille = 1000;
  EXPECT_EQ(Refusal(tiers), "");
  tiers[1].min_priority = Priority{101};
  EXPECT_THAT(Refusal(tiers), HasSubstr("priority 101"));
  tiers[1].min_priority = Priority{100};
  tiers[0].watermark_permille = 1001;
  EXPECT_THAT(Refusal(tiers), HasSubstr("1001 thousandths"));
}

TEST(TierSpecTest, TheCacheListsItsTiers) {
  std::vector<TierSpec> tiers = HostTiers({8}, {3});
  tiers[0].name = "hbm";
  tiers[0].medium = Medium::kGpu;
  const auto core = BlockManager::Create({.layout = TinyLayout(4), .tiers = std::move(tiers)});
  ASSERT_TRUE(core.ok()) << core.status();
  const CacheInfo& info = (*core)->info();
  ASSERT_EQ(info.tiers.size(), 2u);
  EXPECT_EQ(info.tiers[0].name, "hbm");
  EXPECT_EQ(info.tiers[0].medium, Medium::kGpu);
  EXPECT_EQ(info.TierName(Tier(1)), "secondary");
  EXPECT_EQ(info.windows[0].blocks_in(Tier(1)), 3u);
  EXPECT_EQ(info.windows[0].blocks_in(Tier{2}), 0u);
  EXPECT_TRUE(info.has_lower_tiers());
}

}  // namespace
}  // namespace pagoda
