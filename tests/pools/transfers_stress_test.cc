// Copies in random order over few slots, against a naive model that makes them one after another.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "pools/transfers.h"
#include "tests/pools/copy_model.h"
#include "tests/pools/transfer_recorder.h"

namespace pagoda {
namespace {

using namespace copy_model;

constexpr uint64_t kOrders = 200;

Bytes Snapshot(PoolSet& pools) {
  Bytes bytes;
  ForEachPool(pools.layout(), [&](uint32_t w, uint32_t p, Tier tier) {
    const absl::Span<std::byte> all = pools.pool(w, p, tier).bytes();
    bytes[{w, p, tier.value()}].assign(all.begin(), all.end());
  });
  return bytes;
}

class TransfersStressTest : public testing::TestWithParam<uint32_t> {};  // The number of threads.

TEST_P(TransfersStressTest, AnyOrderOfCopiesEndsAsOneAfterAnother) {
  const CacheLayout layout = TwoWindows();
  for (uint32_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    auto pools = PoolSet::Create(
        layout, {.tiers = {{kPrimarySlots, kPrimarySlots}, {kLowerSlots, kLowerSlots}}},
        absl::StrCat("stress-", getpid()));
    ASSERT_TRUE(pools.ok()) << pools.status();
    RandomOrders random(seed);
    ForEachPool(layout, [&](uint32_t w, uint32_t p, Tier tier) {
      for (std::byte& byte : (*pools)->pool(w, p, tier).bytes()) {
        byte = static_cast<std::byte>(random.Below(256));
      }
    });

    std::vector<Order> orders;
    std::vector<uint32_t> delays_us;
    std::vector<bool> fails;
    for (uint64_t i = 0; i < kOrders; ++i) {
      orders.push_back(random.Next(layout));
      delays_us.push_back(random.Below(8) == 0 ? random.Below(200) : 0);
      fails.push_back(random.Below(16) == 0);
    }
    Bytes expected = Snapshot(**pools);
    for (uint64_t i = 0; i < kOrders; ++i) {
      if (!fails[i]) CopyInModel(layout, orders[i], expected);
    }

    TransferRecorder recorder;
    {
      HostTransfers transfers(pools->get(),
                              {.num_threads = GetParam(),
                               .before_copy =
                                   [&](const Order& order) {
                                     const uint64_t i = order.ticket.value() - 1;
                                     if (delays_us[i] > 0)
                                       absl::SleepFor(absl::Microseconds(delays_us[i]));
                                     return fails[i] ? absl::DataLossError("planted")
                                                     : absl::OkStatus();
                                   }},
                              recorder.completion());
      for (uint64_t i = 0; i < kOrders;) {
        const uint64_t count = std::min<uint64_t>(1 + random.Below(8), kOrders - i);
        transfers.Submit(absl::MakeConstSpan(orders).subspan(i, count));
        i += count;
      }
      transfers.WaitUntilIdle();
    }
    EXPECT_EQ(Snapshot(**pools), expected);

    CheckReports(orders, fails, recorder.completed());
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, TransfersStressTest, testing::Values(1, 2, 5));

}  // namespace
}  // namespace pagoda
