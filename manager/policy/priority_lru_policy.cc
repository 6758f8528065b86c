#include "manager/policy/priority_lru_policy.h"

#include <cstddef>
#include <memory>

namespace pagoda {

void PriorityLruPolicy::Released(const BlockFacts& block) {
  lists_.PushBack(block.priority.value(), block.slot);
}

void PriorityLruPolicy::Unparked(const BlockFacts& block) {
  lists_.PushFront(block.priority.value(), block.slot);
}

void PriorityLruPolicy::Withdrawn(const BlockFacts& block) { lists_.Remove(block.slot); }

SlotIndex PriorityLruPolicy::Victim() const {
  const uint32_t list = lists_.FirstNotEmpty();
  return list == CandidateLists<kNumLists>::kNoList ? kNoSlot : lists_.front(list);
}

SlotIndex PriorityLruPolicy::Evicted(const BlockFacts& victim, const BlockFacts* unparked) {
  lists_.Remove(victim.slot);
  if (unparked != nullptr) lists_.PushFront(unparked->priority.value(), unparked->slot);
  return Victim();
}

TierPolicies MakePriorityLruPolicies(const PolicyTiers& tiers, uint16_t num_tenants) {
  TierPolicies policies;
  for (size_t t = 0; t < kMaxTiers; ++t) {
    if (tiers[t].num_slots == 0) continue;
    const auto arena = std::make_shared<CandidateArena>(tiers[t].num_slots,
                                                        num_tenants * PriorityLruPolicy::kNumLists);
    for (uint16_t i = 0; i < num_tenants; ++i) {
      policies[t].push_back(std::make_unique<PriorityLruPolicy>(arena));
    }
  }
  return policies;
}

}  // namespace pagoda
