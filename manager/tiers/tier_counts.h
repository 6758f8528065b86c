// How many slots of each tier of one window are held, evictable or in transit, and which tenants
// are charged for them.
#ifndef PAGODA_MANAGER_TIERS_TIER_COUNTS_H_
#define PAGODA_MANAGER_TIERS_TIER_COUNTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "events/event.h"
#include "manager/accounts/tenants.h"
#include "manager/api/stats.h"
#include "manager/tiers/block_copies.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "manager/words/deferred_release_counts.h"
#include "manager/words/lists.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. Refuses nothing. The callers that change a block's slot or its holders
// count it here; TierSlots counts free slots and duplicates itself. Thread-compatible.
//
// Invariants
// 1. In each tier: free + evictable + held + duplicates + in transit = capacity (rule 5). Evictable
// slots are the nearest copies of cached blocks that nothing holds.
// 2. Pinned slots and slots with deferred releases are among the held ones, and are counted.
// 3. Evictable slots are also counted by the priority of their blocks.
// 4. The tenants' accounts are what TenantAccounts says.
class TierCounts {
 public:
  // `slots` and `copies` outlive the counts.
  TierCounts(const ResidencyContext& context, const TierSlots* slots, const BlockCopies* copies)
      : options_(context.options),
        store_(context.store),
        tree_(context.tree),
        slots_(*slots),
        copies_(*copies),
        accounts_(context.options.tenants, context.store.num_ids()),
        deferred_(context.store.num_ids()) {}

  // Primary blocks that can be taken now: free ones, and cached ones that nothing holds. For a
  // tenant, limited by its quota.
  uint32_t available() const {
    return slots_.free_slots(kPrimaryTier) + At(kPrimaryTier).evictable;
  }
  uint32_t available(TenantId tenant) const {
    return accounts_.any() ? std::min(available(), accounts_.Left(kPrimaryTier, tenant))
                           : available();
  }
  uint32_t evictable(Tier tier) const { return At(tier).evictable; }
  // Over all tiers.
  uint32_t held_blocks() const;
  uint32_t evictable_blocks() const;
  uint32_t pinned_blocks() const;
  const TenantAccounts& accounts() const { return accounts_; }
  TenantAccounts& accounts() { return accounts_; }
  TenantId owner(BlockId id) const { return accounts_.owner(id); }

  // --- One slot more or less: `change` is +1 or -1 ---

  // `tenant` has taken the block, which has a primary slot, and is its one holder.
  void CountTaken(BlockId id, TenantId tenant) {
    accounts_.SetOwner(id, tenant);
    accounts_.Hold(id, kPrimaryTier, tenant, 0);
    CountHeld(kPrimaryTier, +1);
  }
  void CountHeld(Tier tier, int change) { At(tier).held += static_cast<uint32_t>(change); }
  // The slot of the block, which its owner is charged for.
  void CountEvictable(BlockId id, Tier tier, int change) {
    Counts& at = At(tier);
    at.evictable += static_cast<uint32_t>(change);
    at.evictable_by_priority[store_[id].priority_value] += static_cast<uint32_t>(change);
    accounts_.CountCached(id, tier, change);
  }
  // The last holder of a cached primary block with this priority, which worked for `tenant`, has
  // released it: it was held, and is evictable.
  void EndHoldOfPrimary(BlockId id, Priority priority, TenantId tenant) {
    Counts& primary = At(kPrimaryTier);
    --primary.held;
    ++primary.evictable;
    ++primary.evictable_by_priority[priority.value()];
    if (!accounts_.any()) return;
    accounts_.EndHold(id, kPrimaryTier, tenant, 0);
    accounts_.CountCached(id, kPrimaryTier, +1);
  }
  void CountInTransit(Tier tier, int change) {
    At(tier).in_transit += static_cast<uint32_t>(change);
  }

  // --- A block that moves, or changes ---

  void MoveEvictable(BlockId id, Tier from, Tier to) {
    CountEvictable(id, from, -1);
    CountEvictable(id, to, +1);
  }
  // Does not count deferred releases: see CountDeferred().
  void MoveHeld(BlockId id, Tier from, Tier to);
  // An evictable block is about to get another priority.
  void MoveToPriority(BlockId id, Priority priority) {
    const Block& block = store_[id];
    PriorityCounts& counts = At(block.tier()).evictable_by_priority;
    --counts[block.priority_value];
    ++counts[priority.value()];
  }
  // Counts a primary block that had this priority as held instead of evictable. REQUIRES: the cache
  // has no tenants.
  void Reuse(Priority priority) {
    Counts& primary = At(kPrimaryTier);
    --primary.evictable;
    --primary.evictable_by_priority[priority.value()];
    ++primary.held;
  }

  // --- Why a block is held ---

  // Adds or removes one deferred release of the block. The caller counts the hold itself.
  void AddDeferred(BlockId id);
  void RemoveDeferred(BlockId id);
  uint32_t deferred(BlockId id) const { return deferred_.of(id); }
  // Counts the slot of a block with deferred releases, or no longer does.
  void CountDeferred(BlockId id, int change);
  // At least one pin holds the block, or none does any more. The caller counts the hold itself.
  void MarkPinned(BlockId id);
  void UnmarkPinned(BlockId id);

  // --- Numbers ---

  // Fills in what WindowStats says of the slots of each tier, and of pinned blocks.
  void AddStats(WindowStats* stats) const;
  void AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const;
  void SlotStates(Tier tier, uint32_t from, absl::Span<SlotState> states) const;
  // Stops the process unless invariant 1 holds by the counters. Cost: O(1).
  void CheckAccounting() const;

  // --- For tests (tier_counts_check.cc) ---

  // By block: the tenant of each hold. For a raw block, its session's tenant.
  using Holders = std::vector<std::vector<TenantId>>;
  // Stops the process if the counts disagree with the blocks or with `holders`.
  void CheckInvariants(const Holders& holders) const;
  // Stops the process unless so many slots of the tier are in transit.
  void CheckInTransit(Tier tier, uint32_t in_transit) const;

 private:
  // One tier. Counts are of its slots.
  struct Counts {
    uint32_t held = 0;
    uint32_t evictable = 0;
    uint32_t pinned = 0;    // Among the held ones.
    uint32_t deferred = 0;  // Held by a deferred release.
    uint32_t deferred_and_pinned = 0;
    uint32_t in_transit = 0;  // See TierSlots, invariant 1.
    PriorityCounts evictable_by_priority = {};
  };

  Counts& At(Tier tier) { return tiers_[tier.value()]; }
  const Counts& At(Tier tier) const { return tiers_[tier.value()]; }
  SlotState StateOf(SlotRef slot) const;
  void CheckSlotStates() const;
  void CheckAccounts(const Holders& holders) const;

  const ResidencyOptions& options_;
  BlockStore& store_;
  const PrefixTree& tree_;
  const TierSlots& slots_;
  const BlockCopies& copies_;
  std::array<Counts, kMaxTiers> tiers_;
  TenantAccounts accounts_;
  DeferredReleaseCounts deferred_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_COUNTS_H_
