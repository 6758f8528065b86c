// The blocks of one attention window: hands them out, finds them by content, takes them back, moves
// them between tiers and evicts them.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_BLOCK_MANAGER_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_BLOCK_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "manager/accounts/tenants.h"
#include "manager/api/stats.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/tier_residency.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "manager/window/block_holds.h"
#include "manager/window/cached_blocks.h"
#include "manager/window/prefix_match.h"
#include "manager/window/publishable_prefixes.h"
#include "manager/window/window_counts.h"
#include "manager/window/window_part.h"
#include "manager/window/window_pins.h"
#include "manager/window/window_prefixes.h"
#include "manager/window/window_raw_blocks.h"
#include "manager/window/window_restore.h"
#include "manager/window/window_scans.h"
#include "manager/window/window_sequences.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

// Owns the parts of a window, each of which keeps some of its invariants (see WindowPart). A caller
// goes to the part that it means: window.sequences().Grow(...).
//
// A window carries out changes and does not decide on them. Before the caller (BlockManager)
// changes a window, it has checked the arguments, and in every window that enough blocks are
// available. Records every change of the tree. Thread-compatible.
//
// Invariants
// 1. A block's state is one of BlockState's. A block that nothing holds is free, cached or a hole.
// 2. TierResidency keeps the place and the holders of each block, with its invariants.
// 3. CachedBlocks keeps the tree whole, WindowPins the pins, WindowSequences the tables.
class WindowBlockManager final {
 public:
  using Options = WindowOptions;
  using Policies = TierResidency::Policies;

  // Everything that `services` names outlives the manager.
  WindowBlockManager(const Options& options, Policies policies, const CoreServices& services);
  WindowBlockManager(const WindowBlockManager&) = delete;
  WindowBlockManager& operator=(const WindowBlockManager&) = delete;

  // --- The parts ---

  BlockHolds& holds() { return holds_; }
  WindowPins& pins() { return pins_; }
  const WindowPins& pins() const { return pins_; }
  PublishablePrefixes& publishable() { return publishable_; }
  CachedBlocks& cached() { return cached_; }
  const CachedBlocks& cached() const { return cached_; }
  WindowPrefixes& prefixes() { return prefixes_; }
  const WindowPrefixes& prefixes() const { return prefixes_; }
  WindowSequences& sequences() { return sequences_; }
  WindowRawBlocks& raw_blocks() { return raw_blocks_; }
  const WindowRawBlocks& raw_blocks() const { return raw_blocks_; }
  WindowRestore& restore() { return restore_; }
  const WindowScans& scans() const { return scans_; }

  // --- The window as a whole ---

  WindowSize window() const { return options_.window; }
  uint32_t index() const { return options_.index; }
  bool sliding() const { return options_.sliding(); }
  uint32_t num_ids() const { return store_.num_ids(); }
  BlockHandle handle(BlockId id) const { return store_.handle(id); }
  // REQUIRES: the block is in the tree.
  BlockHash hash(BlockId id) const { return tree_.hash(id); }
  uint32_t capacity(Tier tier = kPrimaryTier) const { return options_.tiers[tier.value()].blocks; }
  // Primary blocks that can be taken now: free ones, and cached ones that nothing holds. For a
  // tenant, limited by its quota.
  uint32_t available() const { return residency_.counts().available(); }
  uint32_t available(TenantId tenant) const { return residency_.counts().available(tenant); }
  // Primary blocks that the tenant may hold in addition, and in total; kNoQuota: any number.
  uint32_t QuotaLeft(TenantId tenant) const {
    return residency_.counts().accounts().Left(kPrimaryTier, tenant);
  }
  uint32_t Quota(TenantId tenant) const {
    return residency_.counts().accounts().QuotaOf(kPrimaryTier, tenant);
  }
  // The needs of `blocks` fresh blocks.
  BlockNeeds NeedsOf(uint64_t blocks, TenantId tenant) const {
    return {.pool = {blocks, available()}, .quota = {blocks, QuotaLeft(tenant)}};
  }
  // Blocks of all tiers that a sequence, a session, a pin or a deferred release holds.
  uint32_t held_blocks() const { return residency_.counts().held_blocks(); }
  // Ends priorities and fetches whose time is over, at most kMaxEndsByTime priorities.
  void Expire(OperationScope& op);
  WindowStats Stats() const;

  // --- The tiers: see TierResidency ---

  // Offloads victims until `free_target` blocks of the tier are free, at most `max_blocks`.
  uint32_t OffloadAhead(OperationScope& op, Tier tier, uint32_t free_target, uint32_t max_blocks) {
    return residency_.moves().OffloadAhead(op, tier, free_target, max_blocks);
  }
  void AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const {
    residency_.counts().AddUses(tenant, uses);
  }
  void SlotStates(Tier tier, uint32_t from, absl::Span<SlotState> states) const {
    residency_.counts().SlotStates(tier, from, states);
  }
  bool has_disk() const { return residency_.slots().has_disk(); }
  void OrderBackups(OperationScope& op, uint32_t max_blocks) {
    residency_.backups().OrderBackups(op, max_blocks);
  }
  void CopyEnded(OperationScope& op, Ticket ticket, bool ok) {
    residency_.backups().CopyEnded(op, ticket, ok);
  }
  void FetchEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
    residency_.fetches().FetchEnded(op, ticket, status);
  }
  void BackupEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
    residency_.backups().BackupEnded(op, ticket, status);
  }
  Ticket OrderErase(Order::Kind kind) { return residency_.backups().OrderErase(kind); }
  // Stops the process unless rule 5 holds by the counters. Cost: O(1).
  void CheckAccounting() const { residency_.counts().CheckAccounting(); }

  // --- For tests ---

  // By block: the tenant of each hold. For a raw block, its session's tenant.
  using Holders = TierResidency::Holders;
  // Stops the process if the arrays disagree with `holders` or with each other.
  void CheckInvariants(const Holders& holders) const;

 private:
  WindowFloor floor() { return {options_, services_, store_, tree_, residency_}; }
  void CheckBlock(BlockId id, size_t num_holders) const;

  const Options options_;
  const CoreServices services_;
  BlockStore store_;
  PrefixTree tree_;
  TierResidency residency_;
  // Each part names only parts above it in this list.
  WindowCounts counts_;
  BlockHolds holds_;
  WindowPins pins_;
  PublishablePrefixes publishable_;
  CachedBlocks cached_;
  WindowPrefixes prefixes_;
  WindowSequences sequences_;
  WindowRawBlocks raw_blocks_;
  WindowRestore restore_;
  WindowScans scans_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_BLOCK_MANAGER_H_
