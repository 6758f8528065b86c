#include "manager/tiers/slot_table.h"

namespace pagoda {

SlotTable::SlotTable(uint32_t num_slots, LowerCopies lower_copies)
    : slots_(num_slots), free_(num_slots) {
  PAGODA_CHECK(num_slots < (kFreeBit - 1), "a tier has fewer than 2^31 - 1 slots");
  if (lower_copies == LowerCopies::kYes) lower_ = BigArray<uint32_t>(num_slots);
  for (uint32_t i = 0; i < num_slots; ++i) slots_[i] = kFreeBit | (i + 1);
}

void SlotTable::Claim(absl::Span<const SlotIndex> claimed) {
  PAGODA_CHECK(free_ == size(), "slots are claimed before any is taken");
  for (const SlotIndex slot : claimed) slots_[slot.value()] = kTaken;
  uint32_t next = size();
  free_ = 0;
  for (uint32_t i = next; i-- > 0;) {
    if (slots_[i] == kTaken) continue;
    slots_[i] = kFreeBit | next;
    next = i;
    ++free_;
  }
  first_free_ = next;
}

}  // namespace pagoda
