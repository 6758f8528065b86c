// Candidates in the order of a key that grows with time.
#ifndef PAGODA_MANAGER_POLICY_AGING_CANDIDATES_H_
#define PAGODA_MANAGER_POLICY_AGING_CANDIDATES_H_

#include <array>
#include <bitset>
#include <cstdint>

#include "events/event.h"
#include "manager/policy/candidate_arena.h"
#include "manager/policy/candidate_lists.h"
#include "manager/words/retention.h"
#include "pools/types.h"

namespace pagoda {

// Candidates by priority, then by key, then in the order of their lists: a calendar queue (R.
// Brown, "Calendar Queues: A Fast O(1) Priority Queue Implementation for the Simulation Event Set
// Problem", CACM 1988) for each priority. Keys are close to a present that grows. Keys below the
// floor count as the floor, in their previous order. Keys at floor + kKeys or above count as floor
// + kKeys - 1. Every call is amortised O(1). Takes 1.3 KiB, and 256 bytes of the arena for each
// priority that was ever used. Thread-compatible.
class AgingCandidates {
 public:
  static constexpr uint32_t kKeys = 32;

  // The lists that it takes in the arena.
  static constexpr uint32_t kNumLists = (kMaxPriority + 1) * kKeys;

  // REQUIRES: `arena` has space for kNumLists more lists, and outlives the candidates.
  explicit AgingCandidates(CandidateArena* arena) : lists_(arena) {}

  // Inserts the slot after, or before, all others of that priority and key. `floor` never goes
  // back.
  void PushBack(SlotIndex slot, Priority priority, uint64_t key, uint64_t floor) {
    lists_.PushBack(ListFor(priority, key, floor), slot);
  }
  void PushFront(SlotIndex slot, Priority priority, uint64_t key, uint64_t floor) {
    lists_.PushFront(ListFor(priority, key, floor), slot);
  }
  void Remove(SlotIndex slot) { lists_.Remove(slot); }
  // kNoSlot if there is none.
  SlotIndex First() const;

 private:
  static uint32_t ListOf(Priority priority, uint64_t key) {
    return priority.value() * kKeys + static_cast<uint32_t>(key % kKeys);
  }
  uint32_t ListFor(Priority priority, uint64_t key, uint64_t floor);
  void RaiseFloor(Priority priority, uint64_t floor);

  CandidateLists<kNumLists> lists_;  // kKeys for each priority, a ring by key.
  // Priorities whose lists exist. Few are ever used, and a cache can have 256 tenants.
  std::bitset<kMaxPriority + 1> made_;
  // A priority's keys are in [floor, floor + kKeys). The floor rises only when the priority is
  // used.
  std::array<uint64_t, kMaxPriority + 1> floors_ = {};
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_AGING_CANDIDATES_H_
