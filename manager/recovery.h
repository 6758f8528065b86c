// Finds the cached blocks that an earlier run of the daemon left in memory.
#ifndef PAGODA_MANAGER_RECOVERY_H_
#define PAGODA_MANAGER_RECOVERY_H_

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
#include "manager/recovered_block.h"
#include "manager/stamp_set.h"
#include "pools/pool.h"

namespace pagoda {

// Why a valid stamp did not become a block.
enum class RecoveryLoss : uint8_t {
  kDamagedStamp,      // Its own checksum is wrong, or it does not belong to its slot.
  kWrongDigest,       // Its tokens are not those of its digest.
  kChangedBytes,      // The slot's bytes are not those that were stamped.
  kDuplicate,         // Another slot has the same content.
  kUnreachable,       // No block above it was found, or one that is no full block.
  kNearerThanParent,  // Full attention: it is in the primary tier, its parent in the secondary.
  kRefused,           // Of a namespace that RecoveryOptions::accepts refuses, or a hole too many.
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
  // Windows and tiers of which nothing could be found, and why: "window full, primary: ...".
  std::vector<std::string> not_adopted;

  uint64_t lost_by(RecoveryLoss loss) const { return lost[static_cast<size_t>(loss)]; }
};
// In one line, for people.
std::string Describe(const RecoveryReport& report);

struct Recovery {
  std::vector<RecoveredWindow> windows;  // One for each of the layout's, in its order.
  RecoveryReport report;
};

struct RecoveryOptions {
  uint32_t num_threads = 2;  // At least 1.
  // Of each sliding window.
  uint32_t max_holes = std::numeric_limits<uint32_t>::max();
  // Whether blocks of the namespace are taken back. Empty: all are.
  std::function<bool(const NamespaceKey&)> accepts;
  // Called now and then, on any thread, by one at a time. May be empty.
  std::function<void(uint64_t checked_bytes, uint64_t total_bytes)> progress;
};

// Takes back every block whose stamp is whole, whose bytes are those that were stamped and whose
// content is what its digest says, and that can be reached: under full attention through blocks
// that are taken back too, in a sliding window also through holes, whose content is known from
// another window. Of one content in both tiers the primary block is taken. Every other stamp is
// invalid afterwards. Nobody may write the pools meanwhile but clients of the earlier run: what
// they write is not taken for what was stamped, unless they write it after it was looked at.
// Cost: reads every stamped slot.
Recovery Recover(PoolSet& pools, StampSet& stamps, const RecoveryOptions& options = {});

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RECOVERY_H_
