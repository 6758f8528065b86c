#include "server/metrics/disk_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "prometheus/text_serializer.h"
#include "server/http/status_json.h"

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

TEST(DiskJsonTest, SaysHowTheFilesAreUsed) {
  const Numbers numbers;
  const Json json = DiskJson(numbers.stats, &numbers.disk, DiskDetail::kForOperators);
  EXPECT_EQ(json["tier"], "nvme");
  EXPECT_EQ(json["path"], "/srv/slabs");
  EXPECT_EQ(json["write_bytes_per_second"], 44'000'000);
  ASSERT_EQ(json["windows"].size(), 1u);
  const Json& window = json["windows"][0];
  EXPECT_EQ(window["window"], "full");
  EXPECT_EQ(window["engine"], "io_uring");
  EXPECT_EQ(window["direct"], true);
  EXPECT_EQ(window["mode"], "readonly");
  EXPECT_EQ(window["mode_reason"], "8 writes failed");
  EXPECT_EQ(window["held_slots"], 20);
  EXPECT_EQ(window["damaged_slots"], 24);
  EXPECT_EQ(window["waiting_backups"], 9);
  EXPECT_EQ(window["totals"]["written_blocks"], 14);
  EXPECT_EQ(window["totals"]["passed_over_blocks"], 3);
  EXPECT_EQ(window["errors"].dump(), R"({"no space":16})");
}

TEST(DiskJsonTest, OthersReadNoPath) {
  const Numbers numbers;
  const std::string text = DiskJson(numbers.stats, &numbers.disk, DiskDetail::kForAll).dump();
  EXPECT_THAT(text, Not(HasSubstr("/srv/slabs")));
  EXPECT_THAT(text, Not(HasSubstr("8 writes failed")));
  EXPECT_THAT(text, HasSubstr("readonly"));
  EXPECT_TRUE(DiskJson(numbers.stats, nullptr, DiskDetail::kForOperators).is_null());
}

TEST(DiskJsonTest, WhatGoesToADiskIsATransfer) {
  Numbers numbers;
  numbers.disk.stats.windows[0].written.blocks = 100;  // In the other window.
  const CacheInfo cache = {
      .tiers = {{.name = "hbm"}, {.name = "dram"}, {.name = "nvme", .medium = Medium::kDisk}}};
  const Json json = TransfersJson(TransferStats(), &numbers.disk, cache);
  ASSERT_EQ(json["directions"].size(), 6u) << "four in memory, and two of the disk";
  EXPECT_EQ(json["directions"][0]["busy_seconds"], 0);
  EXPECT_EQ(json["directions"][4].dump(),
            R"({"from":"dram","to":"nvme","copies":114,"bytes":1400})");
  EXPECT_EQ(json["directions"][5].dump(),
            R"({"from":"nvme","to":"dram","copies":15,"bytes":1500})");
  EXPECT_EQ(TransfersJson(TransferStats(), nullptr, cache)["directions"].size(), 9u);
}

}  // namespace
}  // namespace pagoda::server
