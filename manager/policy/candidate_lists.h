// Lists of slots in flat arrays, in which eviction policies keep their candidates.
#ifndef PAGODA_MANAGER_POLICY_CANDIDATE_LISTS_H_
#define PAGODA_MANAGER_POLICY_CANDIDATE_LISTS_H_

#include <array>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "manager/policy/candidate_arena.h"
#include "pools/types.h"

namespace pagoda {

// kNumLists doubly linked lists over slots, in an arena that they share with other objects' lists.
// A slot is in at most one list of the arena. Every call is O(1). Takes a bit for each list,
// besides the arena's memory. Thread-compatible, together with everything that shares the arena.
//
// Invariants
// 1. Each list is a ring through its sentinel. A slot in no list links to itself.
// 2. A bit of bits_ is set while its list has a slot. A bit of words_ is set while its word of
// bits_ is not 0.
template <uint32_t kNumLists>
class CandidateLists {
  static_assert(kNumLists <= 64 * 64, "each word has a bit in words_");

 public:
  static constexpr uint32_t kNoList = kNumLists;

  // REQUIRES: the arena has space for kNumLists more, and outlives the lists.
  explicit CandidateLists(CandidateArena* arena)
      : links_(arena->links()),
        num_slots_(arena->num_slots()),
        first_(arena->AddLists(kNumLists)) {}

  void PushBack(uint32_t list, SlotIndex slot) {
    const uint32_t sentinel = SentinelOf(list);
    Link(slot.value(), links_[sentinel].previous, sentinel);
    MarkNotEmpty(list);
  }
  void PushFront(uint32_t list, SlotIndex slot) {
    const uint32_t sentinel = SentinelOf(list);
    Link(slot.value(), sentinel, links_[sentinel].next);
    MarkNotEmpty(list);
  }
  // REQUIRES: the slot is in one of these lists, not in another object's.
  void Remove(SlotIndex slot) {
    const uint32_t index = slot.value();
    const Links links = links_[index];
    PAGODA_CHECK(links.next != index, "only a candidate is withdrawn");
    links_[links.previous].next = links.next;
    links_[links.next].previous = links.previous;
    links_[index] = {index, index};
    // Both neighbours are the same only if that is the sentinel: the list is empty now.
    if (links.previous == links.next) MarkEmpty(links.next - first_);
  }

  // kNoSlot if the list is empty.
  SlotIndex front(uint32_t list) const {
    const uint32_t first = links_[first_ + list].next;
    return first < num_slots_ ? SlotIndex{first} : kNoSlot;
  }
  // The lowest list with a slot; kNoList if there is none.
  uint32_t FirstNotEmpty() const {
    if (words_ == 0) return kNoList;
    const auto word = static_cast<uint32_t>(std::countr_zero(words_));
    return word * 64 + static_cast<uint32_t>(std::countr_zero(bits_[word]));
  }

 private:
  using Links = CandidateArena::Links;

  uint32_t SentinelOf(uint32_t list) const {
    PAGODA_CHECK(list < kNumLists, "the list exists");
    return first_ + list;
  }
  void Link(uint32_t index, uint32_t previous, uint32_t next) {
    PAGODA_CHECK(links_[index].next == index, "a block becomes a candidate once");
    links_[index] = {previous, next};
    links_[previous].next = index;
    links_[next].previous = index;
  }
  void MarkNotEmpty(uint32_t list) {
    bits_[list / 64] |= uint64_t{1} << (list % 64);
    words_ |= uint64_t{1} << (list / 64);
  }
  void MarkEmpty(uint32_t list) {
    PAGODA_CHECK(list < kNumLists, "a slot is removed from the lists that hold it");
    uint64_t& word = bits_[list / 64];
    word &= ~(uint64_t{1} << (list % 64));
    if (word == 0) words_ &= ~(uint64_t{1} << (list / 64));
  }

  Links* const links_;  // By slot; then the sentinels of all lists of the arena.
  const uint32_t num_slots_;
  const uint32_t first_;  // The first of these lists' sentinels.
  uint64_t words_ = 0;
  std::array<uint64_t, (kNumLists + 63) / 64> bits_ = {};
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_CANDIDATE_LISTS_H_
