#include "manager/disk/write_ledger.h"

#include <algorithm>

namespace pagoda {

void WriteLedger::Set(SlotIndex slot, State state, WriteId id) {
  State& current = states_[slot.value()];
  num_held_ -= current == State::kHeld ? 1 : 0;
  num_stale_ -= current == State::kStale ? 1 : 0;
  current = state;
  num_held_ += current == State::kHeld ? 1 : 0;
  num_stale_ += current == State::kStale ? 1 : 0;
  ids_[slot.value()] = id;
}

void WriteLedger::Drop(SlotIndex slot) {
  Set(slot, State::kStale, kNoWrite);
  if (is_listed_[slot.value()]) return;
  is_listed_[slot.value()] = true;
  listed_.push_back(slot);
}

std::vector<SlotIndex> WriteLedger::Erase(const std::vector<SlotIndex>& slots) {
  for (const SlotIndex slot : slots) Drop(slot);
  std::vector<SlotIndex> erased;
  for (const SlotIndex slot : listed_) {
    is_listed_[slot.value()] = false;
    if (states_[slot.value()] != State::kStale) continue;
    Set(slot, State::kEmpty, kNoWrite);
    erased.push_back(slot);
  }
  listed_.clear();
  return erased;
}

void WriteLedger::Clear() {
  std::fill(ids_.begin(), ids_.end(), kNoWrite);
  std::fill(states_.begin(), states_.end(), State::kEmpty);
  std::fill(is_listed_.begin(), is_listed_.end(), false);
  listed_.clear();
  num_held_ = 0;
  num_stale_ = 0;
}

}  // namespace pagoda
