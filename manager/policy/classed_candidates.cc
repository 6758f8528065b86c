#include "manager/policy/classed_candidates.h"

#include <algorithm>
#include <memory>

#include "base/check.h"

namespace pagoda {

uint32_t ClassedCandidates::ShelfFor(Priority priority) {
  PAGODA_CHECK(priority.value() <= kMaxPriority, "a priority is at most 100");
  uint8_t& shelf = shelf_of_[priority.value()];
  if (shelf == kNoShelf) {
    shelf = static_cast<uint8_t>(shelves_.size());
    shelves_.push_back(std::make_unique<Shelf>());
    shelves_.back()->priority = priority;
    for (uint32_t list = 0; list < kLists; ++list) {
      const uint32_t place = num_slots_ + shelf * kLists + list;
      shelves_.back()->ends[list] = {place, place};
    }
  }
  return shelf;
}

// Merges the lists up to `reach`, as far as the ring holds without two keys in one list. Older keys
// are prepended later, so they come first. If the floor is beyond that, all remaining candidates
// have the same key now.
void ClassedCandidates::RaiseFloor(uint32_t shelf, uint32_t of_class, uint64_t floor) {
  uint64_t& lowest = shelves_[shelf]->floors[of_class];
  const uint64_t reach = std::min(floor, lowest + kKeys - 1);
  for (uint64_t key = reach; key-- > lowest;) {
    Prepend(PlaceOf(shelf, of_class, key), PlaceOf(shelf, of_class, reach));
  }
  if (floor % kKeys != reach % kKeys) {
    Prepend(PlaceOf(shelf, of_class, reach), PlaceOf(shelf, of_class, floor));
  }
  lowest = floor;
}

// Moves all slots of `from` to the front of `to`, in their order.
void ClassedCandidates::Prepend(uint32_t from, uint32_t to) {
  Links& source = At(from);
  if (source.next == from) return;
  Links& target = At(to);
  const uint32_t old_first = target.next;
  const Links moved = source;
  source = {from, from};
  target.next = moved.next;
  At(moved.next).previous = to;
  At(moved.previous).next = old_first;
  At(old_first).previous = moved.previous;
  Mark(from, false);
  Mark(to, true);
}

}  // namespace pagoda
