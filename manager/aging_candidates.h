// Candidates in the order of a key that grows with time.
#ifndef PAGODA_MANAGER_AGING_CANDIDATES_H_
#define PAGODA_MANAGER_AGING_CANDIDATES_H_

#include <array>
#include <bitset>
#include <cstdint>

#include "events/event.h"
#include "manager/candidate_arena.h"
#include "manager/candidate_lists.h"
#include "manager/retention.h"
#include "pools/types.h"

namespace pagoda {

// Candidates by priority, then by key, then by place: a calendar queue (R. Brown, "Calendar Queues:
// A Fast O(1) Priority Queue Implementation for the Simulation Event Set Problem", CACM 1988) for
// each priority. Keys lie around a present that grows. Those below its floor count as the floor, in
// the order that they had; those kKeys or more above it count as floor + kKeys - 1. Every call is
// O(1) amortised. 1.3 KiB, and 256 bytes of the arena for each priority that was ever used.
// Thread-compatible.
class AgingCandidates {
 public:
  static constexpr uint32_t kKeys = 32;

  // Lists that they have in the arena.
  static constexpr uint32_t kNumLists = (kMaxPriority + 1) * kKeys;

  // The arena has room for kNumLists more lists, and outlives the candidates.
  explicit AgingCandidates(CandidateArena* arena) : lists_(arena) {}

  // Behind, or before, all others of that priority and key. `floor` does not go back.
  void PushBack(SlotIndex slot, Priority priority, uint64_t key, uint64_t floor) {
    lists_.PushBack(ListFor(priority, key, floor), slot);
  }
  void PushFront(SlotIndex slot, Priority priority, uint64_t key, uint64_t floor) {
    lists_.PushFront(ListFor(priority, key, floor), slot);
  }
  void Remove(SlotIndex slot) { lists_.Remove(slot); }
  // kNoSlot where there is none.
  SlotIndex First() const;

 private:
  static uint32_t ListOf(Priority priority, uint64_t key) {
    return priority.value() * kKeys + static_cast<uint32_t>(key % kKeys);
  }
  uint32_t ListFor(Priority priority, uint64_t key, uint64_t floor);
  void RaiseFloor(Priority priority, uint64_t floor);

  CandidateLists<kNumLists> lists_;  // kKeys a priority, a ring by key.
  // Priorities whose lists were made: few are ever used, and a cache may have 256 tenants.
  std::bitset<kMaxPriority + 1> made_;
  // A priority's keys are in [floor, floor + kKeys); raised only when the priority is used.
  std::array<uint64_t, kMaxPriority + 1> floors_ = {};
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_AGING_CANDIDATES_H_
