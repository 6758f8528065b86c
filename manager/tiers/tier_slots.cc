#include "manager/tiers/tier_slots.h"

#include <utility>

#include "base/check.h"

namespace pagoda {

TierSlots::TierSlots(const ResidencyOptions& options, BlockStore* store) : store_(*store) {
  size_t below = kNoTier;
  for (size_t t = kMaxTiers; t-- > 0;) {
    TierState& tier = tiers_[t];
    tier.capacity = options.tiers[t].blocks;
    const uint32_t num_slots = options.tiers[t].num_slots(Tier(t));
    tier.table = SlotTable(
        num_slots, below == kNoTier ? SlotTable::LowerCopies::kNo : SlotTable::LowerCopies::kYes);
    if (t != 0) tier.duplicates = SlotQueue(num_slots);
    tier.first_staging = num_slots;
    if (options.tiers[t].on_disk && tier.capacity != 0) {
      disk_ = t;
    } else if (tier.capacity != 0) {
      tier.first_staging -= options.tiers[t].staging_slots;
      if (below != kNoTier && below == disk_) above_disk_ = t;
    }
    tier.below = below;
    if (tier.capacity != 0) below = t;
  }
  Claim({});
}

SlotIndex TierSlots::TakeStaging() {
  PAGODA_CHECK(!staging_.empty(), "a free staging slot can be taken");
  const SlotIndex staging = staging_.back();
  staging_.pop_back();
  return staging;
}

TierSet TierSlots::LowerTiers(BlockId id) const {
  TierSet tiers;
  if (!OwnsSlot(store_[id].state())) return tiers;
  for (SlotRef slot = Lower(store_.slot(id)); slot.slot != kNoSlot; slot = Lower(slot)) {
    tiers.Add(slot.tier);
  }
  return tiers;
}

SlotIndex TierSlots::CopyOnDisk(BlockId id) const {
  if (!has_disk() || store_[id].state() != BlockState::kCached) return kNoSlot;
  SlotRef slot = store_.slot(id);
  while (slot.slot != kNoSlot && !IsOnDisk(slot.tier)) slot = Lower(slot);
  return slot.slot;
}

void TierSlots::AddFarthest(BlockId id, SlotRef slot) {
  At(slot.tier).table.Give(slot.slot, id);
  SlotRef last = store_.slot(id);
  while (Lower(last).slot != kNoSlot) last = Lower(last);
  At(last.tier).table.SetLower(last.slot, slot);
  At(slot.tier).duplicates.PushBack(slot.slot);
}

void TierSlots::Unlink(BlockId id, SlotRef slot) {
  SlotRef above = store_.slot(id);
  while (Lower(above) != slot) {
    above = Lower(above);
    PAGODA_CHECK(above.slot != kNoSlot, "a duplicate is one of its block's copies");
  }
  At(above.tier).table.SetLower(above.slot, Lower(slot));
  At(slot.tier).duplicates.Remove(slot.slot);
}

void TierSlots::DropDuplicates(BlockId id) {
  const SlotRef nearest = store_.slot(id);
  for (SlotRef slot = Lower(nearest); slot.slot != kNoSlot;) {
    const SlotRef next = Lower(slot);
    At(slot.tier).duplicates.Remove(slot.slot);
    Release(slot);
    slot = next;
  }
  At(nearest.tier).table.SetLower(nearest.slot, {kPrimaryTier, kNoSlot});
}

void TierSlots::SetNearest(BlockId id, SlotRef slot, OldSlot old_slot) {
  const SlotRef old = store_.slot(id);
  const SlotRef lower = Lower(old);
  const bool keeps_old = old_slot == OldSlot::kDuplicate;
  if (keeps_old) {
    At(old.tier).duplicates.PushBack(old.slot);
  } else {
    Release(old);
  }
  if (lower == slot) {
    At(slot.tier).duplicates.Remove(slot.slot);
    store_.SetSlot(id, slot);
  } else {
    Give(id, slot);
    At(slot.tier).table.SetLower(slot.slot, keeps_old ? old : lower);
  }
}

void TierSlots::Claim(const std::array<std::vector<SlotIndex>, kMaxTiers>& slots) {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    TierState& tier = tiers_[t];
    if (t == disk_) continue;
    if (tier.spare != kNoSlot) tier.table.Release(std::exchange(tier.spare, kNoSlot));
    std::vector<SlotIndex> claimed = slots[t];
    for (uint32_t i = tier.first_staging; i < tier.table.size(); ++i) {
      const SlotIndex staging{i};
      if (!tier.table.is_free(staging)) tier.table.Release(staging);
      claimed.push_back(staging);
    }
    if (t == above_disk_) staging_.assign(claimed.begin() + slots[t].size(), claimed.end());
    if (!claimed.empty()) tier.table.Claim(claimed);
    if (tier.first_staging != tier.capacity) tier.spare = tier.table.Take();
  }
}

void TierSlots::CheckCopies(BlockId id, std::array<uint32_t, kMaxTiers>* duplicates) const {
  SlotRef slot = store_.slot(id);
  PAGODA_CHECK(OwnerOf(slot) == id, "rule 2: no two blocks share a slot");
  for (SlotRef lower = Lower(slot); lower.slot != kNoSlot; slot = lower, lower = Lower(slot)) {
    PAGODA_CHECK(lower.tier > slot.tier && OwnerOf(lower) == id &&
                     store_[id].state() == BlockState::kCached &&
                     At(lower.tier).duplicates.contains(lower.slot),
                 "a copy is in a farther tier, in a slot that the block owns");
    ++(*duplicates)[lower.tier.value()];
  }
}

void TierSlots::CheckSpares() const {
  for (const TierState& tier : tiers_) {
    PAGODA_CHECK(tier.spare == kNoSlot || tier.table.owner(tier.spare) == kNoBlock,
                 "no block owns the spare");
  }
}

}  // namespace pagoda
