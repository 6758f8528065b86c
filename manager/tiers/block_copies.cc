#include "manager/tiers/block_copies.h"

namespace pagoda {

SlotRef BlockCopies::CompleteCopy(BlockId id, TierSet tiers) const {
  SlotRef slot = OwnsSlot(store_[id].state()) ? store_.slot(id) : SlotRef{.slot = kNoSlot};
  for (; slot.slot != kNoSlot; slot = slots_.Lower(slot)) {
    if (tiers.contains(slot.tier) && Arrival(slot) == Ticket{}) break;
  }
  return slot;
}

}  // namespace pagoda
