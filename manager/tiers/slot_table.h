// The slots of one tier of a window: the free ones, and the owners of the others.
#ifndef PAGODA_MANAGER_TIERS_SLOT_TABLE_H_
#define PAGODA_MANAGER_TIERS_SLOT_TABLE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/big_array.h"
#include "base/check.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible. All memory is taken at the start: 4 bytes a slot, and 4 more if blocks can
// have another copy in a farther tier.
//
// Invariants
// 1. A slot is free, taken, or belongs to a block.
// 2. A fresh table hands out slots in ascending order. Later the slot that was released last is
// taken first.
class SlotTable {
 public:
  SlotTable() = default;
  // REQUIRES: num_slots < 2^31 - 1, or < 2^30 with lower copies.
  enum class LowerCopies : uint8_t { kNo, kYes };
  SlotTable(uint32_t num_slots, LowerCopies lower_copies);

  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t free() const { return free_; }

  // A free slot, which is taken from now on. REQUIRES: free() > 0.
  SlotIndex Take() {
    PAGODA_CHECK(free_ > 0, "a free slot can be taken");
    const uint32_t index = first_free_;
    first_free_ = slots_[index] & ~kFreeBit;
    --free_;
    slots_[index] = kTaken;
    return SlotIndex{index};
  }
  void Release(SlotIndex slot) {
    uint32_t& entry = slots_[slot.value()];
    PAGODA_CHECK(!IsFree(entry), "rule 5: a slot is released once");
    entry = kFreeBit | first_free_;
    first_free_ = slot.value();
    ++free_;
  }
  // The slot belongs to the block from now on. REQUIRES: it is not free.
  void Give(SlotIndex slot, BlockId id) {
    PAGODA_CHECK(!IsFree(slots_[slot.value()]), "a slot is taken before it is given");
    slots_[slot.value()] = id.value();
    SetLower(slot, kNowhere);
  }
  // The slot belongs to no block any more, and is not free yet: reads or writes of it must end
  // first. REQUIRES: it belongs to a block.
  void Orphan(SlotIndex slot) {
    PAGODA_CHECK(owner(slot) != kNoBlock, "a slot is orphaned by its block");
    slots_[slot.value()] = kTaken;
  }
  bool is_free(SlotIndex slot) const { return IsFree(slots_[slot.value()]); }
  // The block that owns the slot; kNoBlock if it is free, or taken and not given yet.
  BlockId owner(SlotIndex slot) const {
    const uint32_t entry = slots_[slot.value()];
    return (entry & kFreeBit) != 0 ? kNoBlock : BlockId{entry};
  }
  // The next copy of the slot's block, in a farther tier; kNoSlot: none. Give() clears it.
  SlotRef lower(SlotIndex slot) const {
    if (lower_.size() == 0) return kNowhere;
    const uint32_t packed = lower_[slot.value()];
    return packed == kNoLower
               ? kNowhere
               : SlotRef{Tier(packed >> kTierShift), SlotIndex{packed & ((1u << kTierShift) - 1)}};
  }
  void SetLower(SlotIndex slot, SlotRef lower) {
    if (lower.slot == kNoSlot && lower_.size() == 0) return;
    lower_[slot.value()] = lower.slot == kNoSlot
                               ? kNoLower
                               : uint32_t{lower.tier.value()} << kTierShift | lower.slot.value();
  }

  // Takes these slots, each once. REQUIRES: all slots are free. Cost: O(slots).
  void Claim(absl::Span<const SlotIndex> claimed);

 private:
  // An entry without an owner: kFreeBit and the next free slot, or kTaken.
  static constexpr uint32_t kFreeBit = 0x8000'0000;
  static constexpr uint32_t kTaken = 0xFFFF'FFFF;
  static bool IsFree(uint32_t entry) { return (entry & kFreeBit) != 0 && entry != kTaken; }

  static constexpr SlotRef kNowhere = {kPrimaryTier, kNoSlot};
  static constexpr uint32_t kNoLower = 0;  // The first tier is never a lower one.
  static constexpr uint32_t kTierShift = 30;
  static_assert(kMaxTiers <= 4);

  BigArray<uint32_t> slots_;
  BigArray<uint32_t> lower_;
  uint32_t first_free_ = 0;
  uint32_t free_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_SLOT_TABLE_H_
