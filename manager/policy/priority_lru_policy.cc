#include "manager/policy/priority_lru_policy.h"

#include <memory>
#include <utility>

namespace pagoda {

PriorityLruPolicy::PriorityLruPolicy(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)), lists_(&shared_->candidates) {
  lists_.Make(0, kNumLists);
}

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

}  // namespace pagoda
