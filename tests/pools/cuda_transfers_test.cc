// Copies to, from and within GPU memory, on any driver: a device's or the fake one.
#include "pools/gpu_transfers/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "tests/pools/copy_model.h"
#include "tests/pools/device_pools.h"
#include "tests/pools/transfer_recorder.h"

namespace pagoda {
namespace {

using namespace copy_model;
using ::testing::HasSubstr;

constexpr uint64_t kOrders = 300;
const SlotCounts kSlots = {.tiers = {{kPrimarySlots, kPrimarySlots}, {kLowerSlots, kLowerSlots}}};

// How the lower pools are pinned: not at all, as a whole, or in chunks smaller than a slot.
enum class Pins { kNone, kWhole, kPieces };
constexpr uint64_t kPieceBytes = 4096;

// Two windows, one of them with two pools, and slots larger than a chunk.
CacheLayout LargerSlots() {
  return *CacheLayout::Create({.tokens_per_block = kTokens,
                               .layers = {{.num_kv_heads = 2, .head_dim = 64},
                                          {.num_kv_heads = 2, .head_dim = 64},
                                          {.num_kv_heads = 1, .head_dim = 36},
                                          {.window = WindowSize(16),
                                           .num_kv_heads = 3,
                                           .head_dim = 50,
                                           .dtype = DType::kFloat16,
                                           .kind = KvKind::kKeyOnly}}});
}

void PinInPieces(PoolSet& pools) {
  for (uint32_t w = 0; w < pools.layout().windows().size(); ++w) {
    for (uint32_t p = 0; p < pools.layout().windows()[w].pools.size(); ++p) {
      ASSERT_TRUE(pools.pool(w, p, Tier(1)).Pin({.chunk_bytes = kPieceBytes}).ok());
    }
  }
}

struct Case {
  Pins pins;
  uint32_t max_batch_orders;
};

class CudaTransfersTest : public testing::TestWithParam<Case> {};

TEST_P(CudaTransfersTest, AnyOrderOfCopiesEndsAsOneAfterAnother) {
  PAGODA_NEEDS_DEVICE();
  const CacheLayout layout = LargerSlots();
  for (uint32_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    DevicePools device(layout, kSlots,
                       GetParam().pins == Pins::kWhole ? Pinning::kRequired : Pinning::kOff);
    ASSERT_TRUE(device.ok());
    if (GetParam().pins == Pins::kPieces) PinInPieces(device.pools());
    RandomOrders random(seed);
    device.Fill([&] { return random.Below(256); });

    std::vector<Order> orders;
    for (uint64_t i = 0; i < kOrders; ++i) orders.push_back(random.Next(layout));
    Bytes expected = device.Snapshot();
    for (const Order& order : orders) CopyInModel(layout, order, expected);

    TransferRecorder recorder;
    {
      auto transfers =
          cuda::MakeTransfers(&device.pools(), {.max_batch_orders = GetParam().max_batch_orders},
                              recorder.completion());
      ASSERT_TRUE(transfers.ok()) << transfers.status();
      for (uint64_t i = 0; i < kOrders;) {
        const uint64_t count = std::min<uint64_t>(1 + random.Below(16), kOrders - i);
        (*transfers)->Submit(absl::MakeConstSpan(orders).subspan(i, count));
        i += count;
      }
      (*transfers)->WaitUntilIdle();
      EXPECT_EQ((*transfers)->stats().running + (*transfers)->stats().queued, 0u);
    }
    EXPECT_EQ(device.Snapshot(), expected);
    CheckReports(orders, std::vector<bool>(kOrders), recorder.completed());
  }
}

INSTANTIATE_TEST_SUITE_P(Pins, CudaTransfersTest,
                         testing::Values(Case{Pins::kNone, 64}, Case{Pins::kWhole, 1},
                                         Case{Pins::kWhole, 64}, Case{Pins::kPieces, 64}));

TEST(CudaTransfersOnDeviceTest, EveryDirectionIsCounted) {
  PAGODA_NEEDS_DEVICE();
  const CacheLayout layout = TwoWindows();
  DevicePools device(layout, kSlots);
  ASSERT_TRUE(device.ok());
  device.Fill([byte = 0]() mutable { return byte++; });
  TransferRecorder recorder;
  auto transfers = cuda::MakeTransfers(&device.pools(), {}, recorder.completion());
  ASSERT_TRUE(transfers.ok()) << transfers.status();
  constexpr uint32_t kWindow = 1;
  const SlotRef primary[] = {{kPrimaryTier, SlotIndex(0)}, {kPrimaryTier, SlotIndex(1)}};
  const SlotRef secondary[] = {{Tier(1), SlotIndex(0)}, {Tier(1), SlotIndex(1)}};
  const std::vector<Order> orders = {{.ticket = Ticket(1),
                                      .window_index = kWindow,
                                      .source = primary[0],
                                      .target = secondary[0],
                                      .num_tokens = kTokens},
                                     {.ticket = Ticket(2),
                                      .window_index = kWindow,
                                      .source = secondary[0],
                                      .target = secondary[1],
                                      .num_tokens = kTokens,
                                      .after = {Ticket(1)}},
                                     {.ticket = Ticket(3),
                                      .window_index = kWindow,
                                      .source = secondary[1],
                                      .target = primary[1],
                                      .num_tokens = kTokens / 2,
                                      .after = {Ticket(2)}},
                                     {.ticket = Ticket(4),
                                      .window_index = kWindow,
                                      .source = primary[1],
                                      .target = primary[0],
                                      .num_tokens = 1,
                                      .after = {Ticket(3), Ticket(1)}},
                                     {.ticket = Ticket(5),
                                      .window_index = kWindow,
                                      .source = primary[1],
                                      .target = secondary[0],
                                      .num_tokens = 0,
                                      .after = {Ticket(4), Ticket(2)}}};
  Bytes expected = device.Snapshot();
  for (const Order& order : orders) CopyInModel(layout, order, expected);
  (*transfers)->Submit(orders);
  (*transfers)->WaitUntilIdle();
  EXPECT_EQ(device.Snapshot(), expected);
  CheckReports(orders, std::vector<bool>(5), recorder.completed());

  const TransferStats stats = (*transfers)->stats();
  const uint64_t bytes = layout.windows()[1].block_bytes();
  EXPECT_EQ(stats.direction(kPrimaryTier, Tier(1)).copies, 2u);
  EXPECT_EQ(stats.direction(kPrimaryTier, Tier(1)).bytes, bytes);
  EXPECT_EQ(stats.direction(Tier(1), Tier(1)).bytes, bytes);
  EXPECT_EQ(stats.direction(Tier(1), kPrimaryTier).bytes, bytes / 2);
  EXPECT_EQ(stats.direction(kPrimaryTier, kPrimaryTier).bytes, bytes / kTokens);
  EXPECT_EQ(stats.direction(kPrimaryTier, kPrimaryTier).latency.total(), 1u);
  EXPECT_EQ(stats.failed, 0u);
}

TEST(CudaTransfersOnDeviceTest, AnOrderThatCannotBeMadeFailsAlone) {
  PAGODA_NEEDS_DEVICE();
  const CacheLayout layout = TwoWindows();
  DevicePools device(layout, {.tiers = {{kPrimarySlots, kPrimarySlots}, {2, 0}}});
  ASSERT_TRUE(device.ok());
  TransferRecorder recorder;
  auto transfers = cuda::MakeTransfers(&device.pools(), {}, recorder.completion());
  ASSERT_TRUE(transfers.ok()) << transfers.status();
  const auto order = [&](uint64_t ticket, uint32_t window, SlotRef source, SlotRef target,
                         uint32_t tokens) {
    return Order{.ticket = Ticket(ticket),
                 .window_index = window,
                 .source = source,
                 .target = target,
                 .num_tokens = tokens};
  };
  const SlotRef primary{kPrimaryTier, SlotIndex(0)};
  std::vector<Order> orders = {
      order(1, 0, primary, {Tier(1), SlotIndex(0)}, kTokens),
      order(2, 0, primary, {Tier(1), SlotIndex(2)}, kTokens),
      order(3, 0, {kPrimaryTier, SlotIndex(3)}, {Tier(1), SlotIndex(1)}, 1),
      order(4, 1, primary, {Tier(1), SlotIndex(0)}, kTokens),
      order(5, 0, primary, {Tier(1), SlotIndex(1)}, kTokens + 1),
      order(6, 0, primary, primary, kTokens),
      order(7, 0, primary, {kPrimaryTier, SlotIndex(1)}, kTokens)};
  orders.push_back(orders.back());
  orders.back().ticket = Ticket(8);
  orders.back().window_index = 17;
  (*transfers)->Submit(orders);
  (*transfers)->WaitUntilIdle();
  CheckReports(orders, {false, true, true, true, true, true, false, true}, recorder.completed());
  for (const auto& [ticket, status] : recorder.completed()) {
    if (ticket == 2) {
      EXPECT_THAT(status.message(), HasSubstr("that tier has 2 slots"));
    }
    if (ticket == 8) {
      EXPECT_EQ(ReasonOf(status), Reason::kUnknownWindow);
    }
  }
  EXPECT_EQ((*transfers)->stats().failed, 6u);
}

TEST(CudaTransfersOnDeviceTest, PoolsInHostMemoryAreRefused) {
  const auto pools = PoolSet::Create(TwoWindows(), kSlots, DevicePools::Instance());
  ASSERT_TRUE(pools.ok());
  const auto transfers = cuda::MakeTransfers(pools->get(), {}, [](Lane, Ticket, absl::Status) {});
  EXPECT_FALSE(transfers.ok());
}

}  // namespace
}  // namespace pagoda
