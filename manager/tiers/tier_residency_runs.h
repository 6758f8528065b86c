// The part of TierResidency for many blocks of one request. Inline, because a request calls it for
// hundreds of blocks.
#ifndef PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_
#define PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_

#include "manager/tiers/tier_residency.h"

namespace pagoda {

inline bool TierResidency::EndHoldOfParent(BlockId id, TenantId tenant) {
  Block& block = store_[id];
  const bool is_parent = block.refs == 1 && block.state() == BlockState::kCached &&
                         block.tier() == kPrimaryTier && tree_.primary_children(id) != 0 &&
                         !options_.sliding() && !slots_.has_disk();
  if (!is_parent) return false;
  block.refs = 0;
  counts_.accounts().EndHold(id, kPrimaryTier, tenant, 0);
  counts_.CountHeld(kPrimaryTier, -1);
  counts_.CountEvictable(id, kPrimaryTier, +1);
  return true;
}

inline void TierResidency::EnterTree(OperationScope& op, BlockId id, TenantId owner) {
  counts_.accounts().SetOwner(id, owner);
  candidates_.NotifyInserted(op, id);
}

inline bool TierResidency::CanReuse() const {
  return !options_.sliding() && !slots_.has_lower() && !counts_.accounts().any() && copies_.idle();
}

inline BlockId TierResidency::Reuse(OperationScope& op, BlockId id, BlockState state) {
  const BlockId above = tree_.parent(id).block();
  const BlockFacts victim = candidates_.Facts(op, id);
  journal_.NoteNothing(store_.slot(id));
  tree_.EraseEnd(id);
  counts_.Reuse(victim.priority);
  store_.Renew(id, state);
  recorder_.BlockTaken(options_.window, id, op.tenant);
  if (store_[above].refs != 0) return candidates_.Evicted(kPrimaryTier, victim, nullptr);
  // It has lost its only child.
  const BlockFacts unparked = candidates_.Facts(op, above);
  return candidates_.Evicted(kPrimaryTier, victim, &unparked);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_
