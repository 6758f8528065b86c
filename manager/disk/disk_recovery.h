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
#include "manager/recovered_block.h"
#include "pools/types.h"

namespace pagoda {

// Why a whole header did not become a block.
enum class DiskLoss : uint8_t {
  kDamagedRecord,  // It does not say what the block is, or of another size than blocks here have.
  kDuplicate,      // A later write has the same content.
  kUnreachable,    // The write of the block above it was not found, or that is no full block.
  kRefused,        // Of a namespace that DiskRecoveryOptions::accepts refuses.
};
inline constexpr size_t kNumDiskLosses = 4;
std::string_view DiskLossName(DiskLoss loss);  // "damaged record"

struct DiskRecoveryReport {
  uint64_t slots = 0;  // Of all files.
  uint64_t found = 0;  // Whole headers.
  uint64_t recovered = 0;
  std::array<uint64_t, kNumDiskLosses> lost = {};
  uint64_t damaged = 0;     // Slots with bytes that are no header.
  uint64_t unreadable = 0;  // Slots that the disk does not read.
  absl::Duration duration;
  // Files that could not be looked through, and why: "window full: ...".
  std::vector<std::string> not_scanned;

  uint64_t lost_by(DiskLoss loss) const { return lost[static_cast<size_t>(loss)]; }
};
// In one line, for people.
std::string Describe(const DiskRecoveryReport& report);

struct DiskRecovery {
  // One for each of the layout's, in its order; the blocks' slots are those of the file.
  std::vector<RecoveredWindow> windows;
  std::vector<WriteLedger> ledgers;  // For DiskCarrier; likewise.
  DiskRecoveryReport report;
};

struct DiskRecoveryOptions {
  Tier tier = Tier::kSecondary;  // Of the blocks' slots.
  // Whether blocks of the namespace are taken back. Empty: all are.
  std::function<bool(const NamespaceKey&)> accepts;
  // Called now and then. May be empty.
  std::function<void(uint64_t scanned_slots, uint64_t total_slots)> progress;
  // New writes have at least that many microseconds since 1970 as their ids. A header that the disk
  // does not read now may have a larger id than all that it reads, and be read at the next start.
  absl::Time now = absl::Now();
};

// Reads the headers of all slots and nothing else: whether a block's bytes are right is seen when
// it is fetched. Takes back every block that can be reached: the first of its namespace, or one
// whose parent's write is taken back too and is a full block. Of two blocks with one content below
// one parent the later write is taken, and has the children of both. The slots of what is not taken
// back are stale in the ledger. A file that cannot be read gives no block, and all of its slots are
// stale.
// Cost: reads a page a slot; sorts the blocks that were found.
DiskRecovery RecoverDisk(const DiskFiles& files, const DiskRecoveryOptions& options = {});

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_DISK_RECOVERY_H_
