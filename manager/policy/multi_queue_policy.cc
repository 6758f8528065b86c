#include "manager/policy/multi_queue_policy.h"

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
      age_at_second_use_(std::max(1u, shared_->candidates.num_slots())),
      age_at_eviction_(std::max(1u, shared_->candidates.num_slots() / 16)) {}

uint32_t MultiQueuePolicy::tick_insertions() const {
  return std::max(1u, cached_ / kTicksPerTurnover);
}

uint64_t MultiQueuePolicy::KeyOf(SlotIndex slot) const {
  const auto queue = static_cast<uint64_t>(std::bit_width(history_.matches(slot) + 1)) - 1;
  const uint64_t age = std::min(now_, history_.Age(slot, now_));
  return now_ - age + queue * age_at_second_use_.value() / kTick;
}

void MultiQueuePolicy::Inserted(const BlockFacts& block) {
  ++cached_;
  if (++insertions_ >= tick_insertions()) {
    insertions_ = 0;
    ++now_;
  }
  const std::optional<EvictedContent::Memory> memory =
      history_.Inserted(block.slot, block.hash, now_);
  if (memory.has_value() && memory->note == 0) {
    // In a full cache as many blocks leave as enter.
    age_at_second_use_.Add(age_at_eviction_.value() + memory->age * kTick / tick_insertions());
  }
}

void MultiQueuePolicy::Touched(const BlockFacts& block) {
  // A match that onboards content inserts it first. How long the content was away is then unknown.
  if (history_.matches(block.slot) == 0 && !history_.arrives(block.slot)) {
    age_at_second_use_.Add(history_.Age(block.slot, now_) * kTick);
  }
  history_.Touched(block.slot, now_);
}

void MultiQueuePolicy::Removed(const BlockFacts& block) {
  --cached_;
  age_at_eviction_.Add(history_.Age(block.slot, now_) * kTick);
  history_.Removed(block.slot, block.hash);
}

void MultiQueuePolicy::Released(const BlockFacts& block) {
  history_.Released();
  candidates_.PushBack(block.slot, block.priority, KeyOf(block.slot), floor());
}

void MultiQueuePolicy::Unparked(const BlockFacts& block) {
  history_.Released();
  candidates_.PushFront(block.slot, block.priority, KeyOf(block.slot), floor());
}

// It counts as never used.
void MultiQueuePolicy::Passed(const BlockFacts& block) {
  candidates_.Remove(block.slot);
  candidates_.PushFront(block.slot, block.priority, 0, floor());
}

void MultiQueuePolicy::Withdrawn(const BlockFacts& block) { candidates_.Remove(block.slot); }

SlotIndex MultiQueuePolicy::Victim() const { return candidates_.First(); }

}  // namespace pagoda
