#include "manager/lfu_aging_policy.h"

#include <algorithm>

namespace pagoda {

uint64_t LfuAgingPolicy::KeyOf(BlockId id) const {
  return age_ - std::min(age_, history_.Age(id, age_)) + 1 + history_.matches(id);
}

void LfuAgingPolicy::Inserted(BlockId id, BlockHash content) {
  history_.Inserted(id, content, age_);
}

void LfuAgingPolicy::Touched(BlockId id) { history_.Touched(id, age_); }

void LfuAgingPolicy::Removed(BlockId id, BlockHash content) {
  // Not everything leaves as a victim: the cache is no older than what would go next.
  const BlockId next = candidates_.First();
  if (next != kNoBlock) age_ = std::max(age_, std::min(KeyOf(id), KeyOf(next)));
  history_.Removed(id, content);
}

void LfuAgingPolicy::Released(BlockId id, Priority priority) {
  history_.Released();
  candidates_.PushBack(id, priority, KeyOf(id), age_);
}

void LfuAgingPolicy::Unparked(BlockId id, Priority priority) {
  history_.Released();
  candidates_.PushFront(id, priority, KeyOf(id), age_);
}

void LfuAgingPolicy::Withdrawn(BlockId id) { candidates_.Remove(id); }

BlockId LfuAgingPolicy::Victim() const { return candidates_.First(); }

}  // namespace pagoda
