// The part of TierResidency for many blocks of one request. Inline, because a request calls it for
// hundreds of blocks.
#ifndef PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_
#define PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_

#include "manager/tiers/tier_residency.h"

namespace pagoda {

inline bool TierResidency::EndHoldOfParent(BlockId id, TenantId tenant) {
  Block& block = store_[id];
  const bool is_parent = block.refs == 1 && block.state() == BlockState::kCached &&
                         block.tier() == Tier::kPrimary && tree_.primary_children(id) != 0 &&
                         !sliding() && !has_disk();
  if (!is_parent) return false;
  block.refs = 0;
  accounts_.EndHold(id, Tier::kPrimary, tenant, 0);
  --tiers_[kPrimary].held;
  CountEvictable(id, Tier::kPrimary, +1);
  return true;
}

inline void TierResidency::EnterTree(OperationScope& op, BlockId id, TenantId owner) {
  accounts_.SetOwner(id, owner);
  NotifyInserted(op, id);
}

inline bool TierResidency::CanReuse() const {
  return !sliding() && !has_lower() && !accounts_.any() && copies().idle();
}

inline BlockId TierResidency::FirstVictim() const {
  return OwnerOfVictim(Tier::kPrimary, *tiers_[kPrimary].default_tenant_policy);
}

inline BlockId TierResidency::Reuse(OperationScope& op, BlockId id, BlockState state) {
  TierState& primary = tiers_[kPrimary];
  const BlockId above = tree_.parent(id).block();
  const BlockFacts victim = Facts(op, id);
  NoteNothing(store_.slot(id));
  tree_.EraseEnd(id);
  --primary.evictable;
  --primary.evictable_by_priority[victim.priority.value()];
  store_.Renew(id, state);
  ++primary.held;
  recorder().BlockTaken(options_.window, id, op.tenant);
  EvictionPolicy& policy = *primary.default_tenant_policy;
  SlotIndex next;
  if (store_[above].refs == 0) {
    // It has lost its only child.
    const BlockFacts unparked = Facts(op, above);
    next = policy.Evicted(victim, &unparked);
  } else {
    next = policy.Evicted(victim, nullptr);
  }
  return next == kNoSlot ? kNoBlock : OwnerOf({Tier::kPrimary, next});
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_
