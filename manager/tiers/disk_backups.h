// The backups of one window: which blocks wait for a copy on disk, and which are being written.
#ifndef PAGODA_MANAGER_TIERS_DISK_BACKUPS_H_
#define PAGODA_MANAGER_TIERS_DISK_BACKUPS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "base/big_array.h"
#include "events/event.h"
#include "manager/api/stats.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/backup_queue.h"
#include "manager/tiers/block_copies.h"
#include "manager/tiers/content_journal.h"
#include "manager/tiers/disk_copies.h"
#include "manager/tiers/file_slots.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_candidates.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "manager/words/ids.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. A backup puts a copy of a block in memory on disk: a copy to a staging
// slot, then a write from that slot. Nothing waits for it. Thread-compatible.
//
// Invariants
// 1. A backup begins only if the parent has a copy on disk, or an earlier backup under way. The
// writes are ordered in the order of the backups.
// 2. A block has at most one backup under way, and none if it has a copy on disk.
// 3. A staging slot is free or belongs to a backup, and a backup's slot of the file is in transit.
class DiskBackups {
 public:
  // The parts outlive the backups.
  DiskBackups(const ResidencyContext& context, TierSlots* slots, BlockCopies* copies,
              const ContentJournal* journal, FileSlots* file_slots, TierCandidates* candidates,
              DiskCopies* disk_copies);

  // Orders backups of waiting blocks, as far as the write budget, the staging slots and the disk's
  // slots allow. Looks at `max_blocks` waiting blocks at most. Does nothing without a disk.
  void OrderBackups(OperationScope& op, uint32_t max_blocks);
  // A copy of the memory lane has ended: possibly the one that fills a staging slot.
  void CopyEnded(OperationScope& op, Ticket ticket, bool ok);
  // The carrier's answer to a backup, or to an erase. See BlockManager::Complete.
  void BackupEnded(OperationScope& op, Ticket ticket, const absl::Status& status);
  // See FileSlots::OrderErase. Includes the backups under way. Returns 0 without a disk.
  Ticket OrderErase(Order::Kind kind);

  // --- What happens to blocks. REQUIRE: there is a tier on disk ---

  // Nothing holds the block any more. Queues it for a backup, or makes its copy on disk the most
  // recent.
  void Released(OperationScope& op, BlockId id);
  // Ends the block's copy on disk or its backup. The block is still in the tree.
  void Leave(OperationScope& op, BlockId id, FileSlots::Lost lost);

  void AddStats(DiskTierStats* stats) const;
  // For tests. Adds the backups' blocks to their parents' `children`, by block id. Returns the
  // slots of the file that are in transit because of backups alone.
  uint32_t CheckInvariants(std::vector<uint32_t>* children) const;

 private:
  // A block that is being written to disk.
  struct Backup {
    BlockRef block;
    SlotIndex file;
    SlotIndex staging;
    Ticket copy;             // The copy in the memory lane that fills the staging slot.
    Ticket ticket;           // 0: the carrier has no order for it yet.
    bool filled = false;     // The copy succeeded.
    bool failed = false;     // The copy failed.
    bool abandoned = false;  // The block left the tree.
    bool erased = false;     // Abandoned, and an erase was ordered for it.
  };
  // The queue state of a block id.
  struct Queued {
    uint8_t is_queued : 1 = 0;
    uint8_t uses : 2 = 0;  // Block::uses when it was last queued.
  };

  Backup* BackupOf(BlockId id);
  bool HasOrGetsCopy(BlockId id) { return slots_.HasCopyOnDisk(id) || BackupOf(id) != nullptr; }
  // Puts the block first in the queue. Does nothing if it has a copy on disk or a backup under way.
  void AskForBackup(BlockId id);
  bool OrderBackup(OperationScope& op, BlockId id);
  void SubmitBackups(OperationScope& op);
  void EndBackup(std::deque<Backup>::iterator backup);

  const ResidencyOptions& options_;
  const CoreServices& services_;
  const BlockStore& store_;
  const PrefixTree& tree_;
  TierSlots& slots_;
  BlockCopies& copies_;
  const ContentJournal& journal_;
  FileSlots& file_slots_;
  TierCandidates& candidates_;
  DiskCopies& disk_copies_;
  BackupQueue queue_;
  BigArray<Queued> queued_;      // By block id. Empty without a disk.
  std::deque<Backup> backups_;   // In the order of their orders.
  BlockId ordering_ = kNoBlock;  // The block for whose backup a slot is being freed.
  uint32_t write_errors_ = 0;    // In a row.
  uint64_t backed_up_ = 0;
  uint64_t backup_bytes_ = 0;
  uint64_t failed_backups_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_DISK_BACKUPS_H_
