// The memory of candidate lists, which the lists of all tenants share.
#ifndef PAGODA_MANAGER_POLICY_CANDIDATE_ARENA_H_
#define PAGODA_MANAGER_POLICY_CANDIDATE_ARENA_H_

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>

#include "base/big_array.h"
#include "base/check.h"

namespace pagoda {

// Links for the slots of a tier, followed by the sentinels of lists, in one array. So a neighbour
// is found without knowing whether it is a slot or a sentinel. A slot is in at most one list of all
// tenants, so all lists of a tier share the links. Takes 8 bytes for each slot and each list. Not
// movable: lists point into it. Thread-compatible.
class CandidateArena {
 public:
  // An index below num_slots is a slot, any other a sentinel.
  struct Links {
    uint32_t previous;
    uint32_t next;
  };

  CandidateArena(uint32_t num_slots, uint32_t max_lists)
      : num_slots_(num_slots), max_lists_(max_lists), links_(Allocate(num_slots, max_lists)) {
    for (uint32_t slot = 0; slot < num_slots; ++slot) Unlink(slot);
  }
  CandidateArena(const CandidateArena&) = delete;
  CandidateArena& operator=(const CandidateArena&) = delete;

  // Adds `count` empty lists and returns the index of the first one's sentinel.
  uint32_t AddLists(uint32_t count) {
    PAGODA_CHECK(count <= max_lists_ - num_lists_, "the arena has space for all its lists");
    const uint32_t first = num_slots_ + num_lists_;
    num_lists_ += count;
    for (uint32_t i = 0; i < count; ++i) Unlink(first + i);
    return first;
  }

  uint32_t num_slots() const { return num_slots_; }
  Links* links() { return links_.get(); }

 private:
  struct Free {
    void operator()(Links* links) const { std::free(links); }
  };
  using Array = std::unique_ptr<Links[], Free>;

  static Array Allocate(uint32_t num_slots, uint32_t max_lists) {
    const uint64_t places = uint64_t{num_slots} + max_lists;
    PAGODA_CHECK(places <= std::numeric_limits<uint32_t>::max(), "a place has 32 bits");
    return Array(static_cast<Links*>(AllocateBigArray(places * sizeof(Links))));
  }
  // Links the entry to itself: a slot in no list, or an empty list.
  void Unlink(uint32_t place) { std::construct_at(&links_[place], Links{place, place}); }

  const uint32_t num_slots_;
  const uint32_t max_lists_;
  uint32_t num_lists_ = 0;
  const Array links_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_CANDIDATE_ARENA_H_
