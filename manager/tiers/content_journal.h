// The journal of the slots of one window that get or lose content.
#ifndef PAGODA_MANAGER_TIERS_CONTENT_JOURNAL_H_
#define PAGODA_MANAGER_TIERS_CONTENT_JOURNAL_H_

#include <cstdint>
#include <vector>

#include "events/event.h"
#include "manager/tiers/block_copies.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "manager/words/slot_journal.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. Thread-compatible.
//
// Invariant: CoreServices::slot_changes names, in order, each slot in memory that gets or loses
// content. A duplicate counts as a slot without content.
class ContentJournal {
 public:
  // `slots` and `copies` outlive the journal.
  ContentJournal(const ResidencyContext& context, const TierSlots* slots, const BlockCopies* copies)
      : index_(context.options.index),
        changes_(context.services.slot_changes),
        store_(context.store),
        tree_(context.tree),
        slots_(*slots),
        copies_(*copies) {}

  // The block's slot has its content: the block entered the tree or moved.
  void NoteContent(BlockId id) {
    if (changes_ != nullptr && !slots_.IsOnDisk(store_[id].tier())) WriteContent(id);
  }
  void NoteNothing(SlotRef slot) {
    if (changes_ != nullptr && !slots_.IsOnDisk(slot.tier)) WriteNothing(slot);
  }
  // What the journal, or a disk, says of a cached block.
  SlotContent ContentOf(BlockId id) const;

 private:
  void WriteContent(BlockId id);
  void WriteNothing(SlotRef slot);

  const uint32_t index_;
  std::vector<SlotChange>* const changes_;  // nullptr: no journal is kept.
  const BlockStore& store_;
  const PrefixTree& tree_;
  const TierSlots& slots_;
  const BlockCopies& copies_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_CONTENT_JOURNAL_H_
