#include "clients/pagodactl/prefix/inspect_text.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

v1::CacheInfo TwoWindows() {
  v1::CacheInfo cache;
  cache.set_tokens_per_block(16);
  cache.add_windows()->set_window_size(128);
  cache.add_windows()->set_window_size(0);
  return cache;
}

v1::InspectedBlock* AddBlock(uint32_t window, uint32_t start, v1::Tier tier,
                             v1::InspectPrefixResponse& prefix) {
  v1::InspectedBlock* block = prefix.add_blocks();
  block->set_window_size(window);
  block->set_token_start(start);
  block->set_token_count(16);
  block->set_tier(tier);
  block->set_priority(35);
  return block;
}

// 80 tokens in five blocks. The sliding window has the last two blocks. Full attention has all but
// the last one.
v1::InspectPrefixResponse Prefix() {
  v1::InspectPrefixResponse prefix;
  prefix.set_matched_tokens(64);
  AddBlock(128, 48, v1::TIER_PRIMARY, prefix);
  AddBlock(128, 64, v1::TIER_PRIMARY, prefix)->set_token_count(9);
  AddBlock(0, 0, v1::TIER_PRIMARY, prefix)->set_holders(2);
  AddBlock(0, 16, v1::TIER_PRIMARY, prefix)->set_holders(2);
  v1::InspectedBlock* pinned = AddBlock(0, 32, v1::TIER_SECOND, prefix);
  pinned->set_pinned(true);
  pinned->set_holders(1);
  pinned->set_priority(90);
  AddBlock(0, 48, v1::TIER_SECOND, prefix);
  return prefix;
}

TEST(InspectTextTest, EachWindowHasACellABlockAndALineARun) {
  EXPECT_EQ(InspectText(Prefix(), TwoWindows(), 73, Terminal()),
            "64 of 73 tokens match (87.67 %)\n"
            "\n"
            "window 128: 2 of 5 blocks are cached\n"
            "           0  ...##\n"
            "  TOKENS                     BLOCKS  TIER        PRIORITY   HOLDERS  PINNED\n"
            "  48 to 72                        2  primary           35         0  no\n"
            "\n"
            "window full: 4 of 5 blocks are cached\n"
            "           0  ##!=.\n"
            "  TOKENS                     BLOCKS  TIER        PRIORITY   HOLDERS  PINNED\n"
            "  0 to 31                         2  primary           35         2  no\n"
            "  32 to 47                        1  secondary         90         1  yes\n"
            "  48 to 63                        1  secondary         35         0  no\n"
            "\n"
            "# primary  = secondary  ! pinned  . not cached\n");
}

TEST(InspectTextTest, ALongPromptHasRowsOfCells) {
  v1::CacheInfo cache;
  cache.set_tokens_per_block(2);
  cache.add_windows();
  const std::string row(64, '.');
  EXPECT_EQ(
      InspectText({}, cache, 300, Terminal()),
      absl::StrCat("0 of 300 tokens match (0.00 %)\n\n"
                   "window full: 0 of 150 blocks are cached\n",
                   "           0  ", row, "\n", "         128  ", row, "\n", "         256  ",
                   row.substr(0, 22), "\n\n", "# primary  = secondary  ! pinned  . not cached\n"));
  Terminal narrow;
  narrow.columns = 24;
  EXPECT_NE(InspectText({}, cache, 300, narrow).find("\n          20  ..........\n"),
            std::string::npos);
}

TEST(InspectTextTest, TheCachesTiersHaveTheirNames) {
  v1::CacheInfo cache = TwoWindows();
  for (const char* name : {"hbm", "dram", "nvme"}) {
    v1::TierInfo* tier = cache.add_tiers();
    tier->set_tier(static_cast<v1::Tier>(cache.tiers_size()));
    tier->set_name(name);
  }
  v1::InspectPrefixResponse prefix;
  AddBlock(0, 0, v1::TIER_THIRD, prefix)->set_tier_name("nvme");
  const std::string text = InspectText(prefix, cache, 32, Terminal());
  EXPECT_NE(text.find("           0  -.\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  nvme  "), std::string::npos) << text;
  EXPECT_NE(text.find("# hbm  = dram  - nvme  ! pinned  . not cached\n"), std::string::npos)
      << text;
}

// Tokens on disk are cached, but do not match.
TEST(InspectTextTest, ATierOnDiskIsSaidToBeOne) {
  v1::CacheInfo cache = TwoWindows();
  for (const char* name : {"hbm", "dram", "nvme"}) {
    v1::TierInfo* tier = cache.add_tiers();
    tier->set_tier(static_cast<v1::Tier>(cache.tiers_size()));
    tier->set_name(name);
    tier->set_medium(cache.tiers_size() == 3 ? v1::MEDIUM_DISK : v1::MEDIUM_HOST);
  }
  v1::InspectPrefixResponse prefix;
  prefix.set_matched_tokens(16);
  AddBlock(128, 48, v1::TIER_PRIMARY, prefix)->set_tier_name("hbm");
  AddBlock(0, 0, v1::TIER_PRIMARY, prefix)->set_tier_name("hbm");
  prefix.mutable_blocks(1)->add_lower_tiers(v1::TIER_THIRD);
  for (const uint32_t start : {16, 32}) {
    AddBlock(0, start, v1::TIER_THIRD, prefix)->set_tier_name("nvme");
  }
  AddBlock(0, 48, v1::TIER_THIRD, prefix)->set_tier_name("nvme");
  prefix.mutable_blocks(4)->set_token_count(9);
  EXPECT_EQ(InspectText(prefix, cache, 73, Terminal()),
            "16 of 73 tokens match (21.92 %)\n"
            "cached: 16 in hbm, 41 in nvme\n"
            "\n"
            "window 128: 1 of 5 blocks are cached\n"
            "           0  ...#.\n"
            "  TOKENS                     BLOCKS  TIER        PRIORITY   HOLDERS  PINNED\n"
            "  48 to 63                        1  hbm               35         0  no\n"
            "\n"
            "window full: 4 of 5 blocks are cached\n"
            "           0  #---.\n"
            "  TOKENS                     BLOCKS  TIER        PRIORITY   HOLDERS  PINNED\n"
            "  0 to 15                         1  hbm+nvme          35         0  no\n"
            "  16 to 56                        3  nvme              35         0  no\n"
            "\n"
            "# hbm  = dram  - nvme (disk)  ! pinned  . not cached\n");
  EXPECT_EQ(InspectText({}, cache, 73, Terminal()).find("cached:"), std::string::npos);
}

TEST(InspectTextTest, ABlockHasAllTiersWithACopy) {
  v1::InspectPrefixResponse prefix;
  AddBlock(0, 0, v1::TIER_PRIMARY, prefix)->add_lower_tiers(v1::TIER_SECOND);
  AddBlock(0, 16, v1::TIER_PRIMARY, prefix)->add_lower_tiers(v1::TIER_SECOND);
  AddBlock(0, 32, v1::TIER_PRIMARY, prefix);
  EXPECT_EQ(InspectText(prefix, TwoWindows(), 48, Terminal()),
            "0 of 48 tokens match (0.00 %)\n"
            "\n"
            "window 128: 0 of 3 blocks are cached\n"
            "           0  ...\n"
            "\n"
            "window full: 3 of 3 blocks are cached\n"
            "           0  ###\n"
            "  TOKENS                     BLOCKS  TIER               PRIORITY   HOLDERS  PINNED\n"
            "  0 to 31                         2  primary+secondary        35         0  no\n"
            "  32 to 47                        1  primary                  35         0  no\n"
            "\n"
            "# primary  = secondary  ! pinned  . not cached\n");
}

}  // namespace
}  // namespace pagoda
