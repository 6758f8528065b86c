// The memory of eviction policies if many tenants share many blocks.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manager/block_manager.h"
#include "manager/policy/eviction_policy.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr int64_t kKiB = 1 << 10;

// Allocated bytes, on the heap and in separate mappings. A sanitizer's heap reports nothing.
int64_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHeapTells = false;
#else
constexpr bool kHeapTells = true;
#endif

class PolicyMemoryTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    if (!kHeapTells) GTEST_SKIP() << "this heap does not tell what it holds";
  }

  // Bytes of a cache of 600,000 blocks, which have about a million ids, over two tiers.
  static int64_t BytesOfCache(int num_tenants) {
    std::vector<TenantOptions> tenants;
    for (int i = 0; i < num_tenants; ++i) {
      tenants.push_back({.name = "tenant " + std::to_string(i)});
    }
    const int64_t before = AllocatedBytes();
    const auto core = BlockManager::Create({.layout = TinyLayout(16),
                                            .tiers = HostTiers({400'000}, {200'000}),
                                            .eviction_policy = std::string(GetParam()),
                                            .epoch = Epoch{1},
                                            .tenants = std::move(tenants)});
    EXPECT_TRUE(core.ok()) << core.status();
    return AllocatedBytes() - before;
  }
};

INSTANTIATE_TEST_SUITE_P(Policies, PolicyMemoryTest, ::testing::ValuesIn(EvictionPolicyNames()),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(PolicyMemoryTest, AMillionSlotsTakeTheirBytesOnceForAHundredTenants) {
  constexpr uint32_t kSlots = 1'000'000;
  constexpr uint16_t kTenants = 100;
  const int64_t before = AllocatedBytes();
  const auto policies = MakeEvictionPolicies(GetParam(), {PolicyTier{kSlots}}, kTenants);
  const int64_t bytes = AllocatedBytes() - before;
  ASSERT_TRUE(policies.ok());
  ASSERT_EQ(policies->front().size(), kTenants);
  const int64_t bytes_per_slot = GetParam() == "lru" ? 8 : 15;
  EXPECT_GE(bytes, bytes_per_slot * kSlots) << "the arrays are counted";
  // Large arrays end at a huge page: up to three of them.
  EXPECT_LT(bytes, bytes_per_slot * kSlots + kTenants * kKiB + 6144 * kKiB);
}

TEST_P(PolicyMemoryTest, ATenantMoreTakesKilobytesNotBytesOfEachBlock) {
  // Compared with one tenant, so that the cost of a block with tenants is in both.
  const int64_t one = BytesOfCache(1);
  const int64_t hundred = BytesOfCache(100);
  EXPECT_GT(one, 600'000 * 100);
  // The list heads of both tiers take less than 2 KiB. Large arrays can have unused ends besides.
  // Arrays by slot would be 1.6 to 6.4 MB for each tenant and tier.
  EXPECT_LT(hundred - one, 99 * 32 * kKiB);
}

}  // namespace
}  // namespace pagoda
