// The running copies between the slots of one window, by the blocks that own the slots.
#ifndef PAGODA_MANAGER_TIERS_BLOCK_COPIES_H_
#define PAGODA_MANAGER_TIERS_BLOCK_COPIES_H_

#include <cstdint>
#include <vector>

#include "events/event.h"
#include "manager/services/copy_tracker.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/words/ids.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency: CopyTracker, which all windows share, for one window. Thread-compatible.
// Keeps no state of its own. While no copy is running, a call costs one comparison.
class BlockCopies {
 public:
  // `slots` outlives the copies.
  BlockCopies(const ResidencyContext& context, const TierSlots* slots)
      : index_(context.options.index),
        store_(context.store),
        tracker_(*context.services.copies),
        slots_(*slots) {}

  // Whether no window has a running copy.
  bool idle() const { return tracker_.idle(); }
  // The last copy that was ordered, in any window.
  Ticket last() const { return tracker_.last(); }

  // Orders a copy of a block's tokens between slots.
  Ticket Order(BlockId id, SlotRef source, SlotRef target) {
    return tracker_.Order(index_, source, target, store_.handle(id).ref(), store_[id].token_count);
  }
  // Copies the first `num_tokens` tokens of `source` to the slot of `target`.
  void CopyTokens(OperationScope& op, BlockId source, BlockId target, uint32_t num_tokens) {
    op.WaitFor(tracker_.Order(index_, store_.slot(source), store_.slot(target),
                              store_.handle(target).ref(), num_tokens));
  }

  // Makes the operation wait for the copies that bring the block's bytes (before a read), or for
  // all copies that touch its slot (before a write).
  void WaitToRead(OperationScope& op, BlockId id) const {
    if (!idle()) op.WaitFor(Arrival(store_.slot(id)));
  }
  void WaitToWrite(OperationScope& op, BlockId id) const {
    if (!idle()) op.WaitFor(LastTouch(store_.slot(id)));
  }
  bool IsArriving(BlockId id) const { return Arrival(store_.slot(id)) != Ticket{}; }
  bool IsTouched(BlockId id) const { return LastTouch(store_.slot(id)) != Ticket{}; }
  // See CopyTracker. The slot can have any owner.
  Ticket Arrival(SlotRef slot) const { return tracker_.Arrival(index_, slot); }
  Ticket LastTouch(SlotRef slot) const { return tracker_.LastTouch(index_, slot); }
  std::vector<SlotRef> SlotsInFlight() const { return tracker_.SlotsInFlight(index_); }
  // The slot has a new owner, which writes it itself. Returns the copy that it waits for.
  Ticket Overwrite(SlotRef slot) {
    const Ticket last_touch = LastTouch(slot);
    tracker_.Overwrite(index_, slot);
    return last_touch;
  }
  // The nearest copy in one of the tiers whose bytes have arrived; kNoSlot if there is none.
  SlotRef CompleteCopy(BlockId id, TierSet tiers) const;

  // The sequence's table names the block for reading, or no longer does.
  void AddReader(BlockId id, SequenceKey sequence) {
    if (!idle()) tracker_.AddReader(index_, store_.slot(id), sequence);
  }
  void RemoveReader(BlockId id, SequenceKey sequence) {
    if (!idle()) tracker_.RemoveReader(index_, store_.slot(id), sequence);
  }
  bool KnowsReader(BlockId id, SequenceKey sequence) const {
    return tracker_.KnowsReader(index_, store_.slot(id), sequence);
  }

 private:
  const uint32_t index_;
  const BlockStore& store_;
  CopyTracker& tracker_;
  const TierSlots& slots_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_BLOCK_COPIES_H_
