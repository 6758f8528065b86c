// The invariants of TierResidency and its parts, checked from scratch.
#include <vector>

#include "manager/tiers/tier_residency.h"

namespace pagoda {

void TierResidency::CheckInvariants(const Holders& holders) const {
  counts_.CheckInvariants(holders);
  candidates_.CheckInvariants();
  if (slots_.has_disk()) CheckDisk();
  slots_.CheckSpares();
}

void TierResidency::CheckDisk() const {
  std::vector<uint32_t> children(store_.num_ids());
  std::vector<bool> copies(slots_.num_slots(slots_.disk()));
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    const SlotIndex slot = slots_.CopyOnDisk(id);
    if (slot == kNoSlot) continue;
    copies[slot.value()] = true;
    const NodeRef parent = tree_.parent(id);
    if (!parent.is_root()) ++children[parent.block().value()];
  }
  const uint32_t in_transit =
      file_slots_.CheckInvariants(copies) + backups_.CheckInvariants(&children);
  counts_.CheckInTransit(slots_.disk(), in_transit);
  candidates_.CheckDisk(children);
  fetches_.CheckInvariants();
}

}  // namespace pagoda
