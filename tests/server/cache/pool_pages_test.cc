#include "server/cache/pool_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// A system whose pool of huge pages is empty.
struct FakeProbe final : HugePageProbe {
  uint64_t FreePages(uint64_t) const override { return 0; }
  std::string ShmemEnabled() const override { return shmem_enabled; }
  std::string ShmMount() const override { return "never"; }
  bool LimitsFaults(uint64_t) const override { return false; }
  std::string shmem_enabled = "never";
};

// 8 MiB in the first tier and 4 KiB in the second one.
std::vector<PagesLine> Lines(const FakeProbe& probe, HugePages asked) {
  const auto layout =
      CacheLayout::Create({.tokens_per_block = 4, .layers = {{.num_kv_heads = 8, .head_dim = 16}}});
  const auto slots =
      static_cast<uint32_t>((8 << 20) / layout->windows()[0].pools[0].slot_stride_bytes());
  auto pools = PoolSet::Create(*layout, {.tiers = {{slots}, {1}, {}}},
                               absl::StrCat("test-", getpid(), "-pages"),
                               PoolPlacement{.pages = {.huge_pages = asked, .probe = &probe}});
  EXPECT_TRUE(pools.ok()) << pools.status();
  return DescribePages(**pools, {"hbm", "dram", "nvme"}, asked);
}

TEST(PoolPagesTest, PlainPagesThatWereAskedForAreNoNews) {
  const std::vector<PagesLine> lines = Lines(FakeProbe(), HugePages::kOff);
  ASSERT_THAT(lines, SizeIs(2)) << "the third tier is no memory";
  EXPECT_EQ(lines[0].text, "the pools of tier hbm: 8 MiB in plain pages");
  EXPECT_EQ(lines[1].text, "the pools of tier dram: 1 MiB in plain pages");
  EXPECT_EQ(lines[0].level, LogLevel::kInfo);
}

TEST(PoolPagesTest, AutoSaysWhyThereAreNoHugeOnes) {
  const std::vector<PagesLine> lines = Lines(FakeProbe(), HugePages::kAuto);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0].level, LogLevel::kInfo);
  EXPECT_THAT(lines[0].text, AllOf(HasSubstr("8 MiB in plain pages: no huge pages of 1 GiB"),
                                   HasSubstr("shmem_enabled is never")));
}

TEST(PoolPagesTest, LargeEnoughPagesNeedNoReason) {
  FakeProbe probe;
  probe.shmem_enabled = "advise";
  const std::vector<PagesLine> lines = Lines(probe, HugePages::kAuto);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0].text, "the pools of tier hbm: 8 MiB in transparent huge pages");
  EXPECT_THAT(lines[1].text, HasSubstr("it is too small"));
}

TEST(PoolPagesTest, PagesAskedForByNameThatAreMissingAreAWarning) {
  FakeProbe probe;
  probe.shmem_enabled = "always";
  const std::vector<PagesLine> lines = Lines(probe, HugePages::k1GiB);
  ASSERT_THAT(lines, SizeIs(2));
  for (const PagesLine& line : lines) {
    EXPECT_EQ(line.level, LogLevel::kWarning);
    EXPECT_THAT(line.text, HasSubstr(", and cache.huge_pages is 1GiB: no huge pages of 1 GiB"));
  }
  EXPECT_THAT(lines[0].text, HasSubstr("8 MiB in transparent huge pages"));
  EXPECT_THAT(lines[1].text, Not(HasSubstr("transparent huge pages,")));
}

}  // namespace
}  // namespace pagoda::server
