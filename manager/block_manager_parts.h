// The parts of BlockManager. Only block_manager*.cc include this.
#ifndef PAGODA_MANAGER_BLOCK_MANAGER_PARTS_H_
#define PAGODA_MANAGER_BLOCK_MANAGER_PARTS_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "manager/accounts/sequence_accounts.h"
#include "manager/accounts/session_table.h"
#include "manager/accounts/tenants.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/cache_reset.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/capacity_checks.h"
#include "manager/sequences/deferred_releases.h"
#include "manager/sequences/operation_runner.h"
#include "manager/sequences/prefix_matcher.h"
#include "manager/sequences/prefix_pins.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "manager/services/copy_tracker.h"
#include "manager/services/event_recorder.h"
#include "manager/services/operation_scope.h"
#include "manager/warm_restart.h"
#include "manager/window/window_set.h"

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
  OrderLanes lanes;
  CopyTracker copies;
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
  RunningSequences sequences;
  RawBlocks raw_blocks;
  CachedPrefixes prefixes;
  SessionEndings endings;
  CacheReset reset;
  WarmRestart restart;
  CacheLists lists;

  // A copy in the window has ended.
  void EndCopy(OperationScope& op, WindowBlockManager& window, Ticket ticket,
               const absl::Status& status);
  // Orders backups in all windows, as far as the limits allow.
  void OrderBackups(OperationScope& op);

  size_t next_backups = 0;
  OperationCounters operations{.run = std::vector<uint64_t>(std::variant_size_v<OperationVariant>)};
};

inline uint32_t Permille(uint64_t blocks, uint32_t permille) {
  return static_cast<uint32_t>(blocks * permille / 1000);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_BLOCK_MANAGER_PARTS_H_
