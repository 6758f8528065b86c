// The copies that are ordered and not done: the order in which they touch slots, and the losses
// when one fails.
#ifndef PAGODA_MANAGER_SERVICES_COPY_TRACKER_H_
#define PAGODA_MANAGER_SERVICES_COPY_TRACKER_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "manager/services/order_lanes.h"
#include "manager/words/ids.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// A slot is named by the index of its window and its SlotRef. Thread-compatible. Memory and cost
// are proportional to the copies in flight; without any, a call costs one comparison.
//
// Invariants
// 1. The copies that touch a slot form a chain: each names the one before.
// 2. A slot is in flight while a copy that touches it is not done.
// 3. If the bytes of a copy's source came from a failed copy, the copy has failed too, whatever its
// own status.
// 4. A copy names the running sequences that have its target in their tables, and the copies that
// read its target before its bytes arrive. So the cost of a failure
// depends only on what it touches.
class CopyTracker {
 public:
  // `lanes` outlives the tracker.
  explicit CopyTracker(OrderLanes* lanes) : lanes_(*lanes) {}

  // Orders a copy of the first `num_tokens` tokens for `target_block`, which owns the target from
  // now on.
  Ticket Order(uint32_t window, SlotRef source, SlotRef target, BlockRef target_block,
               uint32_t num_tokens);

  // The last copy that touches the slot, if it is not done; 0 otherwise. A writer of the slot waits
  // for it.
  Ticket LastTouch(uint32_t window, SlotRef slot) const { return TouchesOf(window, slot).last; }
  // The copy that brings the slot's bytes, if it is not done; 0 otherwise. A reader of the slot
  // waits for it.
  Ticket Arrival(uint32_t window, SlotRef slot) const { return TouchesOf(window, slot).arrival; }
  // The slot has a new owner that writes it itself. Bytes that are still to arrive have no meaning.
  void Overwrite(uint32_t window, SlotRef slot);

  // The sequence has the slot in its table, or no longer has it. Does nothing if the slot's bytes
  // have arrived.
  void AddReader(uint32_t window, SlotRef slot, SequenceKey sequence);
  void RemoveReader(uint32_t window, SlotRef slot, SequenceKey sequence);
  // Whether the copy that brings the slot's bytes names the sequence as a reader; true if there is
  // no such copy.
  bool KnowsReader(uint32_t window, SlotRef slot, SequenceKey sequence) const;

  struct Lost {
    uint32_t window = 0;
    BlockRef block;  // The block whose bytes did not arrive.
    SlotRef target;
    absl::btree_set<SequenceKey> readers;
  };
  // A copy has ended, well or not. Copies can end in any order that their chains allow. Returns
  // what is lost: the copy failed and its target's bytes are still expected. REQUIRES: it is in
  // flight.
  std::optional<Lost> Complete(Ticket ticket, const absl::Status& status);

  // The last copy that was ordered.
  Ticket last() const { return lanes_.last(Lane::kMemory); }
  bool idle() const { return copies_.empty(); }
  size_t in_flight() const { return copies_.size(); }
  // The slots of a window that are in flight, ascending by tier and index.
  std::vector<SlotRef> SlotsInFlight(uint32_t window) const;

 private:
  struct Slot {
    uint32_t window;
    SlotRef slot;
    friend bool operator==(const Slot&, const Slot&) = default;
    template <class H>
    friend H AbslHashValue(H h, const Slot& s) {
      return H::combine(std::move(h), s.window, s.slot.tier, s.slot.slot);
    }
  };
  struct Touches {
    Ticket last;
    Ticket arrival;  // 0: the bytes are there, or the owner will write them.
  };
  struct Copy {
    uint32_t window;
    SlotRef source, target;
    BlockRef target_block;
    bool poisoned = false;
    std::vector<Ticket> followers;  // Copies whose source's bytes this copy brings.
    absl::btree_set<SequenceKey> readers;
  };

  // Nothing if no copy touches the slot.
  Touches TouchesOf(uint32_t window, SlotRef slot) const;
  void EndTouch(uint32_t window, SlotRef slot, Ticket ticket);

  OrderLanes& lanes_;
  absl::flat_hash_map<Ticket, Copy> copies_;  // In flight.
  absl::flat_hash_map<Slot, Touches> slots_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SERVICES_COPY_TRACKER_H_
