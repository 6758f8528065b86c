#include "manager/multi_queue_policy.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>

namespace pagoda {

MultiQueuePolicy::MultiQueuePolicy(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)),
      candidates_(&shared_->candidates),
      history_(&shared_->uses),
      age_at_second_use_(std::max(1u, shared_->candidates.num_ids())),
      age_at_eviction_(std::max(1u, shared_->candidates.num_ids() / 16)) {}

uint32_t MultiQueuePolicy::tick_insertions() const {
  return std::max(1u, cached_ / kTicksPerTurnover);
}

uint64_t MultiQueuePolicy::KeyOf(BlockId id) const {
  const auto queue = static_cast<uint64_t>(std::bit_width(history_.matches(id) + 1)) - 1;
  const uint64_t age = std::min(now_, history_.Age(id, now_));
  return now_ - age + queue * age_at_second_use_.value() / kTick;
}

void MultiQueuePolicy::Inserted(BlockId id, BlockHash content) {
  ++cached_;
  if (++insertions_ >= tick_insertions()) {
    insertions_ = 0;
    ++now_;
  }
  const std::optional<EvictedContent::Memory> memory = history_.Inserted(id, content, now_);
  if (memory.has_value() && memory->note == 0) {
    // In a full cache as many blocks leave as come.
    age_at_second_use_.Add(age_at_eviction_.value() + memory->age * kTick / tick_insertions());
  }
}

void MultiQueuePolicy::Touched(BlockId id) {
  // A match that brings content up inserts it first: how long it was away is not known then.
  if (history_.matches(id) == 0 && !history_.arrives(id)) {
    age_at_second_use_.Add(history_.Age(id, now_) * kTick);
  }
  history_.Touched(id, now_);
}

void MultiQueuePolicy::Removed(BlockId id, BlockHash content) {
  --cached_;
  age_at_eviction_.Add(history_.Age(id, now_) * kTick);
  history_.Removed(id, content);
}

void MultiQueuePolicy::Released(BlockId id, Priority priority) {
  history_.Released();
  candidates_.PushBack(id, priority, KeyOf(id), floor());
}

void MultiQueuePolicy::Unparked(BlockId id, Priority priority) {
  history_.Released();
  candidates_.PushFront(id, priority, KeyOf(id), floor());
}

void MultiQueuePolicy::Withdrawn(BlockId id) { candidates_.Remove(id); }

BlockId MultiQueuePolicy::Victim() const { return candidates_.First(); }

}  // namespace pagoda
