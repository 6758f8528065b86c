#include "server/admin/copy_status.h"

#include <cstddef>
#include <string>

#include "base/printable.h"
#include "manager/disk/disk_stats.h"
#include "server/admin/declared_status.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

v1::TransferDirection* AddDirection(Tier source, Tier target, const CacheInfo& cache,
                                    v1::TransferStatus* out) {
  v1::TransferDirection* const direction = out->add_directions();
  direction->set_source(TierToProto(source));
  direction->set_target(TierToProto(target));
  direction->set_source_name(cache.TierName(source));
  direction->set_target_name(cache.TierName(target));
  return direction;
}

void AddDiskDirection(Tier source, Tier target, const DiskStats& stats,
                      DiskStats::Direction DiskStats::Window::*counts, const CacheInfo& cache,
                      v1::TransferStatus* out) {
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  for (const DiskStats::Window& window : stats.windows) {
    blocks += (window.*counts).blocks;
    bytes += (window.*counts).bytes;
  }
  if (blocks == 0) return;
  v1::TransferDirection* const direction = AddDirection(source, target, cache, out);
  direction->set_copies_total(blocks);
  direction->set_bytes_total(bytes);
}

void FileToStatus(const DiskStats::Window& window, const DiskTierStats& core,
                  v1::DiskWindowStatus* out) {
  out->set_engine(window.file.engine);
  out->set_direct(window.file.direct);
  out->set_mode(std::string(SlabModeName(window.file.mode)));
  out->set_mode_reason(Printable(window.file.mode_reason));
  SetDeclared(kDiskWindowMetrics, window, out);
  SetDeclared(kDiskTierMetrics, core, out);
  for (size_t i = 0; i < kNumDiskErrors; ++i) {
    if (window.errors[i] == 0) continue;
    v1::NamedCount* const count = out->add_errors_total();
    count->set_name(std::string(DiskErrorName(static_cast<DiskError>(i))));
    count->set_count(window.errors[i]);
  }
}

}  // namespace

void TransfersToStatus(const TransferStats& stats, const DiskNumbers* disk, const CacheInfo& cache,
                       v1::TransferStatus* out) {
  for (size_t from = 0; from < kMaxTiers; ++from) {
    for (size_t to = 0; to < kMaxTiers; ++to) {
      const Tier source(from);
      const Tier target(to);
      const TransferStats::Direction& direction = stats.direction(source, target);
      if (direction.copies == 0) continue;
      v1::TransferDirection* const proto = AddDirection(source, target, cache, out);
      proto->set_copies_total(direction.copies);
      proto->set_bytes_total(direction.bytes);
      *proto->mutable_busy_time() = DurationToProto(direction.busy);
    }
  }
  if (disk != nullptr) {
    const Tier last(cache.tiers.size() - 1);
    const Tier above(cache.tiers.size() - 2);
    AddDiskDirection(above, last, disk->stats, &DiskStats::Window::written, cache, out);
    AddDiskDirection(last, above, disk->stats, &DiskStats::Window::read, cache, out);
  }
  out->set_failed_total(stats.failed);
  out->set_running(stats.running);
  out->set_queued(stats.queued);
}

void DiskToStatus(const ManagerStats& stats, const DiskNumbers& disk, const CacheInfo& cache,
                  v1::DiskStatus* out) {
  out->set_tier(TierToProto(Tier(cache.tiers.size() - 1)));
  out->set_tier_name(disk.tier);
  out->set_path(Printable(disk.path));
  out->set_write_bytes_per_second(disk.write_bytes_per_second);
  for (size_t w = 0; w < disk.stats.windows.size(); ++w) {
    const DiskStats::Window& window = disk.stats.windows[w];
    if (window.file.engine.empty()) continue;  // The window has no file.
    v1::DiskWindowStatus* const file = out->add_windows();
    file->set_window_size(WindowToProto(stats.windows[w].window));
    FileToStatus(window, stats.windows[w].disk, file);
    file->set_damaged_slots(disk.damaged_slots[w]);
  }
}

}  // namespace pagoda::server
