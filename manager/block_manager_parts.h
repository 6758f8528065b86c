// The parts of BlockManager. Only block_manager*.cc include this.
#ifndef PAGODA_MANAGER_BLOCK_MANAGER_PARTS_H_
#define PAGODA_MANAGER_BLOCK_MANAGER_PARTS_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "manager/block_manager.h"
#include "manager/cache_reset.h"
#include "manager/capacity_checks.h"
#include "manager/copy_tracker.h"
#include "manager/deferred_releases.h"
#include "manager/event_recorder.h"
#include "manager/eviction_policy.h"
#include "manager/operation_runner.h"
#include "manager/operation_scope.h"
#include "manager/prefix_matcher.h"
#include "manager/prefix_pins.h"
#include "manager/raw_blocks.h"
#include "manager/running_sequences.h"
#include "manager/sequence_accounts.h"
#include "manager/session_endings.h"
#include "manager/session_table.h"
#include "manager/tenants.h"
#include "manager/window_set.h"

namespace pagoda {

// A part refers only to parts above it. One call goes the other way: through PinEnder a window
// tells the pins, which are below it, before a pinned block leaves its tree. So the windows are
// added once all parts exist.
struct BlockManager::Parts {
  Parts(Options from, TenantTable table, const CacheInfo& info);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // --- For tests: each call stops the process if the parts disagree ---
  void CheckInvariants() const;
  // Checks that tenants are charged exactly for the cost of their sequences and deferred releases.
  void CheckSequenceAccounts() const;

  const Options options;
  const TenantTable tenants;
  // The results of operations that callers fetch, and the deadlines of later operations.
  EventRecorder recorder;
  CopyTracker copies;
  FileLanes files;
  WriteBudget write_budget;
  std::vector<SlotChange> slot_changes;
  Deadlines deadlines;

  SequenceAccounts accounts;
  SessionTable sessions;
  WindowSet windows;
  // By window: one of its policies, which the window owns.
  std::vector<EvictionPolicy*> policies;
  CapacityChecks capacity;
  PrefixMatcher matcher;
  PrefixPins pins;
  DeferredReleases deferred;
  OperationRunner runner;
  RawBlocks raw_blocks;
  RunningSequences sequences;
  SessionEndings endings;
  CacheReset reset;

  // Orders backups in all windows, as far as the limits allow.
  void OrderBackups(OperationScope& op);

  uint64_t recovered_blocks = 0;
  size_t next_backups = 0;
  OperationCounters operations{.run = std::vector<uint64_t>(std::variant_size_v<OperationVariant>)};
};

inline uint32_t Permille(uint64_t blocks, uint32_t permille) {
  return static_cast<uint32_t>(blocks * permille / 1000);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_BLOCK_MANAGER_PARTS_H_
