#include "manager/policy/lfu_aging_policy.h"

#include <algorithm>

namespace pagoda {

uint64_t LfuAgingPolicy::KeyOf(SlotIndex slot) const {
  return age_ - std::min(age_, history_.Age(slot, age_)) + 1 + history_.matches(slot);
}

void LfuAgingPolicy::Inserted(const BlockFacts& block) {
  history_.Inserted(block.slot, block.hash, age_);
}

void LfuAgingPolicy::Touched(const BlockFacts& block) { history_.Touched(block.slot, age_); }

void LfuAgingPolicy::Removed(const BlockFacts& block) {
  // A block can also leave without being the victim: the cache is never older than the next
  // victim's key.
  const SlotIndex next = candidates_.First();
  if (next != kNoSlot) age_ = std::max(age_, std::min(KeyOf(block.slot), KeyOf(next)));
  history_.Removed(block.slot, block.hash);
}

void LfuAgingPolicy::Released(const BlockFacts& block) {
  history_.Released();
  candidates_.PushBack(block.slot, block.priority, KeyOf(block.slot), age_);
}

void LfuAgingPolicy::Unparked(const BlockFacts& block) {
  history_.Released();
  candidates_.PushFront(block.slot, block.priority, KeyOf(block.slot), age_);
}

// It counts as never used.
void LfuAgingPolicy::Passed(const BlockFacts& block) {
  candidates_.Remove(block.slot);
  candidates_.PushFront(block.slot, block.priority, 0, age_);
}

void LfuAgingPolicy::Withdrawn(const BlockFacts& block) { candidates_.Remove(block.slot); }

SlotIndex LfuAgingPolicy::Victim() const { return candidates_.First(); }

}  // namespace pagoda
