// The copies of blocks of one window on disk: how a block gets one, and which ones the disk gives
// up.
#ifndef PAGODA_MANAGER_TIERS_DISK_COPIES_H_
#define PAGODA_MANAGER_TIERS_DISK_COPIES_H_

#include "events/event.h"
#include "manager/services/event_recorder.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/file_slots.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_candidates.h"
#include "manager/tiers/tier_counts.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. Thread-compatible. All methods REQUIRE a tier on disk.
//
// Invariants
// 1. The parent of a block with a copy on disk counts that child, from the order of the backup
// until the copy is lost (TierCandidates::CountChildOnDisk).
// 2. A copy on disk is its block's farthest copy. If the block has a nearer one, it is a duplicate.
class DiskCopies {
 public:
  // The parts outlive the copies.
  DiskCopies(const ResidencyContext& context, TierSlots* slots, TierCounts* counts,
             FileSlots* file_slots, TierCandidates* candidates)
      : options_(context.options),
        store_(context.store),
        tree_(context.tree),
        exit_(context.exit),
        recorder_(*context.services.recorder),
        slots_(*slots),
        counts_(*counts),
        file_slots_(*file_slots),
        candidates_(*candidates) {}

  // The write of a backup is done: the block has one more copy, in a slot that was in transit.
  // REQUIRES: CountChildOnDisk() has counted it.
  void Attach(OperationScope& op, BlockId id, SlotIndex slot);
  // A cached block has one more copy, in a claimed slot.
  void AttachRecovered(OperationScope& op, BlockId id, SlotIndex slot);
  // The block, which stays in the tree or leaves it, loses its copy. Detach records no event.
  // REQUIRES: for Drop, the block has a nearer copy; for Detach, the copy is in `slot`.
  void Drop(OperationScope& op, BlockId id);
  void Detach(OperationScope& op, BlockId id, SlotIndex slot, FileSlots::Lost lost);

  // Frees a slot of the file if none is free and a copy there does not stay. Returns whether one is
  // free.
  bool FreeSlot(OperationScope& op, BlockId comes);
  // Makes the tenant's quota allow a block that falls to its copy on disk. Returns whether it does.
  bool MakeQuota(OperationScope& op, BlockId comes);

 private:
  bool Stays(const OperationScope& op, BlockId id, BlockId comes) const;
  void GiveUp(OperationScope& op, BlockId victim);
  void RecordChange(BlockId id, TierSet before);

  const ResidencyOptions& options_;
  const BlockStore& store_;
  const PrefixTree& tree_;
  CacheExit& exit_;
  EventRecorder& recorder_;
  TierSlots& slots_;
  TierCounts& counts_;
  FileSlots& file_slots_;
  TierCandidates& candidates_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_DISK_COPIES_H_
