#include "manager/tiers/tier_moves.h"

#include "base/check.h"

namespace pagoda {

// --- Freeing slots ---

void TierMoves::FreeOneSlot(OperationScope& op, TenantId tenant) {
  const BlockId victim = candidates_.Victim(kPrimaryTier, tenant);
  PAGODA_CHECK(victim != kNoBlock, "rule 6: capacity is checked before it is taken");
  GiveUp(op, victim, RemovalReason::kEvicted);
}

void TierMoves::GiveUp(OperationScope& op, BlockId victim, RemovalReason reason) {
  if (slots_.has_lower() && MoveDown(op, victim, Why::kSlotNeeded) != Offloaded::kNoSpace) return;
  if (slots_.has_disk() && !slots_.HasCopyOnDisk(victim)) ++passed_over_;
  exit_.Evict(op, victim, reason);
}

// Takes a candidate out of its tier, to the nearest tier below that takes it. If that tier has a
// copy of the block, no bytes move. A copy farther below is no reason to pass a tier: otherwise a
// tier below would take hits from those above it.
TierMoves::Offloaded TierMoves::MoveDown(OperationScope& op, BlockId victim, Why why) {
  // A cut-off block is worth a slot only if it has blocks below it.
  const bool is_parent = !options_.sliding() && tree_.has_children(victim);
  if (tree_.IsCutOff(victim) && !is_parent) return Offloaded::kNoSpace;
  const Generation life = store_[victim].generation;
  const auto gone = [&] {
    return store_[victim].generation != life || store_[victim].state() != BlockState::kCached;
  };
  for (size_t t = slots_.below(store_[victim].tier()); t != TierSlots::kNoTier;
       t = slots_.below(Tier(t))) {
    const Tier tier(t);
    // To fall to the disk costs nothing later either.
    if (why == Why::kAhead && slots_.IsOnDisk(tier)) break;
    const SlotRef lower = slots_.Lower(store_.slot(victim));
    if (lower.slot != kNoSlot && lower.tier == tier) {
      // The copy has its slot already, and is charged from now on.
      const bool charged = slots_.IsOnDisk(tier) ? disk_copies_.MakeQuota(op, victim)
                                                 : FreeSlotFor(op, victim, tier);
      if (gone()) return Offloaded::kGone;
      if (charged) {
        ++freely_evicted_blocks_[store_[victim].tier_value];
        FallTo(op, victim, lower);
        return Offloaded::kMoved;
      }
      // A copy that cannot be charged cannot take the block.
      if (slots_.IsOnDisk(tier)) {
        disk_copies_.Drop(op, victim);
      } else {
        LoseDuplicate(victim, lower);
      }
    } else if (!slots_.IsOnDisk(tier)) {
      const auto wants = [&] { return why == Why::kAsked || Wants(tier, victim); };
      if (wants() && (why == Why::kAsked || !IsWorthLess(op, victim, tier))) {
        const bool has_slot = FreeSlotFor(op, victim, tier);
        if (gone()) return Offloaded::kGone;
        // The displaced block may have been the victim's last child there.
        if (has_slot && wants()) {
          MoveTo(op, victim, {tier, TakeSlot(tier)});
          return Offloaded::kMoved;
        }
      }
    }
    if (MustGoTo(tier, victim)) break;  // No block lies below its child.
  }
  return Offloaded::kNoSpace;
}

// Whether the block may fall there: its children must not lie in a nearer tier than it.
bool TierMoves::CanFallTo(BlockId id, SlotRef lower) const {
  if (options_.sliding()) return true;
  return !tree_.has_near_children(id, Tier(lower.tier.value() - 1));
}

// Rule 14.
bool TierMoves::Wants(Tier tier, BlockId victim) const {
  if (MustGoTo(tier, victim)) return true;
  if (tree_.IsCutOff(victim)) return false;
  const TenantAccounts& accounts = counts_.accounts();
  if (accounts.any() && accounts.QuotaOf(tier, accounts.owner(victim)) == 0) return false;
  return store_[victim].priority() >= options_.min_priority(tier);
}

// Whether a child of a candidate of a nearer tier lies there: it would be unreachable without the
// victim. Until then the children of the victim are no reason to displace other blocks.
bool TierMoves::MustGoTo(Tier tier, BlockId victim) const {
  return !options_.sliding() && tree_.has_near_children(victim, tier);
}

// Whether the tier can take a block of that owner without a loss.
bool TierMoves::HasSlotFor(Tier tier, TenantId owner) const {
  if (slots_.free_slots(tier) + slots_.duplicates(tier) == 0) return false;
  if (!counts_.accounts().AtQuota(tier, owner)) return true;
  return leaving_.has_value() && leaving_->tier == tier && leaving_->owner == owner &&
         !counts_.accounts().AboveQuota(tier, owner);
}

// Whether the block that it would displace in the full tier is worth more, says that block's
// policy.
bool TierMoves::IsWorthLess(const OperationScope& op, BlockId comes, Tier tier) const {
  const TenantId owner = counts_.owner(comes);
  if (!candidates_.follows_contents(tier) || MustGoTo(tier, comes) || HasSlotFor(tier, owner))
    return false;
  const BlockId displaced = candidates_.Victim(tier, owner);
  if (displaced == kNoBlock || store_[displaced].priority() != store_[comes].priority() ||
      tree_.IsCutOff(displaced)) {
    return false;
  }
  return candidates_.policy(tier, displaced)
      .Keeps(candidates_.Facts(op, displaced), candidates_.Facts(op, comes), store_[comes].tier());
}

// Returns whether TakeSlot() has a slot for the block afterwards. If needed, offloads a victim or
// evicts it. A victim of higher priority gives up its slot only to a block that must be offloaded.
bool TierMoves::FreeSlotFor(OperationScope& op, BlockId comes, Tier tier) {
  const TenantId owner = counts_.owner(comes);
  if (HasSlotFor(tier, owner)) return true;
  const BlockId displaced = candidates_.Victim(tier, owner);
  if (displaced == kNoBlock) return false;
  if (store_[displaced].priority() > store_[comes].priority() && !MustGoTo(tier, comes) &&
      !tree_.IsCutOff(displaced)) {
    return false;
  }
  GiveUp(op, displaced, RemovalReason::kDisplaced);
  return true;
}

// --- Moving ---

SlotIndex TierMoves::TakeSlot(Tier tier) {
  if (slots_.free_slots(tier) == 0) {
    PAGODA_CHECK(slots_.duplicates(tier) > 0, "rule 6: capacity is checked before it is taken");
    const SlotRef oldest = slots_.OldestDuplicate(tier);
    LoseDuplicate(slots_.OwnerOf(oldest), oldest);
  }
  return slots_.Take(tier);
}

void TierMoves::LoseDuplicate(BlockId id, SlotRef slot) {
  const TierSet before = slots_.LowerTiers(id);
  slots_.Unlink(id, slot);
  slots_.Release(slot);
  if (tree_.IsCutOff(id)) return;
  const Tier tier = store_[id].tier();
  recorder_.CopiesChanged(options_.window, tree_.Named(id), {tier, tier},
                          {before, slots_.LowerTiers(id)}, counts_.owner(id));
}

void TierMoves::ChangeTier(OperationScope& op, BlockId id, SlotRef slot, OldSlot old_slot) {
  const Block& block = store_[id];
  const SlotRef old = store_.slot(id);
  const bool cached = block.state() == BlockState::kCached;
  const TierSet lower_before = cached ? slots_.LowerTiers(id) : TierSet();
  slots_.SetNearest(id, slot, cached ? old_slot : OldSlot::kFree);
  if (block.refs != 0) counts_.accounts().Move(id, old.tier, slot.tier);
  if (!cached) return;
  const bool is_cut_off = tree_.IsCutOff(id);
  journal_.NoteNothing(old);
  if (!is_cut_off) journal_.NoteContent(id);
  tree_.MoveChild(id, old.tier, slot.tier);
  // The disk's policies know a copy on disk as long as it exists.
  if (slots_.IsOnDisk(old.tier)) {
    candidates_.NotifyInheritedFromDisk(op, id, old);
  } else {
    candidates_.NotifyRemoved(op, id, old);
  }
  if (slots_.IsOnDisk(slot.tier)) {
    candidates_.NotifyInheritedOnDisk(op, id, slot.slot, old);
  } else {
    candidates_.NotifyInserted(op, id);
  }
  if (slots_.has_disk()) candidates_.ListOnDisk(op, id);
  if (is_cut_off) return;
  recorder_.CopiesChanged(options_.window, tree_.Named(id), {old.tier, slot.tier},
                          {lower_before, slots_.LowerTiers(id)}, counts_.owner(id));
}

// Offloads a candidate by a copy to a slot that was taken.
void TierMoves::MoveTo(OperationScope& op, BlockId victim, SlotRef to) {
  // Nothing reads a cut-off block again: it changes its slot and is not copied.
  if (!tree_.IsCutOff(victim)) {
    copies_.Order(victim, store_.slot(victim), to);
    ++offloaded_blocks_;
  }
  FallTo(op, victim, to);
}

// Moves a candidate to `to`, where its bytes are or will be.
void TierMoves::FallTo(OperationScope& op, BlockId victim, SlotRef to) {
  const SlotRef from = store_.slot(victim);
  candidates_.policy(from.tier, victim).Withdrawn(candidates_.Facts(op, victim));
  // A copy on disk is as recent as the block from now on.
  if (slots_.IsOnDisk(to.tier)) candidates_.UnlistOnDisk(op, victim);
  ChangeTier(op, victim, to, OldSlot::kFree);
  counts_.MoveEvictable(victim, from.tier, to.tier);
  candidates_.List(op, victim);
  candidates_.ChildLeft(op, tree_.parent(victim), from.tier);
}

bool TierMoves::LoseNearest(OperationScope& op, BlockId id) {
  const SlotRef lower = slots_.Lower(store_.slot(id));
  const bool falls = store_[id].refs == 0 && candidates_.IsCandidate(id) && lower.slot != kNoSlot &&
                     CanFallTo(id, lower) &&
                     !counts_.accounts().AtQuota(lower.tier, counts_.owner(id));
  if (falls) FallTo(op, id, lower);
  return falls;
}

// If the block's lower slot is the only place for the primary tier's victim, the two swap. The
// spare slot takes the victim, and the block's old slot becomes the spare.
void TierMoves::Onboard(OperationScope& op, BlockId id) {
  const SlotRef from = store_.slot(id);
  const TenantId owner = counts_.owner(id);
  bool lent = false;
  if (slots_.free_slots(kPrimaryTier) == 0 || counts_.accounts().AtQuota(kPrimaryTier, owner)) {
    lent = slots_.free_slots(from.tier) + slots_.duplicates(from.tier) == 0;
    if (lent) slots_.LendSpare(from.tier);
    leaving_ = {.tier = from.tier, .owner = owner};
    FreeOneSlot(op, owner);
    leaving_.reset();
    if (lent && slots_.free_slots(from.tier) != 0) {
      slots_.TakeSpare(from.tier);
      lent = false;
    }
  }
  const SlotRef to{kPrimaryTier, TakeSlot(kPrimaryTier)};
  const Block& block = store_[id];
  op.WaitFor(copies_.Order(id, from, to));
  const bool cached = block.state() == BlockState::kCached;
  if (block.deferred) counts_.CountDeferred(id, -1);
  ChangeTier(op, id, to, lent ? OldSlot::kFree : OldSlot::kDuplicate);
  if (block.deferred) counts_.CountDeferred(id, +1);
  // It left the tree in a lower tier. Its holders are all charged here only now.
  if (!cached) GiveToHolder(id);
  if (lent) slots_.TakeSpare(from.tier);
  PAGODA_CHECK(block.refs > 0 && cached == (block.state() == BlockState::kCached),
               "an onboarded block is held");
  counts_.MoveHeld(id, from.tier, to.tier);
  ++onboarded_blocks_;
}

// For subscribers that follow one tenant: a change of owner frees the block and takes it again.
void TierMoves::GiveToHolder(BlockId id) {
  const TenantId before = counts_.owner(id);
  counts_.accounts().GiveToHolder(id);
  const TenantId after = counts_.owner(id);
  if (after == before) return;
  recorder_.BlockFreed(options_.window, id, before);
  recorder_.BlockTaken(options_.window, id, after);
}

TierMoves::Offloaded TierMoves::Offload(OperationScope& op, BlockId id) {
  const uint64_t copied = offloaded_blocks_;
  if (slots_.has_disk()) backups_.Released(op, id);
  const Offloaded offloaded = MoveDown(op, id, Why::kAsked);
  if (offloaded_blocks_ != copied) op.WaitFor(copies_.last());
  // The copy to which it fell may still be under way.
  if (offloaded == Offloaded::kMoved) copies_.WaitToRead(op, id);
  return offloaded;
}

uint32_t TierMoves::OffloadAhead(OperationScope& op, Tier tier, uint32_t free_target,
                                 uint32_t max_blocks) {
  uint32_t moved = 0;
  const auto free = [&] { return slots_.free_slots(tier) + slots_.duplicates(tier); };
  while (slots_.below(tier) != TierSlots::kNoTier && moved < max_blocks && free() < free_target) {
    const BlockId victim = candidates_.Victim(tier, kDefaultTenant);
    // Dropping a block ahead of need gains nothing. Moving a block that a reset will free does not
    // either.
    if (victim == kNoBlock || tree_.IsCutOff(victim)) break;
    const Offloaded offloaded = MoveDown(op, victim, Why::kAhead);
    if (offloaded == Offloaded::kNoSpace) break;
    if (offloaded == Offloaded::kMoved) ++moved;
  }
  return moved;
}

void TierMoves::AddStats(WindowStats* stats) const {
  stats->counters.offloaded_blocks = offloaded_blocks_;
  stats->counters.onboarded_blocks = onboarded_blocks_;
  for (const uint64_t blocks : freely_evicted_blocks_) {
    stats->counters.freely_evicted_blocks += blocks;
  }
  stats->freely_evicted_blocks = freely_evicted_blocks_;
  stats->disk.passed_over = passed_over_;
}

}  // namespace pagoda
