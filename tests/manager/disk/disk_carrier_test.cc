// The carrier of a disk tier: what it waits for, how it erases, and how it ends.
#include "manager/disk/disk_carrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "tests/manager/disk/disk_carrier_fixture.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

class DiskCarrierTest : public DiskCarrierFixture {};

// ---- What it waits for, and what it counts ----

TEST_F(DiskCarrierTest, WhatIsWrittenIsReadAlsoAfterARestart) {
  ASSERT_TRUE(Backup(kSliding, 3, 1).ok());
  ASSERT_TRUE(Backup(kFull, 3, 2).ok());
  EXPECT_TRUE(Fetch(kSliding, 3, 1).ok());
  EXPECT_TRUE(Fetch(kFull, 3, 2).ok());
  const DiskStats::Window stats = Stats(kFull);
  EXPECT_EQ(stats.written.blocks, 1u);
  EXPECT_EQ(stats.written.bytes, 11u * 1024);
  EXPECT_EQ(stats.written.latency.total(), 1u);
  EXPECT_EQ(stats.read.bytes, 11u * 1024);
  EXPECT_EQ(stats.held_slots, 1u);
  EXPECT_EQ(stats.file.engine, "threads");
  EXPECT_TRUE(carrier_->WaitUntilIdle().ok());
  Start();
  EXPECT_EQ(recovered_, 1u);
  EXPECT_TRUE(Fetch(kSliding, 3, 1).ok());
  EXPECT_TRUE(Fetch(kFull, 3, 2).ok());
}

TEST_F(DiskCarrierTest, OrdersWaitForTheMemoryCopiesThatTheyName) {
  Fill(kFull, 0, Bytes(11 * 1024));
  Order backup = BackupOf(kFull, 0, 1), other = BackupOf(kSliding, 0, 2);
  backup.after = {Ticket(7)};
  carrier_->Submit({backup, other});
  EXPECT_TRUE(Await(Lane::kBackup, other.ticket).ok()) << "of another window";
  carrier_->MemoryCopiesDone(Ticket(6));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(IsReported(Lane::kBackup, backup.ticket));
  Fill(kFull, 0, BytesOf(PathOf(1), kFull));
  carrier_->MemoryCopiesDone(Ticket(7));
  ASSERT_TRUE(Await(Lane::kBackup, backup.ticket).ok());
  EXPECT_TRUE(Fetch(kFull, 0, 1).ok());
  Order late = FetchOf(kFull, 0, 1), ready = FetchOf(kFull, 0, 2);
  late.after = {Ticket(9)};
  carrier_->Submit({late, ready});
  EXPECT_TRUE(Await(Lane::kFetch, ready.ticket).ok()) << "it waits for nothing";
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(IsReported(Lane::kFetch, late.ticket));
  carrier_->MemoryCopiesDone(Ticket(9));
  EXPECT_TRUE(Await(Lane::kFetch, late.ticket).ok());
}

TEST_F(DiskCarrierTest, OrdersThatCannotBeCarriedOutAreReportedWithTheReason) {
  Order order = BackupOf(kFull, 16, 1);
  EXPECT_EQ(Run(order).code(), Code::kInvalidArgument);
  order = BackupOf(kFull, 0, 1, 8);
  EXPECT_EQ(Run(order).code(), Code::kInvalidArgument);
  order = BackupOf(kFull, 0, 1);
  order.source = {Tier(1), SlotIndex(3)};
  EXPECT_EQ(Run(order).code(), Code::kInvalidArgument);
  order = BackupOf(kFull, 0, 1);
  order.parent = SlotIndex(5);
  EXPECT_EQ(Run(order).code(), Code::kNotFound) << "no parent there";
  order = BackupOf(kFull, 0, 1);
  order.content =
      std::make_shared<const SlotContent>(SlotContent{.tokens = std::vector<TokenId>(800)});
  const absl::Status too_large = Run(order);
  EXPECT_EQ(too_large.code(), Code::kOutOfRange);
  EXPECT_THAT(std::string(too_large.message()), HasSubstr("3072"));
  EXPECT_EQ(Run(FetchOf(kFull, 0)).code(), Code::kDataLoss) << "nothing is there";
  EXPECT_EQ(Erase(kFull, {SlotIndex(16)}).code(), Code::kInvalidArgument);
  const DiskStats::Window stats = Stats(kFull);
  EXPECT_EQ(stats.errors_of(DiskError::kInvalid), 4u);
  EXPECT_EQ(stats.errors_of(DiskError::kOrphaned), 1u);
  EXPECT_EQ(stats.errors_of(DiskError::kTooLarge), 1u);
  EXPECT_EQ(stats.errors_of(DiskError::kBadBlock), 1u);
  EXPECT_TRUE(Backup(kFull, 0, 1).ok()) << "the carrier lives";
}

// ---- Erasing ----

TEST_F(DiskCarrierTest, AnEraseTakesWhatWasDroppedAndNotWhatWasWrittenSince) {
  for (uint32_t slot = 0; slot < 4; ++slot) ASSERT_TRUE(Backup(kFull, slot, slot).ok());
  Drop(kFull, 0);
  Drop(kFull, 1);
  ASSERT_TRUE(Backup(kFull, 1, 7).ok());
  EXPECT_EQ(Stats(kFull).stale_slots, 1u);
  ASSERT_TRUE(Erase(kFull, {SlotIndex(3)}).ok());
  EXPECT_EQ(Stats(kFull).erased_slots, 2u);
  EXPECT_EQ(Stats(kFull).stale_slots, 0u);
  EXPECT_TRUE(Fetch(kFull, 1, 7).ok());
  EXPECT_TRUE(Fetch(kFull, 2, 2).ok());
  EXPECT_EQ(Fetch(kFull, 3, 3).code(), Code::kDataLoss);
  Start();
  EXPECT_EQ(recovered_, 2u);
  ASSERT_TRUE(Erase(kFull, {}, Order::Kind::kEraseAll).ok());
  EXPECT_EQ(Fetch(kFull, 1, 7).code(), Code::kDataLoss);
  Start();
  EXPECT_EQ(recovered_, 0u);
}

// Without an order among them, a crash in between would bring back the slot's former content.
TEST_F(DiskCarrierTest, AnEraseComesAfterTheBackupsBeforeIt) {
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  Drop(kFull, 0);
  Order backup = BackupOf(kFull, 0, 2), behind = BackupOf(kFull, 1, 2);
  backup.after = {Ticket(1)};
  const Ticket erase(behind.ticket.value() + 1);
  ticket_ = erase.value();
  behind.ticket = erase;
  const Ticket erase_ticket(erase.value() - 1);
  carrier_->Submit({backup,
                    {.lane = Lane::kBackup,
                     .kind = Order::Kind::kErase,
                     .ticket = erase_ticket,
                     .window_index = kFull},
                    behind});
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(IsReported(Lane::kBackup, erase_ticket));
  EXPECT_FALSE(IsReported(Lane::kBackup, behind.ticket));
  EXPECT_EQ(Stats(kFull).queued_backups, 3u);
  carrier_->MemoryCopiesDone(Ticket(1));
  EXPECT_TRUE(Await(Lane::kBackup, behind.ticket).ok());
  EXPECT_TRUE(IsReported(Lane::kBackup, backup.ticket));
  EXPECT_TRUE(IsReported(Lane::kBackup, erase_ticket));
  Start();
  EXPECT_EQ(recovered_, 1u) << "slots 0 and 1 hold one content";
}

TEST_F(DiskCarrierTest, AnEraseTakesTheSlotsOfBackupsThatFailed) {
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  Drop(kFull, 0);
  files_.max_write_errors = 1;
  Start();
  ASSERT_EQ(recovered_, 1u);
  Drop(kFull, 0);
  Fail(Kind::kWrite, EIO);
  EXPECT_FALSE(Backup(kFull, 5, 5).ok());
  Fail(Kind::kWrite, 0);
  EXPECT_EQ(Backup(kFull, 0, 2).code(), Code::kFailedPrecondition) << "the file is read-only";
  EXPECT_EQ(Stats(kFull).stale_slots, 2u);
  EXPECT_EQ(Stats(kFull).held_slots, 0u);
  EXPECT_TRUE(Erase(kFull, {}).ok());
  Start();
  EXPECT_EQ(recovered_, 0u) << "the refused backup left the block that was there";
}

// ---- The end ----

TEST_F(DiskCarrierTest, AnUnlinkedFileIsOffAfterALook) {
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    std::filesystem::remove(file.path());
  }
  ASSERT_TRUE(Backup(kFull, 1, 2).ok()) << "the kernel keeps the file";
  carrier_->CheckFiles();
  for (const uint32_t window : {kSliding, kFull}) {
    EXPECT_EQ(Stats(window).file.mode, SlabMode::kOff);
    EXPECT_THAT(Stats(window).file.mode_reason, HasSubstr("was removed or replaced"));
  }
  EXPECT_EQ(Backup(kFull, 2, 3).code(), Code::kFailedPrecondition);
}

TEST_F(DiskCarrierTest, StopReportsEverythingOnce) {
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    Start();
    std::atomic<bool> submitted = false;
    on_report_ = [&](Lane) {
      // While Stop waits.
      if (!submitted.exchange(true)) {
        carrier_->Submit({Order{.lane = Lane::kFetch,
                                .ticket = Ticket(1000),
                                .window_index = kSliding,
                                .source = {Tier(1), SlotIndex(9)},
                                .target = {kPrimaryTier, SlotIndex(5)}}});
      }
    };
    std::vector<Order> orders;
    for (uint32_t slot = 0; slot < 12; ++slot) {
      orders.push_back(BackupOf(kFull, slot, slot));
      // These copies are never reported as done.
      if (slot >= 6) orders.back().after = {Ticket(5)};
    }
    orders.push_back({.lane = Lane::kBackup,
                      .kind = Order::Kind::kErase,
                      .ticket = Ticket(++ticket_),
                      .window_index = kFull});
    Order fetch = FetchOf(kFull, 15);
    fetch.after = {Ticket(5)};
    orders.push_back(fetch);
    carrier_->Submit(orders);
    absl::SleepFor(absl::Microseconds(round * 150));
    carrier_->Stop();
    const size_t reports = num_reports();
    EXPECT_EQ(reports, 15u);
    size_t cancelled = 0;
    for (const auto& [order, status] : reports_) cancelled += absl::IsCancelled(status) ? 1 : 0;
    EXPECT_GE(cancelled, 8u);
    carrier_->Stop();
    EXPECT_EQ(num_reports(), reports);
    on_report_ = nullptr;
  }
}

}  // namespace
}  // namespace pagoda
