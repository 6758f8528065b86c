// Finds the cached blocks that an earlier run of the daemon left in memory.
#ifndef PAGODA_MANAGER_RESTART_RECOVERY_H_
#define PAGODA_MANAGER_RESTART_RECOVERY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "events/block_hash.h"
#include "manager/restart/stamp_set.h"
#include "manager/words/recovered_block.h"
#include "pools/pool.h"

namespace pagoda {

// Why a valid stamp did not become a block.
enum class RecoveryLoss : uint8_t {
  kDamagedStamp,      // Its own checksum is wrong, or the stamp belongs to another slot.
  kWrongDigest,       // Its tokens do not match its digest.
  kChangedBytes,      // The slot's bytes are not those that were stamped.
  kDuplicate,         // Another slot has the same content.
  kUnreachable,       // Its parent was not found, or the parent is no full block.
  kNearerThanParent,  // Full attention: it lies in a nearer tier than its parent.
  kRefused,  // RecoveryOptions::accepts refuses its namespace, or there are too many holes.
};
inline constexpr size_t kNumRecoveryLosses = 7;
std::string_view RecoveryLossName(RecoveryLoss loss);  // "damaged stamp"

struct RecoveryReport {
  uint64_t found = 0;  // Valid stamps.
  uint64_t recovered = 0;
  uint64_t holes = 0;  // Blocks of sliding windows without bytes, above others.
  std::array<uint64_t, kNumRecoveryLosses> lost = {};
  uint64_t checked_bytes = 0;
  absl::Duration duration;
  // Windows and tiers with nothing to recover, and the reason: "window full, primary: ...".
  std::vector<std::string> not_adopted;

  uint64_t lost_by(RecoveryLoss loss) const { return lost[static_cast<size_t>(loss)]; }
};
// One line for people.
std::string Describe(const RecoveryReport& report);

struct Recovery {
  std::vector<RecoveredWindow> windows;  // One for each of the layout's, in its order.
  RecoveryReport report;
};

struct RecoveryOptions {
  uint32_t num_threads = 2;  // At least 1.
  // In each sliding window.
  uint32_t max_holes = std::numeric_limits<uint32_t>::max();
  // Whether blocks of the namespace are taken back. If empty, all are.
  std::function<bool(const NamespaceKey&)> accepts;
  // Called now and then, on any thread, one call at a time. May be empty.
  std::function<void(uint64_t checked_bytes, uint64_t total_bytes)> progress;
};

// Takes back every block that passes these checks. Its stamp is whole, its bytes are those that
// were stamped, and its content matches its digest. It can be reached: under full attention through
// blocks that are taken back too; in a sliding window also through holes whose content is known
// from another window. If both tiers have the same content, the primary block is taken. Every other
// stamp is invalid afterwards.
// While this runs, only clients of the earlier run may write the pools. Recover notices their
// writes, unless they come after it has checked the slot.
// Cost: reads every stamped slot.
Recovery Recover(PoolSet& pools, StampSet& stamps, const RecoveryOptions& options = {});

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RESTART_RECOVERY_H_
