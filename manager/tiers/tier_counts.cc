#include "manager/tiers/tier_counts.h"

#include "base/check.h"

namespace pagoda {

uint32_t TierCounts::held_blocks() const {
  uint32_t held = 0;
  for (const Counts& tier : tiers_) held += tier.held;
  return held;
}

uint32_t TierCounts::evictable_blocks() const {
  uint32_t evictable = 0;
  for (const Counts& tier : tiers_) evictable += tier.evictable;
  return evictable;
}

uint32_t TierCounts::pinned_blocks() const {
  uint32_t pinned = 0;
  for (const Counts& tier : tiers_) pinned += tier.pinned;
  return pinned;
}

void TierCounts::MoveHeld(BlockId id, Tier from, Tier to) {
  const uint32_t pinned = store_[id].pinned;
  --At(from).held;
  ++At(to).held;
  At(from).pinned -= pinned;
  At(to).pinned += pinned;
}

// --- Why a block is held ---

void TierCounts::AddDeferred(BlockId id) {
  Block& block = store_[id];
  if (!block.deferred) CountDeferred(id, +1);
  block.deferred = 1;
  deferred_.Add(id);
}

void TierCounts::RemoveDeferred(BlockId id) {
  if (deferred_.Remove(id) != 0) return;
  CountDeferred(id, -1);
  store_[id].deferred = 0;
}

void TierCounts::CountDeferred(BlockId id, int change) {
  const Block& block = store_[id];
  if (!OwnsSlot(block.state())) return;
  Counts& tier = At(block.tier());
  tier.deferred += static_cast<uint32_t>(change);
  if (block.pinned) tier.deferred_and_pinned += static_cast<uint32_t>(change);
}

void TierCounts::MarkPinned(BlockId id) {
  Block& block = store_[id];
  if (block.pinned) return;
  block.pinned = 1;
  ++At(block.tier()).pinned;
  if (block.deferred) ++At(block.tier()).deferred_and_pinned;
}

void TierCounts::UnmarkPinned(BlockId id) {
  Block& block = store_[id];
  block.pinned = 0;
  --At(block.tier()).pinned;
  if (block.deferred) --At(block.tier()).deferred_and_pinned;
}

// --- Numbers ---

void TierCounts::AddStats(WindowStats* stats) const {
  stats->pinned_blocks = pinned_blocks();
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const Tier tier(t);
    const Counts& counts = tiers_[t];
    const uint32_t duplicates = slots_.duplicates(tier);
    stats->cached_by_priority[t] = counts.evictable_by_priority;
    stats->tiers[t] = {
        .capacity = slots_.capacity(tier),
        .free = slots_.free_slots(tier),
        .cached = counts.evictable + duplicates,
        .duplicates = duplicates,
        .active = counts.held - counts.pinned - (counts.deferred - counts.deferred_and_pinned),
        .pinned = counts.pinned - counts.deferred_and_pinned,
        .in_flight = counts.deferred + counts.in_transit};
  }
  // A slot in flight counts only as that. Slots with deferred releases are counted already.
  for (const SlotRef slot : copies_.SlotsInFlight()) {
    const BlockId owner = slots_.OwnerOf(slot);
    if (owner == kNoBlock && !slots_.IsFree(slot)) continue;
    TierOccupancy& tier = stats->tiers[slot.tier.value()];
    const bool is_duplicate = owner != kNoBlock && store_.slot(owner) != slot;
    if (owner != kNoBlock && !is_duplicate && store_[owner].deferred) continue;
    if (owner == kNoBlock) {
      --tier.free;
    } else if (is_duplicate) {
      --tier.cached;
      --tier.duplicates;
    } else if (store_[owner].pinned) {
      --tier.pinned;
    } else if (store_[owner].refs != 0) {
      --tier.active;
    } else {
      --tier.cached;
      const Block& block = store_[owner];
      --stats->cached_by_priority[block.tier_value][block.priority_value];
    }
    ++tier.in_flight;
  }
}

void TierCounts::AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const Tier tier(t);
    const Counts& all = tiers_[t];
    if (slots_.capacity(tier) == 0) continue;
    TenantUsage::Use& use = uses->emplace_back();
    use.window = options_.window;
    use.tier = tier;
    use.used_blocks = accounts_.any() ? accounts_.used(tier, tenant) : all.evictable + all.held;
    use.cached_blocks = accounts_.any() ? accounts_.cached(tier, tenant) : all.evictable;
    use.quota_blocks = accounts_.QuotaOf(tier, tenant);
  }
}

SlotState TierCounts::StateOf(SlotRef slot) const {
  if (slots_.IsReserved(slot)) return SlotState::kSpare;
  if (copies_.LastTouch(slot) != Ticket{}) return SlotState::kInFlight;
  const BlockId owner = slots_.OwnerOf(slot);
  if (owner == kNoBlock) return slots_.IsFree(slot) ? SlotState::kFree : SlotState::kInFlight;
  const Block& block = store_[owner];
  if (store_.slot(owner) != slot) return SlotState::kCached;
  if (block.deferred) return SlotState::kInFlight;
  if (block.pinned) return SlotState::kPinned;
  return block.refs != 0 ? SlotState::kActive : SlotState::kCached;
}

void TierCounts::SlotStates(Tier tier, uint32_t from, absl::Span<SlotState> states) const {
  for (SlotState& state : states) state = StateOf({tier, SlotIndex{from++}});
}

void TierCounts::CheckAccounting() const {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const Tier tier(t);
    const Counts& counts = tiers_[t];
    const uint32_t taken =
        counts.evictable + counts.held + slots_.duplicates(tier) + counts.in_transit;
    PAGODA_CHECK(slots_.free_slots(tier) + taken == slots_.capacity(tier),
                 "rule 5: free + cached + active + pinned + in flight = capacity");
  }
}

}  // namespace pagoda
