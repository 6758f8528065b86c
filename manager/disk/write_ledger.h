// Which write each slot of a file holds, and which slots hold blocks that are not the core's.
#ifndef PAGODA_MANAGER_DISK_WRITE_LEDGER_H_
#define PAGODA_MANAGER_DISK_WRITE_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "manager/disk/block_record.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible.
//
// 1. A slot is empty, held (the core has a block there, or has ordered one) or stale (it can hold a
// block that is not the core's).
// 2. A held slot has a write id; the others have none.
// 3. Ids grow.
class WriteLedger {
 public:
  // All slots are empty. REQUIRES: `next` is above every id in the file.
  WriteLedger(uint32_t num_slots, WriteId next)
      : next_(next), ids_(num_slots, kNoWrite), states_(num_slots), is_listed_(num_slots) {}

  uint32_t num_slots() const { return static_cast<uint32_t>(ids_.size()); }
  // kNoWrite if the slot is not held.
  WriteId id(SlotIndex slot) const { return ids_[slot.value()]; }
  uint32_t num_held() const { return num_held_; }
  uint32_t num_stale() const { return num_stale_; }

  // Marks the slot as held by a new write, and returns the write's id.
  WriteId Write(SlotIndex slot) {
    Set(slot, State::kHeld, next_);
    return next_++;
  }
  // The slot already holds that write, as found at the start.
  void Hold(SlotIndex slot, WriteId id) { Set(slot, State::kHeld, id); }
  // The slot's content is not, or no longer, the core's.
  void Drop(SlotIndex slot);
  // The write has failed, so the slot's content is unknown. Does nothing if the slot has another
  // write by now.
  void Fail(SlotIndex slot, WriteId id) {
    if (id != kNoWrite && ids_[slot.value()] == id) Drop(slot);
  }
  // Empties these slots and all stale ones, and returns them, each once. Cost: as many steps as
  // slots were dropped since the last call, at most num_slots().
  std::vector<SlotIndex> Erase(const std::vector<SlotIndex>& slots);
  // The erase of these slots failed: their content is stale again. Skips a slot that has another
  // write by now.
  void Unerase(const std::vector<SlotIndex>& slots) {
    for (const SlotIndex slot : slots) {
      if (states_[slot.value()] == State::kEmpty) Drop(slot);
    }
  }
  // Empties all. Cost: num_slots() steps.
  void Clear();

 private:
  enum class State : uint8_t { kEmpty, kHeld, kStale };

  void Set(SlotIndex slot, State state, WriteId id);

  WriteId next_;
  std::vector<WriteId> ids_;
  std::vector<State> states_;
  // All stale slots, and some slots that no longer are; each at most once.
  std::vector<SlotIndex> listed_;
  std::vector<bool> is_listed_;
  uint32_t num_held_ = 0;
  uint32_t num_stale_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_WRITE_LEDGER_H_
