#include "manager/tiers/disk_backups.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

// How many blocks above a waiting one a step looks at.
constexpr size_t kMaxClimb = 256;
// This many failed writes in a row end the backups until the next start.
constexpr uint32_t kMaxWriteErrors = 8;

}  // namespace

DiskBackups::DiskBackups(const ResidencyContext& context, TierSlots* slots, BlockCopies* copies,
                         const ContentJournal* journal, FileSlots* file_slots,
                         TierCandidates* candidates, DiskCopies* disk_copies)
    : options_(context.options),
      services_(context.services),
      store_(context.store),
      tree_(context.tree),
      slots_(*slots),
      copies_(*copies),
      journal_(*journal),
      file_slots_(*file_slots),
      candidates_(*candidates),
      disk_copies_(*disk_copies) {
  if (slots_.has_disk()) queued_ = BigArray<Queued>(store_.num_ids());
}

DiskBackups::Backup* DiskBackups::BackupOf(BlockId id) {
  for (Backup& backup : backups_) {
    if (backup.block.id == id && !backup.abandoned) return &backup;
  }
  return nullptr;
}

// --- Blocks that wait for a backup ---

void DiskBackups::Released(OperationScope& op, BlockId id) {
  const Block& block = store_[id];
  if (slots_.IsOnDisk(block.tier()) || tree_.IsCutOff(id)) return;
  if (slots_.HasCopyOnDisk(id)) {
    candidates_.UnlistOnDisk(op, id);
    return candidates_.ListOnDisk(op, id);
  }
  Queued& queued = queued_[id.value()];
  if (queued.is_queued && block.uses <= queued.uses) return;
  if (block.priority() < options_.min_priority(slots_.disk()) || BackupOf(id) != nullptr) return;
  queued = {.is_queued = 1, .uses = static_cast<uint8_t>(block.uses)};
  const std::optional<BlockRef> forgotten =
      queue_.Push(store_.handle(id).ref(), static_cast<uint8_t>(block.uses), block.priority());
  if (forgotten.has_value() && store_[forgotten->id].generation == forgotten->generation) {
    queued_[forgotten->id.value()].is_queued = 0;
  }
}

void DiskBackups::AskForBackup(BlockId id) {
  if (slots_.IsOnDisk(store_[id].tier()) || HasOrGetsCopy(id)) return;
  if (queue_.size() >= BackupQueue::kMaxBlocks) return;
  queued_[id.value()].is_queued = 1;
  queue_.PushFirst(store_.handle(id).ref());
}

void DiskBackups::OrderBackups(OperationScope& op, uint32_t max_blocks) {
  if (!slots_.has_disk() || file_slots_.IsErasingAll() || write_errors_ >= kMaxWriteErrors) return;
  std::vector<BlockRef> path;
  for (uint32_t i = 0; i < max_blocks && slots_.free_staging() != 0; ++i) {
    const std::optional<BlockRef> next = queue_.Pop();
    if (!next.has_value()) return;
    const BlockId id = next->id;
    const Block& block = store_[id];
    if (block.generation != next->generation) continue;
    queued_[id.value()].is_queued = 0;
    if (block.state() != BlockState::kCached || slots_.IsOnDisk(block.tier()) ||
        tree_.IsCutOff(id) || HasOrGetsCopy(id)) {
      continue;
    }
    // Blocks above it without a copy on disk come first.
    path.assign(1, *next);
    bool is_below_hole = false;
    for (NodeRef node = tree_.parent(id); !node.is_root(); node = tree_.parent(path.back().id)) {
      const BlockId above = node.block();
      if (HasOrGetsCopy(above)) break;
      is_below_hole = store_[above].state() != BlockState::kCached;
      if (is_below_hole) break;
      path.push_back(store_.handle(above).ref());
      if (path.size() == kMaxClimb) break;
    }
    if (is_below_hole) continue;
    const auto wait = [&] {
      queued_[id.value()].is_queued = 1;
      queue_.PushFirst(*next);
    };
    const NodeRef above = tree_.parent(path.back().id);
    if (!above.is_root() && !HasOrGetsCopy(above.block())) {
      // The path is long: its upper blocks come before this one.
      wait();
      AskForBackup(path.back().id);
      continue;
    }
    for (size_t n = path.size(); n-- > 0;) {
      if (slots_.free_staging() == 0 ||
          !services_.write_budget->Take(options_.block_bytes, op.now)) {
        return wait();
      }
      const bool lives = store_[path[n].id].generation == path[n].generation &&
                         store_[path[n].id].state() == BlockState::kCached;
      if (lives && OrderBackup(op, path[n].id)) continue;
      services_.write_budget->GiveBack(options_.block_bytes);
      break;
    }
  }
}

// --- Backups under way ---

// Returns whether the backup is ordered. REQUIRES: invariant 1 holds; there is a staging slot.
bool DiskBackups::OrderBackup(OperationScope& op, BlockId id) {
  // From here on its parent stays on disk.
  candidates_.CountChildOnDisk(op, id, +1);
  ordering_ = id;
  const bool has_slot = disk_copies_.FreeSlot(op, id);
  // In a sliding window the block can have left to free the slot.
  if (std::exchange(ordering_, kNoBlock) == kNoBlock) return false;
  if (!has_slot) {
    candidates_.CountChildOnDisk(op, id, -1);
    return false;
  }
  const SlotIndex staging = slots_.TakeStaging();
  const SlotIndex file = file_slots_.TakeForWrite();
  // Reads from the tier with the staging slots if the block has a copy there.
  SlotRef source = store_.slot(id);
  for (SlotRef slot = source; slot.slot != kNoSlot && !slots_.IsOnDisk(slot.tier);
       slot = slots_.Lower(slot)) {
    source = slot;
  }
  const Ticket copy = copies_.Order(id, source, {slots_.above_disk(), staging});
  backups_.push_back(
      {.block = store_.handle(id).ref(), .file = file, .staging = staging, .copy = copy});
  backup_bytes_ += options_.block_bytes;
  return true;
}

void DiskBackups::CopyEnded(OperationScope& op, Ticket ticket, bool ok) {
  if (backups_.empty()) return;
  const auto backup = std::find_if(backups_.begin(), backups_.end(), [&](const Backup& other) {
    return other.copy == ticket && other.ticket == Ticket{};
  });
  if (backup == backups_.end()) return;
  (ok ? backup->filled : backup->failed) = true;
  SubmitBackups(op);
}

// In the order of the backups, so a block's write is ordered after its parent's.
void DiskBackups::SubmitBackups(OperationScope& op) {
  for (size_t i = 0; i < backups_.size();) {
    Backup& backup = backups_[i];
    if (backup.ticket != Ticket{}) {
      ++i;
      continue;
    }
    if (!backup.filled && !backup.failed) return;
    const BlockId id = backup.block.id;
    // A write of a cut-off block would come after the erase that is to remove it.
    bool possible = backup.filled && !backup.abandoned && !tree_.IsCutOff(id);
    SlotIndex parent_file = kNoSlot;
    const NodeRef parent = possible ? tree_.parent(id) : NodeRef();
    if (possible && !parent.is_root()) {
      parent_file = slots_.CopyOnDisk(parent.block());
      if (parent_file == kNoSlot) {
        const Backup* above = BackupOf(parent.block());
        if (above != nullptr && above->ticket != Ticket{}) parent_file = above->file;
      }
      possible = parent_file != kNoSlot;
    }
    if (!possible) {
      // Its part of the write budget is not given back: the budget has filled up since.
      if (!backup.abandoned) candidates_.CountChildOnDisk(op, id, -1);
      backup_bytes_ -= options_.block_bytes;
      const SlotIndex file = backup.file;
      EndBackup(backups_.begin() + static_cast<ptrdiff_t>(i));
      file_slots_.Release(file);
      continue;
    }
    backup.ticket = services_.lanes->Add(
        {.lane = Lane::kBackup,
         .window_index = options_.index,
         .source = {slots_.above_disk(), backup.staging},
         .target = slots_.FileSlot(backup.file),
         .content = std::make_shared<const SlotContent>(journal_.ContentOf(id)),
         .parent = parent_file});
    ++i;
  }
}

void DiskBackups::EndBackup(std::deque<Backup>::iterator backup) {
  slots_.ReleaseStaging(backup->staging);
  backups_.erase(backup);
}

void DiskBackups::BackupEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
  if (file_slots_.EraseEnded(ticket, status)) return;
  services_.lanes->Close(Lane::kBackup, ticket);
  const auto it = std::find_if(backups_.begin(), backups_.end(),
                               [&](const Backup& other) { return other.ticket == ticket; });
  const Backup backup = *it;
  const BlockId id = backup.block.id;
  EndBackup(it);
  if (status.ok()) {
    write_errors_ = 0;
    if (!backup.abandoned && !tree_.IsCutOff(id)) {
      ++backed_up_;
      return disk_copies_.Attach(op, id, backup.file);
    }
    if (!backup.abandoned) candidates_.CountChildOnDisk(op, id, -1);
    if (backup.erased) return file_slots_.EndWrite(backup.file, FileSlots::Written::kEnded);
    return file_slots_.ReleaseWritten(backup.file);
  }
  ++failed_backups_;
  // A slot that the disk refused to write is not written again before the next start.
  const bool retired = absl::IsUnavailable(status) || absl::IsFailedPrecondition(status);
  if (retired) ++write_errors_;
  if (!backup.abandoned) candidates_.CountChildOnDisk(op, id, -1);
  if (retired) file_slots_.Retire();
  if (backup.erased) {
    file_slots_.EndWrite(backup.file,
                         retired ? FileSlots::Written::kRetired : FileSlots::Written::kEnded);
  } else if (!retired) {
    file_slots_.Release(backup.file);
  }
}

// --- Leaving the disk ---

void DiskBackups::Leave(OperationScope& op, BlockId id, FileSlots::Lost lost) {
  queued_[id.value()].is_queued = 0;
  if (id == ordering_) {
    ordering_ = kNoBlock;
    candidates_.CountChildOnDisk(op, id, -1);
  }
  if (Backup* backup = BackupOf(id); backup != nullptr) {
    candidates_.CountChildOnDisk(op, id, -1);
    backup->abandoned = true;
  }
  const SlotIndex slot = slots_.CopyOnDisk(id);
  if (slot != kNoSlot) disk_copies_.Detach(op, id, slot, lost);
}

Ticket DiskBackups::OrderErase(Order::Kind kind) {
  if (!slots_.has_disk()) return {};
  // A block that left before its backup ended may be one that must not come back. A backup that the
  // carrier has no order for is not written at all.
  for (Backup& backup : backups_) {
    if (kind == Order::Kind::kEraseAll || !backup.abandoned || backup.erased ||
        backup.ticket == Ticket{}) {
      continue;
    }
    backup.erased = true;
    file_slots_.EraseWhenWritten(backup.file);
  }
  return file_slots_.OrderErase(kind);
}

void DiskBackups::AddStats(DiskTierStats* stats) const {
  stats->backups = backed_up_;
  stats->backup_bytes = backup_bytes_;
  stats->failed_backups = failed_backups_;
  stats->waiting_backups = queue_.size();
}

uint32_t DiskBackups::CheckInvariants(std::vector<uint32_t>* children) const {
  uint32_t in_transit = 0;
  for (const Backup& backup : backups_) {
    PAGODA_CHECK(slots_.OwnerOf(slots_.FileSlot(backup.file)) == kNoBlock,
                 "a backup has its slot to itself");
    if (!backup.erased) ++in_transit;
    if (backup.abandoned) continue;
    const NodeRef parent = tree_.parent(backup.block.id);
    if (!parent.is_root()) ++(*children)[parent.block().value()];
  }
  const size_t above = slots_.above_disk().value();
  PAGODA_CHECK(slots_.free_staging() + backups_.size() == options_.tiers[above].staging_slots,
               "a staging slot is free or belongs to a backup");
  return in_transit;
}

}  // namespace pagoda
