// A queue of slots of a tier, in the order of arrival. Slots can be removed from any place.
#ifndef PAGODA_MANAGER_SLOT_QUEUE_H_
#define PAGODA_MANAGER_SLOT_QUEUE_H_

#include <cstdint>

#include "base/check.h"
#include "manager/big_array.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible. 8 bytes a slot, taken at the start. Every call is O(1).
class SlotQueue {
 public:
  SlotQueue() = default;
  explicit SlotQueue(uint32_t num_slots) : links_(num_slots + size_t{1}), end_(num_slots) {
    for (uint32_t i = 0; i <= num_slots; ++i) links_[i] = {i, i};
  }

  uint32_t size() const { return size_; }
  // The oldest slot. REQUIRES: size() > 0.
  SlotIndex front() const { return SlotIndex{links_[end_].next}; }
  // REQUIRES: the slot is not in the queue.
  void PushBack(SlotIndex slot) {
    const uint32_t i = slot.value();
    PAGODA_CHECK(links_[i].next == i, "a slot is queued once");
    links_[i] = {links_[end_].previous, end_};
    links_[links_[end_].previous].next = i;
    links_[end_].previous = i;
    ++size_;
  }
  // REQUIRES: the slot is in the queue.
  void Remove(SlotIndex slot) {
    const uint32_t i = slot.value();
    const Links links = links_[i];
    PAGODA_CHECK(links.next != i, "what leaves the queue was in it");
    links_[links.previous].next = links.next;
    links_[links.next].previous = links.previous;
    links_[i] = {i, i};
    --size_;
  }
  bool contains(SlotIndex slot) const { return links_[slot.value()].next != slot.value(); }

 private:
  struct Links {
    uint32_t previous;
    uint32_t next;
  };

  // By slot; the last entry is the end of the ring. A slot that is not queued links to itself.
  BigArray<Links> links_;
  uint32_t end_ = 0;
  uint32_t size_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SLOT_QUEUE_H_
