#include "manager/policy/use_history.h"

#include <algorithm>
#include <bit>

namespace pagoda {

void UseHistory::AddMark() {
  std::shift_left(marks_.begin(), marks_.end(), 1);
  marks_.back() = {.all = table_->removed_, .own = removed_};
}

uint64_t UseHistory::OwnOf(uint64_t left) const {
  const uint64_t then = table_->removed_ - std::min(left, table_->removed_);
  // Assumes that this tenant's contents left evenly among the others between two marks.
  Mark later{.all = table_->removed_, .own = removed_};
  for (size_t i = kMarks; i-- > 0 && later.all > then;) {
    const Mark earlier = marks_[i];
    if (earlier.all <= then) {
      // Two factors below 2^32 each. Exact if all contents were this tenant's.
      const auto width = static_cast<int>(std::bit_width(later.all - earlier.all));
      const int shift = std::max(0, width - 32);
      const uint64_t all = (later.all - earlier.all) >> shift;
      const uint64_t own = later.own - earlier.own;
      return removed_ - earlier.own - own * ((then - earlier.all) >> shift) / all;
    }
    later = earlier;
  }
  return removed_ - later.own;
}

std::optional<EvictedContent::Memory> UseHistory::Inserted(SlotIndex slot, BlockHash content,
                                                           uint64_t now) {
  std::optional<EvictedContent::Memory> memory = table_->evicted_.Take(content);
  if (memory.has_value()) memory->age = OwnOf(memory->age);
  const uint32_t matches = memory.has_value() ? std::min(memory->note + 1, kMaxMatches) : 0;
  uses_[slot.value()] = {.last_used = static_cast<uint32_t>(now & kClockMask), .matches = matches};
  arrived_ = slot;
  return memory;
}

void UseHistory::Touched(SlotIndex slot, uint64_t now) {
  UseTable::Use& use = uses_[slot.value()];
  // A match that onboards content inserts it and then touches it: that is one use.
  const bool counted = arrives(slot) && use.matches > 0;
  if (!counted && use.matches < kMaxMatches) ++use.matches;
  arrived_ = kNoSlot;
  use.last_used = static_cast<uint32_t>(now & kClockMask);
}

}  // namespace pagoda
