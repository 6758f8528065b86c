// Who holds the blocks of one window, and how long a block that nothing holds is worth keeping.
#ifndef PAGODA_MANAGER_WINDOW_BLOCK_HOLDS_H_
#define PAGODA_MANAGER_WINDOW_BLOCK_HOLDS_H_

#include <deque>
#include <optional>

#include "manager/accounts/session_table.h"
#include "manager/services/operation_scope.h"
#include "manager/window/passed_blocks.h"
#include "manager/window/window_counts.h"
#include "manager/window/window_part.h"
#include "manager/words/retention.h"
#include "pools/types.h"

namespace pagoda {

// Neither adds blocks to the tree nor takes them out. Thread-compatible.
//
// Invariants
// 1. A hold ends once: at once, or as a deferred release, which the residency counts as a holder
// until then. Sessions and quarantines keep the deferred releases.
// 2. Block::timed is set for the cached blocks that have a duration. Their clocks run while nothing
// holds them, and Deadlines knows the next one that ends.
// 3. Tenants share the default tenant's blocks, so only the default tenant may lower their
// retention. A tenant can raise the retention of any block that it uses.
// 4. An evictable block that passed() marks is the next to be evicted, as its policy sees it.
class BlockHolds final : private WindowPart {
 public:
  BlockHolds(const WindowFloor& floor, WindowCounts& counts);

  // --- Holding and releasing ---

  // `tenant`: the one that the holder works for.
  void Hold(OperationScope& op, BlockId id, TenantId tenant);
  void EndHold(OperationScope& op, BlockId id, TenantId tenant);
  // Ends the hold, like EndHold. If the operation defers releases, the hold ends when the client
  // completes the step.
  void Release(OperationScope& op, BlockId id, TenantId tenant);
  // Holds the block until the session's step is complete.
  void HoldUntilStep(BlockId id, TenantId tenant, Session& session);
  // A deferred release of the block for `tenant` ends.
  void EndDeferredRelease(OperationScope& op, BlockId id, TenantId tenant);
  // Holds every free primary slot by a deferred release.
  void HoldFree(OperationScope& op, std::deque<DeferredRelease>& deferred);
  // Whether the block was freed, and only waits for the end of a step.
  bool OnlyDeferred(BlockId id) const {
    return store_[id].state() == BlockState::kPrivate && store_[id].deferred &&
           residency_.counts().deferred(id) == store_[id].refs;
  }

  // --- Retention ---

  BlockRetention RetentionAt(BlockId id) const;
  // Whether a wish of the tenant may lower the block's retention.
  bool MayLower(BlockId id, TenantId tenant) const {
    return tenant == kDefaultTenant || accounts().owner(id) == tenant;
  }
  void SetRetention(OperationScope& op, BlockId id, const BlockRetention& retention);
  // Applies the tenant's wish if it counts. Returns whether it does.
  bool ApplyRetention(OperationScope& op, BlockId id, const BlockRetention& wish, TenantId tenant);
  // Raises the block to a retention that a block with the same first content had.
  void RaiseRetention(OperationScope& op, BlockId id, const std::optional<BlockRetention>& had);
  // The block leaves the tree, and its duration ends with that. Few blocks are timed. An
  // unconditional write of the bit would delay the count's read of the priority, which lies in the
  // same word.
  void ForgetClock(BlockId id) {
    Block& block = store_[id];
    if (!block.timed) return;
    expiries_.Forget(id);
    block.timed = 0;
  }
  bool has_duration(BlockId id) const { return expiries_.has_duration(id); }
  // Ends priorities whose duration has run out, at most kMaxEndsByTime.
  void ExpirePriorities(OperationScope& op);

  // The blocks that a sliding window has passed.
  PassedBlocks& passed() { return passed_; }

 private:
  // The deferred release takes over the hold.
  void DeferRelease(BlockId id, TenantId tenant, Session& session);
  void SetPriority(OperationScope& op, BlockId id, Priority priority);
  void StartClock(OperationScope& op, BlockId id);

  WindowCounts& counts_;
  ExpiryQueue expiries_;
  PassedBlocks passed_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_BLOCK_HOLDS_H_
