#include "server/metrics/disk_metrics.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "server/calls/metric_family.h"

namespace pagoda::server {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

// A window with a file: the core's statistics of it, and the carrier's.
struct Window {
  MetricLabels labels;
  const DiskTierStats& core;
  const DiskStats::Window& carrier;
  uint64_t damaged_slots;
};

std::vector<Window> WindowsOf(const ManagerStats& stats, const DiskNumbers& disk) {
  std::vector<Window> windows;
  for (size_t w = 0; w < disk.stats.windows.size(); ++w) {
    if (disk.stats.windows[w].file.engine.empty()) continue;  // The window has no file.
    windows.push_back({.labels = {{"window", WindowName(stats.windows[w].window)}},
                       .core = stats.windows[w].disk,
                       .carrier = disk.stats.windows[w],
                       .damaged_slots = disk.damaged_slots[w]});
  }
  return windows;
}

void CollectFiles(const std::vector<Window>& windows, const std::string& tier, Families& out) {
  auto info = GaugeFamily("pagoda_disk_info", "Always 1; the labels describe how a file is used.");
  auto mode = GaugeFamily("pagoda_disk_mode",
                          "1 for the mode of a window's file, 0 for the other modes: readonly "
                          "after failed writes, off after failed reads.");
  auto slots = GaugeFamily(
      "pagoda_disk_slots",
      "Slots of a file by state. held: with a block of the cache. stale: with content that an "
      "erase would have to erase. quarantined: not used until the next start, because a write to "
      "them failed.");
  auto damaged = GaugeFamily("pagoda_disk_damaged_slots",
                             "Slots that the start found damaged or could not read. Their blocks "
                             "are lost.");
  for (const Window& window : windows) {
    const SlabStats& file = window.carrier.file;
    AddSample(info,
              WithLabel(WithLabel(WithLabel(window.labels, "tier", tier), "engine", file.engine),
                        "direct", file.direct ? "true" : "false"),
              1);
    for (const SlabMode one : {SlabMode::kReadWrite, SlabMode::kReadOnly, SlabMode::kOff}) {
      AddSample(mode, WithLabel(window.labels, "mode", std::string(SlabModeName(one))),
                file.mode == one ? 1 : 0);
    }
    AddSample(slots, WithLabel(window.labels, "state", "held"), window.carrier.held_slots);
    AddSample(slots, WithLabel(window.labels, "state", "stale"), window.carrier.stale_slots);
    AddSample(slots, WithLabel(window.labels, "state", "quarantined"), file.quarantined_slots);
    AddSample(damaged, window.labels, AsDouble(window.damaged_slots));
  }
  for (auto* family : {&info, &mode, &slots, &damaged}) out.push_back(std::move(*family));
}

void CollectTraffic(const std::vector<Window>& windows, Families& out) {
  auto blocks = CounterFamily("pagoda_disk_blocks_total", "Blocks written or read.");
  auto bytes = CounterFamily("pagoda_disk_bytes_total", "Bytes written or read.");
  auto latency =
      HistogramFamily("pagoda_disk_latency_seconds",
                      "Time from the order of a write or read to its end, with its wait.");
  auto failed = CounterFamily("pagoda_disk_io_errors_total",
                              "Writes (with syncs) and reads that failed with a system error.");
  for (const Window& window : windows) {
    const SlabStats& file = window.carrier.file;
    const std::tuple<const char*, const DiskStats::Direction&, uint64_t> directions[] = {
        {"write", window.carrier.written, file.write_errors},
        {"read", window.carrier.read, file.read_errors}};
    for (const auto& [name, direction, errors] : directions) {
      const MetricLabels labels = WithLabel(window.labels, "direction", name);
      AddSample(blocks, labels, AsDouble(direction.blocks));
      AddSample(bytes, labels, AsDouble(direction.bytes));
      AddHistogram(latency, labels, direction.latency);
      AddSample(failed, labels, AsDouble(errors));
    }
  }
  for (auto* family : {&blocks, &bytes, &latency, &failed}) out.push_back(std::move(*family));
}

void CollectOrders(const std::vector<Window>& windows, Families& out) {
  auto errors =
      CounterFamily("pagoda_disk_errors_total", "Orders to the disk that failed, by kind.");
  auto queued = GaugeFamily("pagoda_disk_queued_orders", "Orders that the disk has not begun.");
  auto running = GaugeFamily("pagoda_disk_running_orders", "Orders that are running.");
  for (const Window& window : windows) {
    for (size_t i = 0; i < kNumDiskErrors; ++i) {
      std::string kind(DiskErrorName(static_cast<DiskError>(i)));
      std::replace(kind.begin(), kind.end(), ' ', '_');
      AddSample(errors, WithLabel(window.labels, "kind", std::move(kind)),
                AsDouble(window.carrier.errors[i]));
    }
    AddSample(queued, WithLabel(window.labels, "lane", "backup"),
              AsDouble(window.carrier.queued_backups));
    AddSample(queued, WithLabel(window.labels, "lane", "fetch"),
              AsDouble(window.carrier.queued_fetches));
    AddSample(running, window.labels, AsDouble(window.carrier.running));
  }
  for (auto* family : {&errors, &queued, &running}) out.push_back(std::move(*family));
}

void CollectCore(const std::vector<Window>& windows, Families& out) {
  struct CounterRow {
    const char* name;
    const char* help;
    uint64_t DiskTierStats::*field;
  };
  const CounterRow counters[] = {
      {"pagoda_disk_backups_total", "Blocks that got a copy on disk.", &DiskTierStats::backups},
      {"pagoda_disk_backup_bytes_total",
       "Bytes ordered to be written, including failed writes. They count against the write budget.",
       &DiskTierStats::backup_bytes},
      {"pagoda_disk_failed_backups_total", "Blocks whose write failed.",
       &DiskTierStats::failed_backups},
      {"pagoda_disk_passed_over_blocks_total",
       "Blocks that left memory without a copy on disk, because the disk or the write budget was "
       "too slow.",
       &DiskTierStats::passed_over},
      {"pagoda_disk_fetches_total", "Blocks fetched from the disk into memory.",
       &DiskTierStats::fetches},
      {"pagoda_disk_fetch_bytes_total", "Bytes fetched from the disk into memory.",
       &DiskTierStats::fetch_bytes},
      {"pagoda_disk_failed_fetches_total",
       "Blocks that could not be read or had changed on the disk. Their copy on disk is lost.",
       &DiskTierStats::failed_fetches},
      {"pagoda_disk_late_fetches_total",
       "Blocks read and not used, because their deadline had passed or their slot was gone.",
       &DiskTierStats::late_fetches},
      {"pagoda_disk_erased_blocks_total",
       "Blocks erased from the disk, so that a restart does not recover them.",
       &DiskTierStats::erased_blocks},
      {"pagoda_disk_failed_erases_total",
       "Erases that the disk gave up. Their blocks can come back after a restart.",
       &DiskTierStats::failed_erases},
  };
  for (const CounterRow& counter : counters) {
    prometheus::MetricFamily& family = out.emplace_back(CounterFamily(counter.name, counter.help));
    for (const Window& window : windows) {
      AddSample(family, window.labels, AsDouble(window.core.*counter.field));
    }
  }
  struct GaugeRow {
    const char* name;
    const char* help;
    uint32_t DiskTierStats::*field;
  };
  const GaugeRow gauges[] = {
      {"pagoda_disk_waiting_backups", "Blocks that wait for a write order.",
       &DiskTierStats::waiting_backups},
      {"pagoda_disk_retired_slots",
       "Slots that the cache does not use until the next start, because a write to them failed.",
       &DiskTierStats::retired_slots},
  };
  for (const GaugeRow& gauge : gauges) {
    prometheus::MetricFamily& family = out.emplace_back(GaugeFamily(gauge.name, gauge.help));
    for (const Window& window : windows) {
      AddSample(family, window.labels, window.core.*gauge.field);
    }
  }
}

}  // namespace

Families CollectDiskMetrics(const ManagerStats& stats, const DiskNumbers& disk) {
  const std::vector<Window> windows = WindowsOf(stats, disk);
  Families families;
  CollectFiles(windows, disk.tier, families);
  CollectTraffic(windows, families);
  CollectOrders(windows, families);
  CollectCore(windows, families);
  families.push_back(Gauge("pagoda_disk_write_budget_bytes_per_second",
                           "The limit of bytes written to the disk per second; 0: no limit.",
                           AsDouble(disk.write_bytes_per_second)));
  return families;
}

}  // namespace pagoda::server
