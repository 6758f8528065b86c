#include "pools/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "tests/pools/transfer_recorder.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr WindowSize kSliding{16};
// The indexes of the windows.
constexpr uint32_t kInSliding = 0, kInFull = 1;
constexpr uint32_t kTokens = 4;  // Per block.
constexpr uint32_t kSlots = 4;   // Per tier.

SlotRef Primary(uint32_t slot) { return {kPrimaryTier, SlotIndex(slot)}; }
SlotRef Lower(uint32_t slot) { return {Tier(1), SlotIndex(slot)}; }

Order Copy(uint64_t ticket, SlotRef source, SlotRef target, std::vector<uint64_t> after = {},
           uint32_t num_tokens = kTokens) {
  after.resize(2);
  return {.ticket = Ticket(ticket),
          .window_index = kInFull,
          .source = source,
          .target = target,
          .num_tokens = num_tokens,
          .after = {Ticket(after[0]), Ticket(after[1])}};
}

// A cache with full attention in two pools, and a sliding window in one pool without lower
// tier.
class TransfersTest : public testing::Test {
 protected:
  TransfersTest() {
    static int count = 0;
    const auto layout =
        CacheLayout::Create({.tokens_per_block = kTokens,
                             .layers = {{.num_kv_heads = 2, .head_dim = 8},
                                        {.num_kv_heads = 1, .head_dim = 8},
                                        {.window = kSliding, .num_kv_heads = 1, .head_dim = 8}}});
    auto pools = PoolSet::Create(*layout, {.tiers = {{kSlots, kSlots}, {0, kSlots}}},
                                 absl::StrCat("transfers-test-", getpid(), "-", ++count));
    if (!pools.ok()) ADD_FAILURE() << pools.status();
    pools_ = *std::move(pools);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      Fill(Primary(slot), std::byte(0x10 + slot));
      Fill(Lower(slot), std::byte(0x20 + slot));
    }
  }

  HostTransfers::Options Options(uint32_t num_threads) {
    return {.num_threads = num_threads,
            .before_copy = [this](const Order& order) { return recorder_.Started(order); }};
  }

  // For the full-attention window, pool by pool.
  void Fill(SlotRef ref, std::byte value) {
    for (uint32_t pool : {0u, 1u}) {
      const absl::Span<std::byte> slot = pools_->pool(1, pool, ref.tier).slot(ref.slot);
      std::fill(slot.begin(), slot.end(), value);
    }
  }
  // The value that fills the slot in every pool; 0 if there is none.
  int ValueOf(SlotRef ref) {
    const std::byte value = pools_->pool(1, 0, ref.tier).slot(ref.slot)[0];
    for (uint32_t pool : {0u, 1u}) {
      const absl::Span<std::byte> slot = pools_->pool(1, pool, ref.tier).slot(ref.slot);
      if (!std::all_of(slot.begin(), slot.end(), [&](std::byte b) { return b == value; })) return 0;
    }
    return static_cast<int>(value);
  }

  std::unique_ptr<PoolSet> pools_;
  TransferRecorder recorder_;
};

TEST_F(TransfersTest, CopiesASlotInEveryPoolOfTheWindow) {
  HostTransfers transfers(pools_.get(), Options(1), recorder_.completion());
  transfers.Submit({Copy(1, Primary(0), Lower(1)), Copy(2, Lower(2), Primary(1)),
                    Copy(3, Primary(0), Primary(2))});
  transfers.WaitUntilIdle();
  EXPECT_EQ(ValueOf(Lower(1)), 0x10);
  EXPECT_EQ(ValueOf(Primary(1)), 0x22);
  EXPECT_EQ(ValueOf(Primary(2)), 0x10);
  EXPECT_EQ(ValueOf(Primary(0)), 0x10);
  EXPECT_EQ(ValueOf(Lower(0)), 0x20);
  EXPECT_EQ(ValueOf(Primary(3)), 0x13);
  for (const auto& [ticket, status] : recorder_.completed()) EXPECT_TRUE(status.ok()) << status;
}

// In the tests below, an order holds up one thread. The other thread takes the ready orders in the
// order of their arrival.

TEST_F(TransfersTest, AnOrderWaitsForBothTicketsAndOthersOvertakeIt) {
  for (const uint64_t held : {1, 2}) {
    TransferRecorder recorder;
    recorder.Hold(held);
    HostTransfers transfers(
        pools_.get(),
        {.num_threads = 2,
         .before_copy = [&](const Order& order) { return recorder.Started(order); }},
        recorder.completion());
    transfers.Submit({Copy(1, Primary(0), Lower(0)), Copy(2, Primary(1), Lower(1)),
                      Copy(3, Lower(0), Lower(1), {1, 2}), Copy(4, Primary(2), Primary(3))});
    recorder.AwaitCompletions(2);
    transfers.Submit({Copy(5, Primary(2), Primary(3), {4, 4})});
    recorder.AwaitCompletions(3);
    EXPECT_THAT(recorder.completed_tickets(), ElementsAre(3 - held, 4, 5));
    recorder.Release(held);
    transfers.WaitUntilIdle();
    EXPECT_THAT(recorder.completed_tickets(), ElementsAre(3 - held, 4, 5, held, 3));
    EXPECT_EQ(ValueOf(Lower(1)), 0x10) << "2 writes the slot, then 3";
  }
}

TEST_F(TransfersTest, TwoOffloadsIntoOneSlotEndWithTheLater) {
  recorder_.Hold(1);
  HostTransfers transfers(pools_.get(), Options(2), recorder_.completion());
  transfers.Submit({Copy(1, Primary(0), Lower(0))});
  transfers.Submit({Copy(2, Primary(1), Lower(0), {0, 1}), Copy(3, Primary(2), Primary(3))});
  recorder_.AwaitCompletions(1);
  EXPECT_THAT(recorder_.completed_tickets(), ElementsAre(3));
  recorder_.Release(1);
  transfers.WaitUntilIdle();
  EXPECT_EQ(ValueOf(Lower(0)), 0x11);
}

TEST_F(TransfersTest, ACopyFromASlotStillBeingWrittenTakesWhatIsWritten) {
  recorder_.Hold(1);
  HostTransfers transfers(pools_.get(), Options(2), recorder_.completion());
  transfers.Submit({Copy(1, Lower(3), Primary(0)), Copy(2, Primary(0), Primary(1), {1, 0}),
                    Copy(3, Primary(2), Primary(3))});
  recorder_.AwaitCompletions(1);
  EXPECT_THAT(recorder_.completed_tickets(), ElementsAre(3));
  recorder_.Release(1);
  transfers.WaitUntilIdle();
  EXPECT_EQ(ValueOf(Primary(1)), 0x23);
}

TEST_F(TransfersTest, ASourceIsReadBeforeItsSlotIsWritten) {
  recorder_.Hold(1);
  HostTransfers transfers(pools_.get(), Options(2), recorder_.completion());
  transfers.Submit({Copy(1, Primary(0), Lower(0)), Copy(2, Lower(3), Primary(0), {0, 1}),
                    Copy(3, Primary(2), Primary(3))});
  recorder_.AwaitCompletions(1);
  EXPECT_EQ(ValueOf(Primary(0)), 0x10);
  recorder_.Release(1);
  transfers.WaitUntilIdle();
  EXPECT_EQ(ValueOf(Lower(0)), 0x10);
  EXPECT_EQ(ValueOf(Primary(0)), 0x23);
}

TEST_F(TransfersTest, APredecessorIsReportedBeforeItsFollowerStarts) {
  absl::Notification first_completion_runs, go_on;
  const Transfers::Completion record = recorder_.completion();
  HostTransfers transfers(pools_.get(), Options(2),
                          [&](Lane lane, Ticket ticket, absl::Status status) {
                            if (ticket == Ticket(1)) {
                              first_completion_runs.Notify();
                              go_on.WaitForNotification();
                            }
                            record(lane, ticket, std::move(status));
                          });
  transfers.Submit({Copy(1, Primary(0), Lower(0)), Copy(2, Lower(0), Primary(1), {1, 0})});
  first_completion_runs.WaitForNotification();
  transfers.Submit({Copy(3, Primary(2), Primary(3))});
  recorder_.AwaitCompletions(1);
  EXPECT_THAT(recorder_.started(), ElementsAre(1, 3));
  go_on.Notify();
  transfers.WaitUntilIdle();
  EXPECT_THAT(recorder_.completed_tickets(), ElementsAre(3, 1, 2));
}

TEST_F(TransfersTest, AFailedCopyIsReportedAndItsFollowersRun) {
  recorder_.Fail(1);
  HostTransfers transfers(pools_.get(), Options(1), recorder_.completion());
  transfers.Submit({Copy(1, Primary(0), Lower(0)), Copy(2, Primary(1), Lower(0), {0, 1}),
                    Copy(3, Lower(0), Primary(3), {2, 0})});
  transfers.WaitUntilIdle();
  const std::vector<TransferRecorder::Completed> completed = recorder_.completed();
  ASSERT_THAT(recorder_.completed_tickets(), ElementsAre(1, 2, 3));
  EXPECT_EQ(completed[0].second.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(completed[1].second.ok());
  EXPECT_TRUE(completed[2].second.ok());
  EXPECT_EQ(ValueOf(Primary(3)), 0x11);
  EXPECT_EQ(transfers.stats().failed, 1u);
}

TEST_F(TransfersTest, ACopysLatencyBeginsWithItsOrder) {
  constexpr absl::Duration kHeld = absl::Milliseconds(30);
  recorder_.Hold(1);
  recorder_.Fail(3);
  HostTransfers transfers(pools_.get(), Options(1), recorder_.completion());
  transfers.Submit({Copy(1, Primary(0), Lower(0)), Copy(2, Primary(1), Lower(1)),
                    Copy(3, Primary(2), Lower(2))});
  absl::SleepFor(kHeld);  // A lower bound of the wait of the first two.
  recorder_.Release(1);
  transfers.WaitUntilIdle();
  const TransferStats stats = transfers.stats();
  const DurationHistogram& down = stats.direction(kPrimaryTier, Tier(1)).latency;
  EXPECT_EQ(down.total(), 2u) << "what failed is not among them";
  EXPECT_GE(down.sum_seconds(), 2 * absl::ToDoubleSeconds(kHeld));
  EXPECT_EQ(down.count(0), 0u);
  EXPECT_EQ(stats.direction(Tier(1), kPrimaryTier).latency.total(), 0u);
}

TEST_F(TransfersTest, ACopyThatCannotBeMadeIsReportedWithTheReason) {
  Order unknown_window = Copy(3, Primary(0), Primary(1));
  unknown_window.window_index = 77;
  Order no_secondary = Copy(4, Primary(0), Lower(1));
  no_secondary.window_index = kInSliding;
  HostTransfers transfers(pools_.get(), Options(1), recorder_.completion());
  transfers.Submit({Copy(1, Primary(0), Lower(kSlots)), Copy(2, Primary(3), Primary(3)),
                    unknown_window, no_secondary,
                    Copy(5, Primary(0), Primary(1), {}, kTokens + 1)});
  transfers.WaitUntilIdle();
  const std::vector<TransferRecorder::Completed> completed = recorder_.completed();
  ASSERT_THAT(recorder_.completed_tickets(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(std::string(completed[0].second.message()), HasSubstr("slot 4 of 4"));
  EXPECT_THAT(std::string(completed[1].second.message()), HasSubstr("onto itself"));
  EXPECT_EQ(ReasonOf(completed[2].second), Reason::kUnknownWindow);
  EXPECT_THAT(std::string(completed[3].second.message()), HasSubstr("no pools in that tier"));
  EXPECT_THAT(std::string(completed[4].second.message()), HasSubstr("num_tokens is 5"));
  EXPECT_EQ(ValueOf(Primary(1)), 0x11);
  EXPECT_EQ(transfers.stats().failed, 5u);
}

TEST_F(TransfersTest, StopCancelsWhatHasNotStarted) {
  constexpr uint64_t kOrders = 1000;
  recorder_.Hold(1);
  const Transfers::Completion record = recorder_.completion();
  HostTransfers* submit_to = nullptr;
  // Each successful order is followed by one more, on the free thread, until one is cancelled: then
  // Stop has begun. Order 1 runs until then, and the orders behind it wait.
  HostTransfers transfers(
      pools_.get(), Options(2), [&](Lane lane, Ticket ticket, absl::Status status) {
        const bool probe = ticket.value() > kOrders;
        if (probe && status.ok()) {
          submit_to->Submit({Copy(ticket.value() + 1, Primary(2), Primary(3), {ticket.value()})});
          return;
        }
        record(lane, ticket, status);
        if (probe) recorder_.Release(1);
      });
  submit_to = &transfers;
  std::vector<Order> orders = {Copy(1, Primary(0), Lower(0))};
  for (uint64_t t = 2; t <= kOrders; ++t) {
    orders.push_back(Copy(t, Primary(1), Lower(0), {t - 1, t - 1}));
  }
  transfers.Submit(orders);
  recorder_.AwaitStarts(1);
  EXPECT_EQ(transfers.stats().running, 1u);
  EXPECT_EQ(transfers.stats().queued, kOrders - 1);
  transfers.Submit({Copy(kOrders + 1, Primary(2), Primary(3))});
  transfers.Stop();

  const std::vector<TransferRecorder::Completed> completed = recorder_.completed();
  ASSERT_EQ(completed.size(), kOrders + 1);
  EXPECT_EQ(completed[0].second.code(), absl::StatusCode::kCancelled);  // One of the other orders.
  EXPECT_EQ(completed[1].first, 1u);
  EXPECT_TRUE(completed[1].second.ok()) << "it was running";
  for (uint64_t i = 2; i <= kOrders; ++i) {
    ASSERT_EQ(completed[i].first, i);
    ASSERT_EQ(completed[i].second.code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(ValueOf(Lower(0)), 0x10) << "what is cancelled is not copied";
  const TransferStats stats = transfers.stats();
  EXPECT_EQ(stats.cancelled, kOrders);
  EXPECT_EQ(stats.queued + stats.running + stats.failed, 0u);
  EXPECT_EQ(stats.direction(kPrimaryTier, Tier(1)).copies, 1u);
}

TEST_F(TransfersTest, TheDestructorReportsEveryOrder) {
  {
    HostTransfers transfers(pools_.get(), Options(1), recorder_.completion());
    for (uint64_t t = 1; t <= 100; ++t) transfers.Submit({Copy(t, Primary(0), Lower(0), {t - 1})});
  }
  EXPECT_EQ(recorder_.completed().size(), 100u);
}

TEST_F(TransfersTest, StatsCountBytesByDirection) {
  recorder_.Fail(4);
  HostTransfers transfers(pools_.get(), Options(2), recorder_.completion());
  transfers.Submit({Copy(1, Primary(0), Lower(0)), Copy(2, Primary(1), Lower(1)),
                    Copy(3, Lower(2), Primary(2), {}, 3), Copy(4, Primary(3), Lower(3))});
  transfers.WaitUntilIdle();
  const TransferStats stats = transfers.stats();
  // 3 heads, K and V, of 8 floats a token.
  constexpr uint64_t kTokenBytes = 3 * 2 * 8 * sizeof(float);
  EXPECT_EQ(stats.direction(kPrimaryTier, Tier(1)).copies, 2u);
  EXPECT_EQ(stats.direction(kPrimaryTier, Tier(1)).bytes, 2 * kTokens * kTokenBytes);
  EXPECT_EQ(stats.direction(Tier(1), kPrimaryTier).copies, 1u);
  EXPECT_EQ(stats.direction(Tier(1), kPrimaryTier).bytes, 3 * kTokenBytes);
  EXPECT_GT(stats.direction(Tier(1), kPrimaryTier).busy, absl::ZeroDuration());
  EXPECT_EQ(stats.direction(kPrimaryTier, kPrimaryTier).bytes, 0u);
  EXPECT_EQ(stats.failed, 1u);
}

// Uses no pools, because the process that dies would leave their memory behind.
TEST(TransfersDeathTest, RefusesWhatBreaksTheContract) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto ignore = [](Lane, Ticket, absl::Status) {};
  EXPECT_DEATH(
      {
        HostTransfers transfers(nullptr, {}, ignore);
        transfers.Submit({Copy(2, Primary(0), Primary(1)), Copy(1, Primary(2), Primary(3))});
      },
      "in the order of their tickets");
  EXPECT_DEATH(
      {
        HostTransfers transfers(nullptr, {}, ignore);
        transfers.Stop();
        transfers.Submit({});
      },
      "after Stop");
}

TEST_F(TransfersTest, InstantTransfersAreDoneWhenSubmitReturns) {
  InstantTransfers transfers(pools_.get(), recorder_.completion());
  transfers.Submit({Copy(1, Primary(0), Lower(0)), Copy(2, Lower(0), Primary(1), {1, 0}),
                    Copy(3, Primary(0), Primary(kSlots))});
  ASSERT_THAT(recorder_.completed_tickets(), ElementsAre(1, 2, 3));
  EXPECT_EQ(ValueOf(Primary(1)), 0x10);
  EXPECT_EQ(recorder_.completed()[2].second.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transfers.stats().failed, 1u);
  EXPECT_EQ(transfers.stats().direction(kPrimaryTier, Tier(1)).copies, 1u);
  EXPECT_EQ(transfers.stats().running, 0u);
}

TEST_F(TransfersTest, InstantTransfersTakeOrdersFromACompletion) {
  const Transfers::Completion record = recorder_.completion();
  InstantTransfers* submit_to = nullptr;
  InstantTransfers transfers(nullptr, [&](Lane lane, Ticket ticket, absl::Status status) {
    if (ticket == Ticket(1)) submit_to->Submit({Copy(3, Primary(1), Primary(2))});
    record(lane, ticket, std::move(status));
  });
  submit_to = &transfers;
  transfers.Submit({Copy(1, Primary(0), Primary(1)), Copy(2, Primary(1), Primary(2), {1, 0})});
  EXPECT_THAT(recorder_.completed_tickets(), ElementsAre(1, 2, 3));
  EXPECT_EQ(ValueOf(Primary(2)), 0x12) << "without memory nothing is copied";
}

}  // namespace
}  // namespace pagoda
