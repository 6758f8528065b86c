// Candidates by priority and class, each class in the order of their last use.
#ifndef PAGODA_MANAGER_POLICY_CLASSED_CANDIDATES_H_
#define PAGODA_MANAGER_POLICY_CLASSED_CANDIDATES_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "events/event.h"
#include "manager/policy/candidate_arena.h"
#include "manager/policy/reuse_index.h"
#include "manager/words/retention.h"
#include "pools/types.h"

namespace pagoda {

// A calendar queue (R. Brown, "Calendar Queues: A Fast O(1) Priority Queue Implementation for the
// Simulation Event Set Problem", CACM 1988) for each class of each priority. A key is a time of
// last use, in steps of which the present is at most kKeys - 1 away; older keys count as the
// oldest, in their previous order. Every call is amortised O(1).
//
// Takes 0.2 KiB, and 3.2 KiB for each priority that was ever used. The links of the slots are the
// arena's. Thread-compatible, together with everything that shares the arena.
//
// Invariants
// 1. Each list is a ring through its ends. A slot in no list links to itself.
// 2. A bit of Shelf::filled is set while its list has a slot, one of Shelf::classes while the class
// has one, and one of used_ while the priority has one.
class ClassedCandidates {
 public:
  static constexpr uint32_t kClasses = ReuseClass::kCount;
  static constexpr uint32_t kKeys = 32;

  // REQUIRES: the arena outlives the candidates.
  explicit ClassedCandidates(CandidateArena* arena)
      : links_(arena->links()), num_slots_(arena->num_slots()) {
    shelf_of_.fill(kNoShelf);
  }

  // Inserts the slot after, or before, all others of that priority, class and key. `present` never
  // goes back.
  void PushBack(SlotIndex slot, Priority priority, uint32_t of_class, uint64_t key,
                uint64_t present);
  void PushFront(SlotIndex slot, Priority priority, uint32_t of_class, uint64_t key,
                 uint64_t present);
  void Remove(SlotIndex slot);

  // The lowest priority that has a candidate; kNoPriority if there is none.
  static constexpr uint32_t kNoPriority = kMaxPriority + 1;
  uint32_t LowestPriority() const {
    for (size_t word = 0; word < used_.size(); ++word) {
      if (used_[word] != 0) {
        return static_cast<uint32_t>(word * 64 +
                                     static_cast<size_t>(std::countr_zero(used_[word])));
      }
    }
    return kNoPriority;
  }
  // The classes that have a candidate of that priority: a bit for each. REQUIRES: the priority was
  // used.
  uint32_t Classes(uint32_t priority) const { return shelves_[shelf_of_[priority]]->classes; }
  // The slot of the class that was used least recently; kNoSlot if it has none. REQUIRES: the
  // priority was used.
  SlotIndex Oldest(uint32_t priority, uint32_t of_class) const {
    const Shelf& shelf = *shelves_[shelf_of_[priority]];
    if (shelf.filled[of_class] == 0) return kNoSlot;
    return SlotIndex{shelf.ends[of_class * kKeys + OldestKey(shelf, of_class) % kKeys].next};
  }
  // Its key. REQUIRES: the class has one.
  uint64_t OldestKey(uint32_t priority, uint32_t of_class) const {
    return OldestKey(*shelves_[shelf_of_[priority]], of_class);
  }

 private:
  using Links = CandidateArena::Links;
  static constexpr uint8_t kNoShelf = 0xff;
  static constexpr uint32_t kLists = kClasses * kKeys;

  // The lists of a priority. A list's ends are linked like a slot, under the number num_slots_ +
  // shelf * kLists + list.
  struct Shelf {
    std::array<Links, kLists> ends;
    std::array<uint32_t, kClasses> filled = {};
    std::array<uint64_t, kClasses> floors = {};  // The oldest key of each class.
    uint32_t classes = 0;                        // A bit for each that has a candidate.
    Priority priority;
  };

  Links& At(uint32_t place) {
    if (place < num_slots_) return links_[place];
    const uint32_t list = place - num_slots_;
    return shelves_[list / kLists]->ends[list % kLists];
  }
  uint32_t ShelfFor(Priority priority);
  // The place of the list's ends.
  uint32_t ListFor(uint32_t shelf, uint32_t of_class, uint64_t key, uint64_t present);
  uint32_t PlaceOf(uint32_t shelf, uint32_t of_class, uint64_t key) const {
    return num_slots_ + shelf * kLists + of_class * kKeys + static_cast<uint32_t>(key % kKeys);
  }
  static uint64_t OldestKey(const Shelf& shelf, uint32_t of_class) {
    const uint64_t floor = shelf.floors[of_class];
    const uint32_t from_floor = std::rotr(shelf.filled[of_class], static_cast<int>(floor % kKeys));
    return floor + static_cast<uint64_t>(std::countr_zero(from_floor));
  }
  void RaiseFloor(uint32_t shelf, uint32_t of_class, uint64_t floor);
  void Prepend(uint32_t from, uint32_t to);
  void Link(uint32_t index, uint32_t previous, uint32_t next);
  void Mark(uint32_t place, bool filled);

  Links* const links_;  // By slot.
  const uint32_t num_slots_;
  std::vector<std::unique_ptr<Shelf>> shelves_;
  std::array<uint8_t, kMaxPriority + 1> shelf_of_;            // By priority.
  std::array<uint64_t, (kMaxPriority + 64) / 64> used_ = {};  // A bit for each with candidates.
};

// Inline, because an eviction calls them several times.

inline void ClassedCandidates::Mark(uint32_t place, bool filled) {
  const uint32_t list = (place - num_slots_) % kLists;
  Shelf& shelf = *shelves_[(place - num_slots_) / kLists];
  uint32_t& lists = shelf.filled[list / kKeys];
  const uint32_t bit = 1u << (list % kKeys);
  lists = filled ? lists | bit : lists & ~bit;
  const uint32_t class_bit = 1u << (list / kKeys);
  shelf.classes = lists != 0 ? shelf.classes | class_bit : shelf.classes & ~class_bit;
  uint64_t& used = used_[shelf.priority.value() / 64];
  const uint64_t used_bit = uint64_t{1} << (shelf.priority.value() % 64);
  used = shelf.classes != 0 ? used | used_bit : used & ~used_bit;
}

inline void ClassedCandidates::Link(uint32_t index, uint32_t previous, uint32_t next) {
  PAGODA_CHECK(links_[index].next == index, "a block becomes a candidate once");
  links_[index] = {previous, next};
  At(previous).next = index;
  At(next).previous = index;
}

inline uint32_t ClassedCandidates::ListFor(uint32_t shelf, uint32_t of_class, uint64_t key,
                                           uint64_t present) {
  const uint64_t floor = present < kKeys ? 0 : present - (kKeys - 1);
  if (floor > shelves_[shelf]->floors[of_class]) RaiseFloor(shelf, of_class, floor);
  return PlaceOf(shelf, of_class, std::max(key, shelves_[shelf]->floors[of_class]));
}

inline void ClassedCandidates::PushBack(SlotIndex slot, Priority priority, uint32_t of_class,
                                        uint64_t key, uint64_t present) {
  const uint32_t shelf = ShelfFor(priority);
  const uint32_t list = ListFor(shelf, of_class, key, present);
  Link(slot.value(), At(list).previous, list);
  Mark(list, true);
}

inline void ClassedCandidates::PushFront(SlotIndex slot, Priority priority, uint32_t of_class,
                                         uint64_t key, uint64_t present) {
  const uint32_t shelf = ShelfFor(priority);
  const uint32_t list = ListFor(shelf, of_class, key, present);
  Link(slot.value(), list, At(list).next);
  Mark(list, true);
}

inline void ClassedCandidates::Remove(SlotIndex slot) {
  const Links links = links_[slot.value()];
  PAGODA_CHECK(links.next != slot.value(), "only a candidate is withdrawn");
  At(links.previous).next = links.next;
  At(links.next).previous = links.previous;
  links_[slot.value()] = {slot.value(), slot.value()};
  // Both neighbours are the same only if they are the list's ends: the list is empty now.
  if (links.previous == links.next && links.next >= num_slots_) Mark(links.next, false);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_CLASSED_CANDIDATES_H_
