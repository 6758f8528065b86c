#include "manager/policy/aging_candidates.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace pagoda {

uint32_t AgingCandidates::ListFor(Priority priority, uint64_t key, uint64_t floor) {
  PAGODA_CHECK(priority.value() <= kMaxPriority, "a priority is at most 100");
  if (!made_[priority.value()]) {
    lists_.Make(ListOf(priority, 0), kKeys);
    made_.set(priority.value());
  }
  if (floor > floors_[priority.value()]) RaiseFloor(priority, floor);
  const uint64_t lowest = floors_[priority.value()];
  return ListOf(priority, std::clamp(key, lowest, lowest + kKeys - 1));
}

void AgingCandidates::RaiseFloor(Priority priority, uint64_t floor) {
  uint64_t& lowest = floors_[priority.value()];
  // Merges the lists up to `reach`, as far as the ring holds without two keys in one list. Older
  // keys are prepended later, so they come first.
  const uint64_t reach = std::min(floor, lowest + kKeys - 1);
  for (uint64_t key = reach; key-- > lowest;) {
    lists_.Prepend(ListOf(priority, key), ListOf(priority, reach));
  }
  // If the floor is beyond that, all remaining candidates have the same key now.
  if (floor % kKeys != reach % kKeys) {
    lists_.Prepend(ListOf(priority, reach), ListOf(priority, floor));
  }
  lowest = floor;
}

SlotIndex AgingCandidates::First() const {
  const uint32_t list = lists_.FirstNotEmpty();
  if (list == CandidateLists<kNumLists>::kNoList) return kNoSlot;
  const uint32_t priority = list / kKeys;
  const auto start = static_cast<uint32_t>(floors_[priority] % kKeys);
  const auto keys = static_cast<uint32_t>(lists_.NotEmpty(priority * kKeys, kKeys));
  const auto above =
      static_cast<uint32_t>(std::countr_zero(std::rotr(keys, static_cast<int>(start))));
  return lists_.front(priority * kKeys + (start + above) % kKeys);
}

}  // namespace pagoda
