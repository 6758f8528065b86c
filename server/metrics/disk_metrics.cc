#include "server/metrics/disk_metrics.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/calls/metric_family.h"
#include "server/metrics/declared_families.h"

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
    AddSample(damaged, window.labels, AsDouble(window.damaged_slots));
  }
  for (auto* family : {&info, &mode, &damaged}) out.push_back(std::move(*family));
}

// Latencies, and failed orders by kind.
void CollectOrders(const std::vector<Window>& windows, Families& out) {
  auto latency =
      HistogramFamily("pagoda_disk_latency_seconds",
                      "Time from the order of a write or read to its end, with its wait.");
  auto errors =
      CounterFamily("pagoda_disk_errors_total", "Orders to the disk that failed, by kind.");
  for (const Window& window : windows) {
    AddHistogram(latency, WithLabel(window.labels, "direction", "write"),
                 window.carrier.written.latency);
    AddHistogram(latency, WithLabel(window.labels, "direction", "read"),
                 window.carrier.read.latency);
    for (size_t i = 0; i < kNumDiskErrors; ++i) {
      std::string kind(DiskErrorName(static_cast<DiskError>(i)));
      std::replace(kind.begin(), kind.end(), ' ', '_');
      AddSample(errors, WithLabel(window.labels, "kind", std::move(kind)),
                AsDouble(window.carrier.errors[i]));
    }
  }
  for (auto* family : {&latency, &errors}) out.push_back(std::move(*family));
}

void CollectDeclaredValues(const std::vector<Window>& windows, Families& out) {
  DeclaredFamilies carrier(kDiskWindowMetrics);
  DeclaredFamilies core(kDiskTierMetrics);
  for (const Window& window : windows) {
    carrier.Add(window.labels, window.carrier);
    core.Add(window.labels, window.core);
  }
  carrier.MoveTo(out);
  core.MoveTo(out);
}

}  // namespace

Families CollectDiskMetrics(const ManagerStats& stats, const DiskNumbers& disk) {
  const std::vector<Window> windows = WindowsOf(stats, disk);
  Families families;
  CollectFiles(windows, disk.tier, families);
  CollectOrders(windows, families);
  CollectDeclaredValues(windows, families);
  families.push_back(Gauge("pagoda_disk_write_budget_bytes_per_second",
                           "The limit of bytes written to the disk per second; 0: no limit.",
                           AsDouble(disk.write_bytes_per_second)));
  return families;
}

}  // namespace pagoda::server
