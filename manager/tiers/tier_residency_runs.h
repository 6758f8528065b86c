// The part of TierResidency for many blocks of one request. Inline, because a request calls it for
// hundreds of blocks.
#ifndef PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_
#define PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_

#include "manager/tiers/tier_residency.h"

namespace pagoda {

inline bool TierResidency::CanEndHoldsOfParents() const {
  return !options_.sliding() && !slots_.has_disk();
}

inline bool TierResidency::EndHoldOfParent(BlockId id, TenantId tenant) {
  Block& block = store_[id];
  const bool is_parent = block.refs == 1 && block.state() == BlockState::kCached &&
                         block.tier() == kPrimaryTier && tree_.primary_children(id) != 0;
  if (!is_parent) return false;
  block.refs = 0;
  counts_.EndHoldOfPrimary(id, block.priority(), tenant);
  return true;
}

inline void TierResidency::EnterTree(const BlockFacts& facts) {
  counts_.accounts().SetOwner(facts.block, facts.tenant);
  candidates_.NotifyInserted(kPrimaryTier, facts);
}

inline bool TierResidency::CanReuse() const {
  return !options_.sliding() && !slots_.has_lower() && !counts_.accounts().any() && copies_.idle();
}

inline BlockId TierResidency::Reuse(OperationScope& op, BlockId id, BlockState state) {
  const auto facts = [&](BlockId of) {
    const Block& block = store_[of];
    return TierCandidates::FactsOf(op, of, block, block.slot, tree_, kDefaultTenant);
  };
  const BlockId above = tree_.parent(id).block();
  const BlockFacts victim = facts(id);
  journal_.NoteNothing(store_.slot(id));
  tree_.EraseEnd(id);
  counts_.Reuse(victim.priority);
  store_.Renew(id, state);
  recorder_.BlockTaken(options_.window, id, op.tenant);
  if (store_[above].refs != 0) return candidates_.Evicted(kPrimaryTier, victim, nullptr);
  // It has lost its only child.
  const BlockFacts unparked = facts(above);
  return candidates_.Evicted(kPrimaryTier, victim, &unparked);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_RESIDENCY_RUNS_H_
