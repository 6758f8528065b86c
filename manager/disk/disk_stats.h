// What a disk tier's carrier counts, for metrics.
#ifndef PAGODA_MANAGER_DISK_DISK_STATS_H_
#define PAGODA_MANAGER_DISK_DISK_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "pools/duration_histogram.h"
#include "pools/file/slab_file.h"

namespace pagoda {

// Bounds of DiskStats::Direction::latency, in seconds: a read of 64 KiB takes 100 us on an NVMe
// drive, a write behind a queue seconds.
inline constexpr double kDiskLatencyBounds[] = {50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3,
                                                5e-3,  10e-3,  25e-3,  50e-3,  0.1,  0.25,
                                                0.5,   1,      2.5,    5,      10};

// Why an order failed. Each has a status code of its own.
enum class DiskError : uint8_t {
  kIo,         // Unavailable: the system's error at a read, a write or a sync.
  kNoSpace,    // ResourceExhausted: reserved space is not there.
  kBadBlock,   // DataLoss: the slot does not hold that block in whole.
  kRefused,    // FailedPrecondition: the file is read-only or off, or the slot is quarantined.
  kOrphaned,   // NotFound: the copy of the block's parent is not in the file.
  kTooLarge,   // OutOfRange: what is to be said of the block does not fit its record.
  kInvalid,    // InvalidArgument: a slot that does not exist, or one on a device.
  kCancelled,  // Cancelled: Stop came before.
};
inline constexpr size_t kNumDiskErrors = 8;
std::string_view DiskErrorName(DiskError error);  // "too large"
// None where the status is OK.
std::optional<DiskError> DiskErrorOf(const absl::Status& status);

struct DiskStats {
  // Counts since the start.
  struct Direction {
    uint64_t blocks = 0;  // That succeeded.
    uint64_t bytes = 0;   // Of those.
    // Of those: from the order to its report, with the wait for memory copies and for the disk.
    DurationHistogram latency{kDiskLatencyBounds};
  };
  struct Window {
    SlabStats file;  // Its engine, its mode and the reason of it, among others.
    Direction written, read;
    uint64_t erases = 0;        // That succeeded, resets among them.
    uint64_t erased_slots = 0;  // Of those that were no resets.
    std::array<uint64_t, kNumDiskErrors> errors = {};
    // Now.
    size_t queued_backups = 0;  // Given, and not begun; erases too.
    size_t queued_fetches = 0;
    size_t running = 0;        // Begun, and not reported.
    uint32_t held_slots = 0;   // With a block of the core's, or one that is ordered.
    uint32_t stale_slots = 0;  // That an erase would have to erase.

    uint64_t errors_of(DiskError error) const { return errors[static_cast<size_t>(error)]; }
  };
  std::vector<Window> windows;  // By window. Nothing where it has no file.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_DISK_STATS_H_
