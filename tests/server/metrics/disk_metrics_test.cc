#include "server/metrics/disk_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "prometheus/text_serializer.h"
#include "server/admin/copy_status.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two windows. Only the full one has a file.
struct Numbers {
  Numbers() {
    stats.windows.resize(2);
    stats.windows[0].window = WindowSize{128};
    stats.windows[1].window = kFullAttention;
    stats.windows[1].disk = {.backups = 7,
                             .backup_bytes = 900,
                             .failed_backups = 2,
                             .passed_over = 3,
                             .fetches = 4,
                             .fetch_bytes = 400,
                             .failed_fetches = 5,
                             .late_fetches = 6,
                             .erased_blocks = 8,
                             .failed_erases = 22,
                             .waiting_backups = 9,
                             .retired_slots = 10};
    disk = {.tier = "nvme", .path = "/srv/slabs", .write_bytes_per_second = 44'000'000};
    disk.stats.windows.resize(2);
    disk.damaged_slots = {23, 24};
    DiskStats::Window& window = disk.stats.windows[1];
    window.file = {.engine = "io_uring",
                   .direct = true,
                   .mode = SlabMode::kReadOnly,
                   .mode_reason = "8 writes failed",
                   .write_errors = 11,
                   .read_errors = 12,
                   .quarantined_slots = 13};
    window.written.blocks = 14;
    window.written.bytes = 1400;
    window.written.latency.Observe(absl::Milliseconds(3));
    window.read.blocks = 15;
    window.read.bytes = 1500;
    window.errors[static_cast<size_t>(DiskError::kNoSpace)] = 16;
    window.queued_backups = 17;
    window.queued_fetches = 18;
    window.running = 19;
    window.held_slots = 20;
    window.stale_slots = 21;
  }

  std::string Text() const {
    return prometheus::TextSerializer().Serialize(CollectDiskMetrics(stats, disk));
  }

  ManagerStats stats;
  DiskNumbers disk;
};

TEST(DiskMetricsTest, SayWhatTheCoreAndTheCarrierCount) {
  const std::string text = Numbers().Text();
  for (const char* line :
       {"pagoda_disk_info{window=\"full\",tier=\"nvme\",engine=\"io_uring\",direct=\"true\"} 1",
        "pagoda_disk_mode{window=\"full\",mode=\"readwrite\"} 0",
        "pagoda_disk_mode{window=\"full\",mode=\"readonly\"} 1",
        "pagoda_disk_mode{window=\"full\",mode=\"off\"} 0",
        "pagoda_disk_slots{window=\"full\",state=\"held\"} 20",
        "pagoda_disk_slots{window=\"full\",state=\"stale\"} 21",
        "pagoda_disk_slots{window=\"full\",state=\"quarantined\"} 13",
        "pagoda_disk_damaged_slots{window=\"full\"} 24",
        "pagoda_disk_blocks_total{window=\"full\",direction=\"write\"} 14",
        "pagoda_disk_bytes_total{window=\"full\",direction=\"read\"} 1500",
        "pagoda_disk_latency_seconds_count{window=\"full\",direction=\"write\"} 1",
        "pagoda_disk_latency_seconds_bucket{window=\"full\",direction=\"write\",le=\"0.0025\"} 0",
        "pagoda_disk_latency_seconds_bucket{window=\"full\",direction=\"write\",le=\"0.005\"} 1",
        "pagoda_disk_io_errors_total{window=\"full\",direction=\"write\"} 11",
        "pagoda_disk_io_errors_total{window=\"full\",direction=\"read\"} 12",
        "pagoda_disk_errors_total{window=\"full\",kind=\"no_space\"} 16",
        "pagoda_disk_errors_total{window=\"full\",kind=\"bad_block\"} 0",
        "pagoda_disk_queued_orders{window=\"full\",lane=\"backup\"} 17",
        "pagoda_disk_queued_orders{window=\"full\",lane=\"fetch\"} 18",
        "pagoda_disk_running_orders{window=\"full\"} 19",
        "pagoda_disk_backups_total{window=\"full\"} 7",
        "pagoda_disk_backup_bytes_total{window=\"full\"} 900",
        "pagoda_disk_failed_backups_total{window=\"full\"} 2",
        "pagoda_disk_passed_over_blocks_total{window=\"full\"} 3",
        "pagoda_disk_fetches_total{window=\"full\"} 4",
        "pagoda_disk_fetch_bytes_total{window=\"full\"} 400",
        "pagoda_disk_failed_fetches_total{window=\"full\"} 5",
        "pagoda_disk_late_fetches_total{window=\"full\"} 6",
        "pagoda_disk_erased_blocks_total{window=\"full\"} 8",
        "pagoda_disk_failed_erases_total{window=\"full\"} 22",
        "pagoda_disk_waiting_backups{window=\"full\"} 9",
        "pagoda_disk_retired_slots{window=\"full\"} 10",
        "pagoda_disk_write_budget_bytes_per_second 44000000"}) {
    EXPECT_THAT("\n" + text, HasSubstr(std::string("\n") + line + "\n"));
  }
}

TEST(DiskMetricsTest, AWindowWithoutAFileHasNoSamples) {
  EXPECT_THAT(Numbers().Text(), Not(HasSubstr("window=\"128\"")));
}

constexpr char kNvme[] = "nvme";

CacheInfo ThreeTiers() {
  return {.tiers = {{.name = "hbm"}, {.name = "dram"}, {.name = kNvme, .medium = Medium::kDisk}}};
}

TEST(DiskToStatusTest, SaysHowTheFilesAreUsed) {
  const Numbers numbers;
  v1::DiskStatus disk;
  DiskToStatus(numbers.stats, numbers.disk, ThreeTiers(), &disk);
  EXPECT_EQ(disk.tier(), v1::TIER_THIRD);
  EXPECT_EQ(disk.tier_name(), kNvme);
  EXPECT_EQ(disk.path(), "/srv/slabs");
  EXPECT_EQ(disk.write_bytes_per_second(), 44'000'000u);
  ASSERT_EQ(disk.windows_size(), 1);
  const v1::DiskWindowStatus& window = disk.windows(0);
  EXPECT_EQ(window.window_size(), 0u);
  EXPECT_EQ(window.engine(), "io_uring");
  EXPECT_TRUE(window.direct());
  EXPECT_EQ(window.mode(), "readonly");
  EXPECT_EQ(window.mode_reason(), "8 writes failed");
  EXPECT_EQ(window.held_slots(), 20u);
  EXPECT_EQ(window.stale_slots(), 21u);
  EXPECT_EQ(window.quarantined_slots(), 13u);
  EXPECT_EQ(window.damaged_slots(), 24u);
  EXPECT_EQ(window.waiting_backups(), 9u);
  EXPECT_EQ(window.queued_backups(), 17u);
  EXPECT_EQ(window.queued_fetches(), 18u);
  EXPECT_EQ(window.running_orders(), 19u);
  EXPECT_EQ(window.written_blocks_total(), 14u);
  EXPECT_EQ(window.written_bytes_total(), 1400u);
  EXPECT_EQ(window.read_blocks_total(), 15u);
  EXPECT_EQ(window.read_bytes_total(), 1500u);
  EXPECT_EQ(window.passed_over_blocks_total(), 3u);
  EXPECT_EQ(window.late_fetches_total(), 6u);
  EXPECT_EQ(window.failed_backups_total(), 2u);
  EXPECT_EQ(window.failed_fetches_total(), 5u);
  EXPECT_EQ(window.erased_blocks_total(), 8u);
  EXPECT_EQ(window.failed_erases_total(), 22u);
  ASSERT_EQ(window.errors_total_size(), 1);
  EXPECT_EQ(window.errors_total(0).ShortDebugString(), R"(name: "no space" count: 16)");
}

TEST(TransfersToStatusTest, WhatGoesToADiskIsATransfer) {
  Numbers numbers;
  numbers.disk.stats.windows[0].written.blocks = 100;  // In the other window.
  TransferStats stats;
  stats.directions[0][1].copies = 3;
  v1::TransferStatus status;
  TransfersToStatus(stats, &numbers.disk, ThreeTiers(), &status);
  ASSERT_EQ(status.directions_size(), 3) << "the one in memory, and two of the disk";
  EXPECT_EQ(status.directions(0).copies_total(), 3u);
  EXPECT_TRUE(status.directions(0).has_busy_time());
  EXPECT_EQ(status.directions(1).ShortDebugString(),
            "source: TIER_SECOND target: TIER_THIRD copies_total: 114 bytes_total: 1400 "
            "source_name: \"dram\" target_name: \"nvme\"");
  EXPECT_EQ(status.directions(2).ShortDebugString(),
            "source: TIER_THIRD target: TIER_SECOND copies_total: 15 bytes_total: 1500 "
            "source_name: \"nvme\" target_name: \"dram\"");
}

TEST(TransfersToStatusTest, ADirectionWithoutCopiesIsLeftOut) {
  const Numbers numbers;
  DiskNumbers unused = numbers.disk;
  unused.stats.windows[1].written.blocks = unused.stats.windows[1].read.blocks = 0;
  v1::TransferStatus status;
  TransfersToStatus(TransferStats(), &unused, ThreeTiers(), &status);
  EXPECT_EQ(status.directions_size(), 0);
}

}  // namespace
}  // namespace pagoda::server
