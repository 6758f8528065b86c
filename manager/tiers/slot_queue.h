// A queue of slots of a tier, or of blocks, in the order of arrival. They can be removed from any
// place.
#ifndef PAGODA_MANAGER_TIERS_SLOT_QUEUE_H_
#define PAGODA_MANAGER_TIERS_SLOT_QUEUE_H_

#include <cstdint>

#include "base/big_array.h"
#include "base/check.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible. 8 bytes for each possible entry, taken at the start. Every call is O(1).
template <class Index>
class IndexQueue {
 public:
  IndexQueue() = default;
  // Entries are below `num_indices`.
  explicit IndexQueue(uint32_t num_indices) : links_(num_indices + size_t{1}), end_(num_indices) {
    for (uint32_t i = 0; i <= num_indices; ++i) links_[i] = {i, i};
  }

  uint32_t size() const { return size_; }
  // The oldest entry, and the newest. REQUIRES: size() > 0.
  Index front() const { return Index{links_[end_].next}; }
  Index back() const { return Index{links_[end_].previous}; }
  // REQUIRES: the entry is not in the queue.
  void PushBack(Index entry) {
    const uint32_t i = entry.value();
    PAGODA_CHECK(links_[i].next == i, "an entry is queued once");
    links_[i] = {links_[end_].previous, end_};
    links_[links_[end_].previous].next = i;
    links_[end_].previous = i;
    ++size_;
  }
  // REQUIRES: the entry is in the queue.
  void Remove(Index entry) {
    const uint32_t i = entry.value();
    const Links links = links_[i];
    PAGODA_CHECK(links.next != i, "what leaves the queue was in it");
    links_[links.previous].next = links.next;
    links_[links.next].previous = links.previous;
    links_[i] = {i, i};
    --size_;
  }
  bool contains(Index entry) const { return links_[entry.value()].next != entry.value(); }

 private:
  struct Links {
    uint32_t previous;
    uint32_t next;
  };

  // By index; the last element is the end of the ring. What is not queued links to itself.
  BigArray<Links> links_;
  uint32_t end_ = 0;
  uint32_t size_ = 0;
};

using SlotQueue = IndexQueue<SlotIndex>;

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_SLOT_QUEUE_H_
