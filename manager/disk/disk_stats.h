// The counters of a disk tier's carrier, for metrics.
#ifndef PAGODA_MANAGER_DISK_DISK_STATS_H_
#define PAGODA_MANAGER_DISK_DISK_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/metric.h"
#include "pools/duration_histogram.h"
#include "pools/file/slab_file.h"

namespace pagoda {

// Bounds of DiskStats::Direction::latency, in seconds. A read of 64 KiB takes 100 us on an NVMe
// drive; a write behind a queue takes seconds.
inline constexpr double kDiskLatencyBounds[] = {50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3,
                                                5e-3,  10e-3,  25e-3,  50e-3,  0.1,  0.25,
                                                0.5,   1,      2.5,    5,      10};

// Why an order failed. Each reason has its own status code.
enum class DiskError : uint8_t {
  kIo,         // Unavailable: the system reported an error at a read, a write or a sync.
  kNoSpace,    // ResourceExhausted: reserved space is missing.
  kBadBlock,   // DataLoss: the slot does not hold that block intact.
  kRefused,    // FailedPrecondition: the file is read-only or off, or the slot is quarantined.
  kOrphaned,   // NotFound: the copy of the block's parent is not in the file.
  kTooLarge,   // OutOfRange: the block's record would be too large.
  kInvalid,    // InvalidArgument: a slot that does not exist, or one on a device.
  kCancelled,  // Cancelled: Stop was called first.
};
inline constexpr size_t kNumDiskErrors = 8;
std::string_view DiskErrorName(DiskError error);  // "too large"
// Nothing if the status is OK.
std::optional<DiskError> DiskErrorOf(const absl::Status& status);

struct DiskStats {
  // Counts since the start.
  struct Direction {
    uint64_t blocks = 0;  // Completed blocks.
    uint64_t bytes = 0;   // Their bytes.
    // The time of these blocks from the order to its report. Includes the wait for memory copies
    // and the disk.
    DurationHistogram latency{kDiskLatencyBounds};
  };
  struct Window {
    SlabStats file;  // Includes its engine, its mode and the reason for the mode.
    Direction written, read;
    uint64_t erases = 0;        // Successful ones, including resets.
    uint64_t erased_slots = 0;  // Without resets.
    std::array<uint64_t, kNumDiskErrors> errors = {};
    // Current values.
    size_t queued_backups = 0;  // Submitted, and not begun; includes erases.
    size_t queued_fetches = 0;
    size_t running = 0;        // Begun, and not reported.
    uint32_t held_slots = 0;   // Slots with a block of the core's, or with one that is ordered.
    uint32_t stale_slots = 0;  // An erase would have to erase them.

    uint64_t errors_of(DiskError error) const { return errors[static_cast<size_t>(error)]; }
  };
  std::vector<Window> windows;  // By window. Empty if a window has no file.
};

// Label: window.
inline constexpr Metric<DiskStats::Window> kDiskWindowMetrics[] = {
    {&DiskStats::Window::held_slots,
     "pagoda_disk_slots",
     "held_slots",
     "Slots of the file by state. held: with a block of the cache. stale: with old content, which "
     "an erase would have to remove. quarantined: not used until the next start, because a write "
     "failed.",
     {"state", "held"}},
    {&DiskStats::Window::stale_slots, "pagoda_disk_slots", "stale_slots", "", {"state", "stale"}},
    {[](const DiskStats::Window& window) -> double { return window.file.quarantined_slots; },
     "pagoda_disk_slots",
     "quarantined_slots",
     "",
     {"state", "quarantined"}},
    {[](const DiskStats::Window& window) { return static_cast<double>(window.written.blocks); },
     "pagoda_disk_blocks_total",
     "written_blocks_total",
     "Blocks transferred, by direction: write, read.",
     {"direction", "write"}},
    {[](const DiskStats::Window& window) { return static_cast<double>(window.read.blocks); },
     "pagoda_disk_blocks_total",
     "read_blocks_total",
     "",
     {"direction", "read"}},
    {[](const DiskStats::Window& window) { return static_cast<double>(window.written.bytes); },
     "pagoda_disk_bytes_total",
     "written_bytes_total",
     "Bytes transferred, by direction: write, read.",
     {"direction", "write"}},
    {[](const DiskStats::Window& window) { return static_cast<double>(window.read.bytes); },
     "pagoda_disk_bytes_total",
     "read_bytes_total",
     "",
     {"direction", "read"}},
    {[](const DiskStats::Window& window) { return static_cast<double>(window.file.write_errors); },
     "pagoda_disk_io_errors_total",
     "write_errors_total",
     "Errors of the system, by direction: write (with syncs), read.",
     {"direction", "write"}},
    {[](const DiskStats::Window& window) { return static_cast<double>(window.file.read_errors); },
     "pagoda_disk_io_errors_total",
     "read_errors_total",
     "",
     {"direction", "read"}},
    {&DiskStats::Window::queued_backups,
     "pagoda_disk_queued_orders",
     "queued_backups",
     "Orders that the disk has not begun, by lane: backup, fetch.",
     {"lane", "backup"}},
    {&DiskStats::Window::queued_fetches,
     "pagoda_disk_queued_orders",
     "queued_fetches",
     "",
     {"lane", "fetch"}},
    {&DiskStats::Window::running, "pagoda_disk_running_orders", "running_orders",
     "Orders that the disk is working on."},
};
static_assert(EachFieldHasARow<&DiskStats::Window::file, &DiskStats::Window::written,
                               &DiskStats::Window::read, &DiskStats::Window::erases,
                               &DiskStats::Window::erased_slots, &DiskStats::Window::errors>(
                  kDiskWindowMetrics),
              "a field has no row");

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_DISK_STATS_H_
