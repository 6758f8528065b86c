// The part of TierResidency that frees slots and moves blocks between tiers.
#include <utility>

#include "base/check.h"
#include "manager/tiers/tier_residency.h"

namespace pagoda {

// --- Freeing slots ---

// The block that gives up its slot for a block of `tenant`. At its quota the tenant gives up a
// block of its own. Otherwise the tenant with the most blocks for its share does. kNoBlock if there
// is no candidate.
BlockId TierResidency::Victim(Tier tier, TenantId tenant) const {
  if (!accounts_.any()) return OwnerOfVictim(tier, *At(tier).default_tenant_policy);
  const auto& policies = At(tier).policies;
  if (accounts_.AtQuota(tier, tenant)) return OwnerOfVictim(tier, *policies[tenant.value()]);
  SlotIndex victim = kNoSlot;
  TenantId gives;
  const auto num_tenants = static_cast<uint16_t>(policies.size());
  for (uint16_t i = 0; i < num_tenants; ++i) {
    // The accounts are checked first: they lie side by side, and few tenants pass.
    if (victim != kNoSlot && !accounts_.GivesBefore(tier, TenantId{i}, gives)) continue;
    const SlotIndex own = policies[i]->Victim();
    if (own == kNoSlot) continue;
    victim = own;
    gives = TenantId{i};
  }
  return victim == kNoSlot ? kNoBlock : OwnerOf({tier, victim});
}

// Frees at least one primary slot that `tenant` may have. REQUIRES: there is a candidate.
void TierResidency::FreeOneSlot(OperationScope& op, TenantId tenant) {
  const BlockId victim = Victim(Tier::kPrimary, tenant);
  PAGODA_CHECK(victim != kNoBlock, "rule 6: capacity is checked before it is taken");
  if (has_lower() && MoveDown(op, victim, Why::kSlotNeeded) != Offloaded::kNoSpace) return;
  CountPassedOver(victim);
  exit_.Evict(op, victim, RemovalReason::kEvicted);
}

// Takes a candidate out of its tier, to the nearest tier below that takes it. If that tier has a
// copy of the block, no bytes move. A copy farther below is no reason to pass a tier: otherwise a
// tier below would take hits from those above it.
TierResidency::Offloaded TierResidency::MoveDown(OperationScope& op, BlockId victim, Why why) {
  // A cut-off block is worth a slot only if it has blocks below it.
  const bool is_parent = !sliding() && tree_.has_children(victim);
  if (tree_.IsCutOff(victim) && !is_parent) return Offloaded::kNoSpace;
  const Generation life = store_[victim].generation;
  const auto gone = [&] {
    return store_[victim].generation != life || store_[victim].state() != BlockState::kCached;
  };
  for (size_t t = At(store_[victim].tier()).below; t != kNoTier; t = tiers_[t].below) {
    const auto tier = static_cast<Tier>(t);
    // To fall to the disk costs nothing later either.
    if (why == Why::kAhead && IsOnDisk(tier)) break;
    const SlotRef lower = Lower(store_.slot(victim));
    if (lower.slot != kNoSlot && lower.tier == tier) {
      // The copy has its slot already, and is charged from now on.
      const bool charged =
          IsOnDisk(tier) ? MakeQuotaOnDisk(op, victim) : FreeSlotFor(op, victim, tier);
      if (gone()) return Offloaded::kGone;
      if (charged) {
        ++At(store_[victim].tier()).freely_evicted_blocks;
        FallTo(op, victim, lower);
        return Offloaded::kMoved;
      }
      // A copy that cannot be charged cannot take the block.
      if (IsOnDisk(tier)) {
        DropOnDisk(op, victim);
      } else {
        DropDuplicate(victim, lower);
      }
    } else if (!IsOnDisk(tier)) {
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
bool TierResidency::CanFallTo(BlockId id, SlotRef lower) const {
  if (sliding()) return true;
  return !tree_.has_near_children(id, static_cast<Tier>(static_cast<size_t>(lower.tier) - 1));
}

// Rule 14.
bool TierResidency::Wants(Tier tier, BlockId victim) const {
  if (MustGoTo(tier, victim)) return true;
  if (tree_.IsCutOff(victim)) return false;
  if (accounts_.any() && accounts_.QuotaOf(tier, accounts_.owner(victim)) == 0) return false;
  return store_[victim].priority() >= At(tier).min_priority;
}

// Whether a child of a candidate of a nearer tier lies there: it would be unreachable without the
// victim. Until then the children of the victim are no reason to displace other blocks.
bool TierResidency::MustGoTo(Tier tier, BlockId victim) const {
  return !sliding() && tree_.has_near_children(victim, tier);
}

// Whether the tier can take a block of that owner without a loss.
bool TierResidency::HasSlotFor(Tier tier, TenantId owner) const {
  if (free_slots(tier) + At(tier).duplicates.size() == 0) return false;
  if (!accounts_.AtQuota(tier, owner)) return true;
  return leaving_.has_value() && leaving_->tier == tier && leaving_->owner == owner &&
         !accounts_.AboveQuota(tier, owner);
}

// Whether the block that it would displace in the full tier is worth more, says that block's
// policy.
bool TierResidency::IsWorthLess(const OperationScope& op, BlockId comes, Tier tier) const {
  const TenantId owner = accounts_.owner(comes);
  if (!At(tier).follows_contents || MustGoTo(tier, comes) || HasSlotFor(tier, owner)) return false;
  const BlockId displaced = Victim(tier, owner);
  if (displaced == kNoBlock || store_[displaced].priority() != store_[comes].priority() ||
      tree_.IsCutOff(displaced)) {
    return false;
  }
  return policy(tier, displaced)
      .Keeps(Facts(op, displaced), Facts(op, comes), store_[comes].tier());
}

// Returns whether TakeSlot() has a slot for the block afterwards. If needed, offloads a victim or
// evicts it. A victim of higher priority gives up its slot only to a block that must be offloaded.
bool TierResidency::FreeSlotFor(OperationScope& op, BlockId comes, Tier tier) {
  const TenantId owner = accounts_.owner(comes);
  if (HasSlotFor(tier, owner)) return true;
  const BlockId displaced = Victim(tier, owner);
  if (displaced == kNoBlock) return false;
  if (store_[displaced].priority() > store_[comes].priority() && !MustGoTo(tier, comes) &&
      !tree_.IsCutOff(displaced)) {
    return false;
  }
  if (MoveDown(op, displaced, Why::kSlotNeeded) == Offloaded::kNoSpace) {
    CountPassedOver(displaced);
    exit_.Evict(op, displaced, RemovalReason::kDisplaced);
  }
  return true;
}

// --- Moving ---

// REQUIRES: HasSlotFor() the tier.
SlotIndex TierResidency::TakeSlot(Tier tier) {
  TierState& at = At(tier);
  if (at.slots.free() == 0) {
    PAGODA_CHECK(at.duplicates.size() > 0, "rule 6: capacity is checked before it is taken");
    const SlotIndex oldest = at.duplicates.front();
    DropDuplicate(at.slots.owner(oldest), {tier, oldest});
  }
  return at.slots.Take();
}

TierSet TierResidency::LowerTiers(BlockId id) const {
  TierSet tiers;
  if (!OwnsSlot(store_[id].state())) return tiers;
  for (SlotRef slot = Lower(store_.slot(id)); slot.slot != kNoSlot; slot = Lower(slot)) {
    tiers.Add(slot.tier);
  }
  return tiers;
}

SlotRef TierResidency::CompleteCopy(BlockId id, TierSet tiers) const {
  SlotRef slot = OwnsSlot(store_[id].state()) ? store_.slot(id) : SlotRef{.slot = kNoSlot};
  for (; slot.slot != kNoSlot; slot = Lower(slot)) {
    if (tiers.contains(slot.tier) && copies().Arrival(options_.index, slot) == Ticket{}) break;
  }
  return slot;
}

void TierResidency::DropDuplicate(BlockId id, SlotRef slot) {
  const TierSet before = LowerTiers(id);
  SlotRef above = store_.slot(id);
  while (Lower(above) != slot) {
    above = Lower(above);
    PAGODA_CHECK(above.slot != kNoSlot, "a duplicate is one of its block's copies");
  }
  At(above.tier).slots.SetLower(above.slot, Lower(slot));
  At(slot.tier).duplicates.Remove(slot.slot);
  Release(slot);
  if (tree_.IsCutOff(id)) return;
  const Tier tier = store_[id].tier();
  recorder().CopiesChanged(options_.window, tree_.Named(id), {tier, tier}, {before, LowerTiers(id)},
                           accounts_.owner(id));
}

// Called for a block that leaves the tree.
void TierResidency::DropDuplicates(BlockId id) {
  const SlotRef nearest = store_.slot(id);
  for (SlotRef slot = Lower(nearest); slot.slot != kNoSlot;) {
    const SlotRef next = Lower(slot);
    At(slot.tier).duplicates.Remove(slot.slot);
    Release(slot);
    slot = next;
  }
  At(nearest.tier).slots.SetLower(nearest.slot, {Tier::kPrimary, kNoSlot});
}

// Makes `slot` the block's nearest copy: a slot taken for it, or its duplicate's. The old slot is
// free or a duplicate afterwards.
void TierResidency::ChangeTier(OperationScope& op, BlockId id, SlotRef slot, OldSlot old_slot) {
  Block& block = store_[id];
  const SlotRef old = store_.slot(id);
  const bool cached = block.state() == BlockState::kCached;
  const TierSet lower_before = cached ? LowerTiers(id) : TierSet();
  const SlotRef lower = Lower(old);
  const bool keeps_old = old_slot == OldSlot::kDuplicate && cached;
  if (keeps_old) {
    At(old.tier).duplicates.PushBack(old.slot);
  } else {
    Release(old);
  }
  if (lower == slot) {
    At(slot.tier).duplicates.Remove(slot.slot);
    store_.SetSlot(id, slot);
  } else {
    GiveSlot(id, slot);
    At(slot.tier).slots.SetLower(slot.slot, keeps_old ? old : lower);
  }
  if (block.refs != 0) accounts_.Move(id, old.tier, slot.tier);
  if (!cached) return;
  const bool is_cut_off = tree_.IsCutOff(id);
  NoteNothing(old);
  if (!is_cut_off) NoteContent(id);
  tree_.MoveChild(id, old.tier, slot.tier);
  // The disk's policies know a copy on disk as long as it exists.
  if (IsOnDisk(old.tier)) {
    NotifyInheritedFromDisk(op, id, old);
  } else {
    NotifyRemoved(op, id, old);
  }
  if (IsOnDisk(slot.tier)) {
    NotifyInheritedOnDisk(op, id, slot.slot, old);
  } else {
    NotifyInserted(op, id);
  }
  if (has_disk()) ListOnDisk(op, id);
  if (is_cut_off) return;
  recorder().CopiesChanged(options_.window, tree_.Named(id), {old.tier, slot.tier},
                           {lower_before, LowerTiers(id)}, accounts_.owner(id));
}

void TierResidency::CountPassedOver(BlockId victim) {
  if (has_disk() && CopyOnDisk(victim) == kNoSlot) ++disk_.stats.passed_over;
}

void TierResidency::OrderMoveDown(BlockId victim, SlotRef from, SlotRef to) {
  copies().Order(options_.index, from, to, store_.handle(victim).ref(), store_[victim].token_count);
}

// Offloads a candidate by a copy to a slot that was taken.
void TierResidency::MoveTo(OperationScope& op, BlockId victim, SlotRef to) {
  // Nothing reads a cut-off block again: it changes its slot and is not copied.
  if (!tree_.IsCutOff(victim)) {
    OrderMoveDown(victim, store_.slot(victim), to);
    ++offloaded_blocks_;
  }
  FallTo(op, victim, to);
}

// Moves a candidate to `to`, where its bytes are or will be.
void TierResidency::FallTo(OperationScope& op, BlockId victim, SlotRef to) {
  const SlotRef from = store_.slot(victim);
  policy(from.tier, victim).Withdrawn(Facts(op, victim));
  // A copy on disk is as recent as the block from now on.
  if (IsOnDisk(to.tier)) UnlistOnDisk(op, victim);
  ChangeTier(op, victim, to, OldSlot::kFree);
  CountEvictable(victim, from.tier, -1);
  CountEvictable(victim, to.tier, +1);
  List(op, victim);
  ChildLeft(op, tree_.parent(victim), from.tier);
}

bool TierResidency::LoseNearest(OperationScope& op, BlockId id) {
  const SlotRef lower = Lower(store_.slot(id));
  const bool falls = store_[id].refs == 0 && IsCandidate(id) && lower.slot != kNoSlot &&
                     CanFallTo(id, lower) && !accounts_.AtQuota(lower.tier, accounts_.owner(id));
  if (falls) FallTo(op, id, lower);
  return falls;
}

// If the block's lower slot is the only place for the primary tier's victim, the two swap. The
// spare slot takes the victim, and the block's old slot becomes the spare.
void TierResidency::Onboard(OperationScope& op, BlockId id) {
  const SlotRef from = store_.slot(id);
  TierState& lower = At(from.tier);
  const TenantId owner = accounts_.owner(id);
  bool lent = false;
  if (free_slots(Tier::kPrimary) == 0 || accounts_.AtQuota(Tier::kPrimary, owner)) {
    lent = lower.slots.free() + lower.duplicates.size() == 0;
    if (lent) lower.slots.Release(lower.spare);
    leaving_ = {.tier = from.tier, .owner = owner};
    FreeOneSlot(op, owner);
    leaving_.reset();
    if (lent && lower.slots.free() != 0) {
      lower.spare = lower.slots.Take();
      lent = false;
    }
  }
  const SlotRef to{Tier::kPrimary, TakeSlot(Tier::kPrimary)};
  const Block& block = store_[id];
  op.WaitFor(copies().Order(options_.index, from, to, store_.handle(id).ref(), block.token_count));
  const bool cached = block.state() == BlockState::kCached;
  if (block.deferred) CountDeferred(id, -1);
  ChangeTier(op, id, to, lent ? OldSlot::kFree : OldSlot::kDuplicate);
  if (block.deferred) CountDeferred(id, +1);
  // It left the tree in a lower tier. Its holders are all charged here only now.
  if (!cached) GiveToHolder(id);
  if (lent) lower.spare = lower.slots.Take();
  PAGODA_CHECK(block.refs > 0 && cached == (block.state() == BlockState::kCached),
               "an onboarded block is held");
  MoveHeld(id, from.tier, to.tier);
  ++onboarded_blocks_;
}

// For subscribers that follow one tenant: a change of owner frees the block and takes it again.
void TierResidency::GiveToHolder(BlockId id) {
  const TenantId before = accounts_.owner(id);
  accounts_.GiveToHolder(id);
  const TenantId after = accounts_.owner(id);
  if (after == before) return;
  recorder().BlockFreed(options_.window, id, before);
  recorder().BlockTaken(options_.window, id, after);
}

TierResidency::Offloaded TierResidency::Offload(OperationScope& op, BlockId id) {
  const uint64_t copied = offloaded_blocks_;
  if (has_disk()) ReleasedAboveDisk(op, id);
  const Offloaded offloaded = MoveDown(op, id, Why::kAsked);
  if (offloaded_blocks_ != copied) op.WaitFor(copies().last());
  // The copy to which it fell may still be under way.
  if (offloaded == Offloaded::kMoved) WaitToRead(op, id);
  return offloaded;
}

uint32_t TierResidency::OffloadAhead(OperationScope& op, Tier tier, uint32_t free_target,
                                     uint32_t max_blocks) {
  uint32_t moved = 0;
  const auto free = [&] { return free_slots(tier) + At(tier).duplicates.size(); };
  while (At(tier).below != kNoTier && moved < max_blocks && free() < free_target) {
    const BlockId victim = Victim(tier, kDefaultTenant);
    // Dropping a block ahead of need gains nothing. Moving a block that a reset will free does not
    // either.
    if (victim == kNoBlock || tree_.IsCutOff(victim)) break;
    const Offloaded offloaded = MoveDown(op, victim, Why::kAhead);
    if (offloaded == Offloaded::kNoSpace) break;
    if (offloaded == Offloaded::kMoved) ++moved;
  }
  return moved;
}

}  // namespace pagoda
