// Finds the cached blocks that an earlier run of the daemon left in the files of a disk tier.
#ifndef PAGODA_MANAGER_DISK_DISK_RECOVERY_H_
#define PAGODA_MANAGER_DISK_DISK_RECOVERY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "events/block_hash.h"
#include "manager/disk/disk_files.h"
#include "manager/disk/write_ledger.h"
#include "manager/words/recovered_block.h"
#include "pools/types.h"

namespace pagoda {

// Why an intact header did not become a block.
enum class DiskLoss : uint8_t {
  kDamagedRecord,  // It does not describe a block, or only one of another size than blocks here
                   // have.
  kDuplicate,      // A later write has the same content.
  kUnreachable,    // The write of its parent was not found, or the parent is no full block.
  kRefused,        // DiskRecoveryOptions::accepts refuses its namespace.
};
inline constexpr size_t kNumDiskLosses = 4;
std::string_view DiskLossName(DiskLoss loss);  // "damaged record"

struct DiskRecoveryReport {
  uint64_t slots = 0;  // Over all files.
  uint64_t found = 0;  // Intact headers.
  uint64_t recovered = 0;
  std::array<uint64_t, kNumDiskLosses> lost = {};
  uint64_t damaged = 0;     // Slots with bytes that are no header.
  uint64_t unreadable = 0;  // Slots that the disk cannot read.
  absl::Duration duration;
  // By window: slots with a damaged header or record, and slots that the disk cannot read.
  std::vector<uint64_t> damaged_slots;
  // Files that could not be scanned, and why: "window full: ...".
  std::vector<std::string> not_scanned;

  uint64_t lost_by(DiskLoss loss) const { return lost[static_cast<size_t>(loss)]; }
};
// Whether the disk has lost bytes: damaged slots, or files that could not be scanned.
bool HasDamage(const DiskRecoveryReport& report);
// In one line, for people.
std::string Describe(const DiskRecoveryReport& report);

struct DiskRecovery {
  // One for each window of the layout, in its order. The blocks' slots are those of the file.
  std::vector<RecoveredWindow> windows;
  std::vector<WriteLedger> ledgers;  // For DiskCarrier; in the same order.
  DiskRecoveryReport report;
};

struct DiskRecoveryOptions {
  Tier tier = Tier(1);  // The tier of the blocks' slots.
  // Whether blocks of the namespace are taken back. Empty: all are.
  std::function<bool(const NamespaceKey&)> accepts;
  // Called from time to time. May be empty.
  std::function<void(uint64_t scanned_slots, uint64_t total_slots)> progress;
  // The ids of new writes are at least this time, in microseconds since 1970. A header that the
  // disk cannot read now can have a larger id than all that it reads, and can be readable at the
  // next start.
  absl::Time now = absl::Now();
};

// Reads only the headers of all slots: a fetch finds out whether a block's bytes are right. Takes
// back every reachable block: one that is the first of its namespace, or one whose parent's write
// is taken back too and is a full block. Of two blocks with the same content and parent it takes
// the later write, with the children of both. Slots that are not taken back are stale in the
// ledger. A file that cannot be read gives no block, and all of its slots are stale.
// Cost: reads a page for each slot, and sorts the blocks that it finds.
DiskRecovery RecoverDisk(const DiskFiles& files, const DiskRecoveryOptions& options = {});

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_DISK_RECOVERY_H_
