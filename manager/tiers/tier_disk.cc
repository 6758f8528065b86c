// The part of TierResidency for copies on disk: backups, and which copies the disk gives up.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "manager/tiers/tier_residency.h"

namespace pagoda {
namespace {

// How many blocks above a waiting one a step looks at.
constexpr size_t kMaxClimb = 256;
// The most copies on disk that a tenant at its quota gives up for one block.
constexpr int kMaxGivenUp = 64;
// This many failed writes in a row end the backups until the next start.
constexpr uint32_t kMaxWriteErrors = 8;
// How often an erase is tried.
constexpr size_t kMaxEraseTries = 8;

}  // namespace

// --- Copies on disk ---

SlotIndex TierResidency::CopyOnDisk(BlockId id) const {
  if (!has_disk() || store_[id].state() != BlockState::kCached) return kNoSlot;
  SlotRef slot = store_.slot(id);
  while (slot.slot != kNoSlot && !IsOnDisk(slot.tier)) slot = Lower(slot);
  return slot.slot;
}

TierResidency::Backup* TierResidency::BackupOf(BlockId id) {
  for (Backup& backup : disk_.backups) {
    if (backup.block.id == id && !backup.abandoned) return &backup;
  }
  return nullptr;
}

bool TierResidency::IsDiskCandidate(BlockId id, SlotIndex slot) const {
  const Block& block = store_[id];
  if (IsOnDisk(block.tier()) && block.refs != 0) return false;
  return !disk_.uses.contains(slot) && disk_.entries[id.value()].children == 0;
}

void TierResidency::ListOnDisk(OperationScope& op, BlockId id, DiskListing why) {
  const SlotIndex slot = CopyOnDisk(id);
  if (slot == kNoSlot || disk_.listed[slot.value()]) return;
  if (!IsDiskCandidate(id, slot)) return UnlistOnDisk(op, id);
  disk_.listed[slot.value()] = true;
  if (!IsOnDisk(store_[id].tier())) NotifyInheritedOnDisk(op, id, slot, store_.slot(id));
  EvictionPolicy& policy_on_disk = policy(static_cast<Tier>(disk_.tier), id);
  const BlockFacts facts = FactsIn(op, id, slot);
  why == DiskListing::kUnparked ? policy_on_disk.Unparked(facts) : policy_on_disk.Released(facts);
}

void TierResidency::UnlistOnDisk(OperationScope& op, BlockId id) {
  const SlotIndex slot = CopyOnDisk(id);
  if (slot == kNoSlot || !disk_.listed[slot.value()]) return;
  disk_.listed[slot.value()] = false;
  policy(static_cast<Tier>(disk_.tier), id).Withdrawn(FactsIn(op, id, slot));
}

void TierResidency::CountChildOnDisk(OperationScope& op, BlockId child, int change,
                                     DiskListing why) {
  const NodeRef parent = tree_.parent(child);
  if (parent.is_root()) return;
  const BlockId above = parent.block();
  Disk::Entry& entry = disk_.entries[above.value()];
  entry.children += static_cast<uint32_t>(change);
  if (entry.children == 0) {
    ListOnDisk(op, above, why);
  } else {
    UnlistOnDisk(op, above);
  }
}

// --- Blocks that wait for a backup ---

void TierResidency::ReleasedAboveDisk(OperationScope& op, BlockId id) {
  const Block& block = store_[id];
  if (IsOnDisk(block.tier()) || tree_.IsCutOff(id)) return;
  if (CopyOnDisk(id) != kNoSlot) {
    UnlistOnDisk(op, id);
    return ListOnDisk(op, id);
  }
  Disk::Entry& entry = disk_.entries[id.value()];
  if (entry.queued && block.uses <= entry.queued_uses) return;
  if (block.priority() < OnDisk().min_priority || BackupOf(id) != nullptr) return;
  entry.queued = 1;
  entry.queued_uses = block.uses;
  const std::optional<BlockRef> forgotten =
      disk_.queue.Push(store_.handle(id).ref(), static_cast<uint8_t>(block.uses), block.priority());
  if (forgotten.has_value() && store_[forgotten->id].generation == forgotten->generation) {
    disk_.entries[forgotten->id.value()].queued = 0;
  }
}

void TierResidency::AskForBackup(BlockId id) {
  if (IsOnDisk(store_[id].tier()) || HasOrGetsCopyOnDisk(id)) return;
  if (disk_.queue.size() >= BackupQueue::kMaxBlocks) return;
  disk_.entries[id.value()].queued = 1;
  disk_.queue.PushFirst(store_.handle(id).ref());
}

void TierResidency::OrderBackups(OperationScope& op, uint32_t max_blocks) {
  if (!has_disk() || disk_.resets != 0 || disk_.write_errors >= kMaxWriteErrors) return;
  std::vector<BlockRef> path;
  for (uint32_t i = 0; i < max_blocks && !disk_.staging.empty(); ++i) {
    const std::optional<BlockRef> next = disk_.queue.Pop();
    if (!next.has_value()) return;
    const BlockId id = next->id;
    const Block& block = store_[id];
    if (block.generation != next->generation) continue;
    disk_.entries[id.value()].queued = 0;
    if (block.state() != BlockState::kCached || IsOnDisk(block.tier()) || tree_.IsCutOff(id) ||
        HasOrGetsCopyOnDisk(id)) {
      continue;
    }
    // Blocks above it without a copy on disk come first.
    path.assign(1, *next);
    bool is_below_hole = false;
    for (NodeRef node = tree_.parent(id); !node.is_root(); node = tree_.parent(path.back().id)) {
      const BlockId above = node.block();
      if (HasOrGetsCopyOnDisk(above)) break;
      is_below_hole = store_[above].state() != BlockState::kCached;
      if (is_below_hole) break;
      path.push_back(store_.handle(above).ref());
      if (path.size() == kMaxClimb) break;
    }
    if (is_below_hole) continue;
    const auto wait = [&] {
      disk_.entries[id.value()].queued = 1;
      disk_.queue.PushFirst(*next);
    };
    const NodeRef above = tree_.parent(path.back().id);
    if (!above.is_root() && !HasOrGetsCopyOnDisk(above.block())) {
      // The path is long: its upper blocks come before this one.
      wait();
      AskForBackup(path.back().id);
      continue;
    }
    for (size_t n = path.size(); n-- > 0;) {
      if (disk_.staging.empty() || !services_.write_budget->Take(options_.block_bytes, op.now)) {
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

// --- Backups ---

// Returns whether the backup is ordered. REQUIRES: invariant 9 holds; there is a staging slot.
bool TierResidency::OrderBackup(OperationScope& op, BlockId id) {
  // From here on its parent stays on disk.
  CountChildOnDisk(op, id, +1);
  disk_.ordering = id;
  const bool has_slot = FreeSlotOnDisk(op, id);
  // In a sliding window the block can have left to free the slot.
  if (std::exchange(disk_.ordering, kNoBlock) == kNoBlock) return false;
  if (!has_slot) {
    CountChildOnDisk(op, id, -1);
    return false;
  }
  const SlotIndex staging = disk_.staging.back();
  disk_.staging.pop_back();
  const SlotIndex file = OnDisk().slots.Take();
  ++OnDisk().in_transit;
  // Reads from the tier with the staging slots if the block has a copy there.
  SlotRef source = store_.slot(id);
  for (SlotRef slot = source; slot.slot != kNoSlot && !IsOnDisk(slot.tier); slot = Lower(slot)) {
    source = slot;
  }
  const Ticket copy =
      copies().Order(options_.index, source, {static_cast<Tier>(disk_.above), staging},
                     store_.handle(id).ref(), store_[id].token_count);
  disk_.backups.push_back(
      {.block = store_.handle(id).ref(), .file = file, .staging = staging, .copy = copy});
  disk_.stats.backup_bytes += options_.block_bytes;
  return true;
}

// Whether the candidate's copy on disk stays, rather than that of a block in memory: it has a
// higher priority, or its policy says that it is worth more. A block with children below memory is
// worth all of them.
bool TierResidency::StaysOnDisk(const OperationScope& op, BlockId id, BlockId comes) const {
  const Priority own = store_[id].priority(), other = store_[comes].priority();
  if (own != other) return own > other;
  const bool has_children = disk_.entries[comes.value()].children != 0;
  return OnDisk().follows_contents && !has_children && !tree_.IsCutOff(id) &&
         policy(static_cast<Tier>(disk_.tier), id)
             .Keeps(FactsIn(op, id, CopyOnDisk(id)), Facts(op, comes), store_[comes].tier());
}

// Frees a slot of the file if none is free and a copy there does not stay.
bool TierResidency::FreeSlotOnDisk(OperationScope& op, BlockId comes) {
  if (OnDisk().slots.free() > 0) return true;
  const BlockId victim = Victim(static_cast<Tier>(disk_.tier), kDefaultTenant);
  if (victim == kNoBlock || StaysOnDisk(op, victim, comes)) return false;
  GiveUpOnDisk(op, victim);
  return OnDisk().slots.free() > 0;
}

// Makes the tenant's quota allow a block that falls to its copy on disk.
bool TierResidency::MakeQuotaOnDisk(OperationScope& op, BlockId comes) {
  const auto disk = static_cast<Tier>(disk_.tier);
  const TenantId owner = accounts_.owner(comes);
  if (!accounts_.AtQuota(disk, owner)) return true;
  const Generation life = store_[comes].generation;
  for (int i = 0; accounts_.AtQuota(disk, owner); ++i) {
    UnlistOnDisk(op, comes);  // It is a candidate again when its last child on disk has gone.
    const BlockId victim = i < kMaxGivenUp ? Victim(disk, owner) : kNoBlock;
    if (victim == kNoBlock || StaysOnDisk(op, victim, comes)) return false;
    GiveUpOnDisk(op, victim);
    const Block& block = store_[comes];
    if (block.generation != life || block.state() != BlockState::kCached) return false;
  }
  return true;
}

// Gives up a candidate's copy on disk. If that is its last copy, the block leaves.
void TierResidency::GiveUpOnDisk(OperationScope& op, BlockId victim) {
  if (IsOnDisk(store_[victim].tier())) {
    exit_.Evict(op, victim, RemovalReason::kDisplaced);
  } else {
    DropOnDisk(op, victim);
  }
}

void TierResidency::CopyEnded(OperationScope& op, Ticket ticket, bool ok) {
  if (!has_disk() || disk_.backups.empty()) return;
  const auto backup = std::find_if(
      disk_.backups.begin(), disk_.backups.end(),
      [&](const Backup& other) { return other.copy == ticket && other.ticket == Ticket{}; });
  if (backup == disk_.backups.end()) return;
  (ok ? backup->filled : backup->failed) = true;
  SubmitBackups(op);
}

// In the order of the backups, so a block's write is ordered after its parent's.
void TierResidency::SubmitBackups(OperationScope& op) {
  for (size_t i = 0; i < disk_.backups.size();) {
    Backup& backup = disk_.backups[i];
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
      parent_file = CopyOnDisk(parent.block());
      if (parent_file == kNoSlot) {
        const Backup* above = BackupOf(parent.block());
        if (above != nullptr && above->ticket != Ticket{}) parent_file = above->file;
      }
      possible = parent_file != kNoSlot;
    }
    if (!possible) {
      // Its part of the write budget is not given back: the budget has filled up since.
      if (!backup.abandoned) CountChildOnDisk(op, id, -1);
      disk_.stats.backup_bytes -= options_.block_bytes;
      EndBackup(disk_.backups.begin() + static_cast<ptrdiff_t>(i), true);
      continue;
    }
    backup.ticket = services_.files->Give(Lane::kBackup, options_.index);
    services_.files->Order(FileOrder{.lane = Lane::kBackup,
                                     .ticket = backup.ticket,
                                     .window_index = options_.index,
                                     .memory = {static_cast<Tier>(disk_.above), backup.staging},
                                     .file = FileSlot(backup.file),
                                     .after = {},
                                     .content = ContentOf(id),
                                     .parent_file = parent_file});
    ++i;
  }
}

void TierResidency::EndBackup(std::deque<Backup>::iterator backup, bool slot_is_free) {
  disk_.staging.push_back(backup->staging);
  if (slot_is_free) {
    --OnDisk().in_transit;
    OnDisk().slots.Release(backup->file);
  }
  disk_.backups.erase(backup);
}

void TierResidency::BackupEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
  if (disk_.erasing.contains(ticket)) return EraseEnded(ticket, status);
  services_.files->Close(Lane::kBackup, ticket);
  const auto backup = std::find_if(disk_.backups.begin(), disk_.backups.end(),
                                   [&](const Backup& other) { return other.ticket == ticket; });
  const BlockId id = backup->block.id;
  const SlotIndex file = backup->file;
  const bool erased = backup->erased;
  const bool abandoned = backup->abandoned;
  if (status.ok()) {
    disk_.write_errors = 0;
    EndBackup(backup, false);
    if (!abandoned && !tree_.IsCutOff(id)) {
      ++disk_.stats.backups;
      return AttachOnDisk(op, id, file);
    }
    if (!abandoned) CountChildOnDisk(op, id, -1);
    if (erased) return EndFileUse(file);
    --OnDisk().in_transit;
    OnDisk().slots.Release(file);
    services_.files->Order(FileDrop{.window_index = options_.index, .slot = file});
    return;
  }
  ++disk_.stats.failed_backups;
  // A slot that the disk refused to write is not written again before the next start.
  const bool retired = absl::IsUnavailable(status) || absl::IsFailedPrecondition(status);
  if (retired) ++disk_.write_errors;
  if (!abandoned) CountChildOnDisk(op, id, -1);
  if (retired) ++disk_.stats.retired_slots;
  EndBackup(backup, !retired && !erased);
  if (!erased) return;
  disk_.uses.at(file).retired = retired;
  EndFileUse(file);
}

// The write is done: the block has one more copy.
void TierResidency::AttachOnDisk(OperationScope& op, BlockId id, SlotIndex slot) {
  const TierSet before = LowerTiers(id);
  --OnDisk().in_transit;
  OnDisk().slots.Give(slot, id);
  SlotRef last = store_.slot(id);
  while (Lower(last).slot != kNoSlot) last = Lower(last);
  At(last.tier).slots.SetLower(last.slot, FileSlot(slot));
  OnDisk().duplicates.PushBack(slot);
  if (OnDisk().follows_contents) {
    policy(static_cast<Tier>(disk_.tier), id).Inserted(FactsIn(op, id, slot));
  }
  NotifyInheritedOnDisk(op, id, slot, store_.slot(id));
  ListOnDisk(op, id);
  const Tier tier = store_[id].tier();
  recorder().CopiesChanged(options_.window, tree_.Named(id), {tier, tier}, {before, LowerTiers(id)},
                           accounts_.owner(id));
}

// --- Leaving the disk ---

void TierResidency::LeaveDisk(OperationScope& op, BlockId id, Lost lost) {
  disk_.entries[id.value()].queued = 0;
  if (id == disk_.ordering) {
    disk_.ordering = kNoBlock;
    CountChildOnDisk(op, id, -1);
  }
  if (Backup* backup = BackupOf(id); backup != nullptr) {
    CountChildOnDisk(op, id, -1);
    backup->abandoned = true;
  }
  const SlotIndex slot = CopyOnDisk(id);
  if (slot != kNoSlot) DetachOnDisk(op, id, slot, lost);
}

// REQUIRES: the block has a nearer copy.
void TierResidency::DropOnDisk(OperationScope& op, BlockId id) {
  const SlotIndex slot = CopyOnDisk(id);
  const TierSet before = LowerTiers(id);
  const bool is_cut_off = tree_.IsCutOff(id);
  DetachOnDisk(op, id, slot, is_cut_off ? Lost::kForgotten : Lost::kDropped);
  if (is_cut_off) return;
  const Tier tier = store_[id].tier();
  recorder().CopiesChanged(options_.window, tree_.Named(id), {tier, tier}, {before, LowerTiers(id)},
                           accounts_.owner(id));
}

void TierResidency::DetachOnDisk(OperationScope& op, BlockId id, SlotIndex slot, Lost lost) {
  UnlistOnDisk(op, id);
  if (OnDisk().follows_contents) {
    policy(static_cast<Tier>(disk_.tier), id).Removed(FactsIn(op, id, slot));
  }
  // That is no use of its parent.
  CountChildOnDisk(op, id, -1, DiskListing::kUnparked);
  if (!IsOnDisk(store_[id].tier())) {
    SlotRef above = store_.slot(id);
    while (Lower(above) != FileSlot(slot)) above = Lower(above);
    At(above.tier).slots.SetLower(above.slot, {Tier::kPrimary, kNoSlot});
    OnDisk().duplicates.Remove(slot);
  }
  LetFileSlotGo(slot, lost);
}

// The slot's block has left it. Reads and erases of the slot end before it becomes free.
void TierResidency::LetFileSlotGo(SlotIndex slot, Lost lost) {
  OnDisk().slots.Orphan(slot);
  ++OnDisk().in_transit;
  FileUse& use = disk_.uses[slot];
  use.orphaned = true;
  use.dropped = lost == Lost::kDropped;
  if (lost == Lost::kErased) {
    ++use.erases;
    disk_.to_erase.push_back(slot);
  }
  EndFileUse(slot);
}

void TierResidency::EndFileUse(SlotIndex slot) {
  const auto it = disk_.uses.find(slot);
  if (it == disk_.uses.end() || it->second.reads != 0 || it->second.erases != 0) return;
  const FileUse use = it->second;
  if (std::any_of(disk_.backups.begin(), disk_.backups.end(),
                  [&](const Backup& backup) { return backup.file == slot; })) {
    return;  // The erase ended before the backup that it is for.
  }
  disk_.uses.erase(it);
  if (!use.orphaned || use.retired) return;
  --OnDisk().in_transit;
  OnDisk().slots.Release(slot);
  if (use.dropped) {
    services_.files->Order(FileDrop{.window_index = options_.index, .slot = slot});
  }
}

Ticket TierResidency::OrderErase(FileErase::What what) {
  if (!has_disk()) return {};
  // A block that left before its backup ended may be one that must not come back. A backup that the
  // carrier has no order for is not written at all.
  for (Backup& backup : disk_.backups) {
    if (what == FileErase::What::kAll || !backup.abandoned || backup.erased ||
        backup.ticket == Ticket{}) {
      continue;
    }
    backup.erased = true;
    disk_.uses[backup.file] = {.erases = 1, .orphaned = true};
    disk_.to_erase.push_back(backup.file);
  }
  // The carrier is told of a dropped slot only when the reads of it have ended, and erases only the
  // dropped slots that it knows of. So the others are named, in the order of their numbers.
  std::vector<SlotIndex> dropped;
  for (auto& [slot, use] : disk_.uses) {
    if (what == FileErase::What::kAll || !use.dropped) continue;
    use.dropped = false;
    ++use.erases;
    dropped.push_back(slot);
  }
  std::sort(dropped.begin(), dropped.end());
  disk_.to_erase.insert(disk_.to_erase.end(), dropped.begin(), dropped.end());
  Disk::Erasing erasing{.what = what, .slots = std::exchange(disk_.to_erase, {}), .tickets = {}};
  disk_.stats.erased_blocks += erasing.slots.size();
  if (what == FileErase::What::kAll) {
    PAGODA_CHECK(erasing.slots.empty(), "an invalidation orders its own erase");
    ++disk_.resets;
  }
  OrderErase(std::move(erasing));
  return services_.files->last(Lane::kBackup);
}

void TierResidency::OrderErase(Disk::Erasing erasing) {
  const Ticket ticket = services_.files->Give(Lane::kBackup, options_.index);
  services_.files->Order(FileErase{.ticket = ticket,
                                   .window_index = options_.index,
                                   .what = erasing.what,
                                   .slots = erasing.slots});
  erasing.tickets.push_back(ticket);
  disk_.erasing.emplace(ticket, std::move(erasing));
}

// A failed erase is tried again. Its ticket is not done before that.
void TierResidency::EraseEnded(Ticket ticket, const absl::Status& status) {
  const auto it = disk_.erasing.find(ticket);
  Disk::Erasing erasing = std::move(it->second);
  disk_.erasing.erase(it);
  if (!status.ok() && !absl::IsCancelled(status)) {
    if (erasing.tickets.size() < kMaxEraseTries) return OrderErase(std::move(erasing));
    ++disk_.stats.failed_erases;
  }
  for (const SlotIndex slot : erasing.slots) {
    --disk_.uses.at(slot).erases;
    EndFileUse(slot);
  }
  if (erasing.what == FileErase::What::kAll) --disk_.resets;
  for (const Ticket done : erasing.tickets) services_.files->Close(Lane::kBackup, done);
}

// --- A restart ---

void TierResidency::ClaimOnDisk(absl::Span<const SlotIndex> slots) { OnDisk().slots.Claim(slots); }

void TierResidency::AttachRecovered(OperationScope& op, BlockId id, SlotIndex slot) {
  CountChildOnDisk(op, id, +1);
  ++OnDisk().in_transit;
  AttachOnDisk(op, id, slot);
}

void TierResidency::EnterOnDisk(OperationScope& op, BlockId id, SlotIndex slot, TenantId owner) {
  accounts_.SetOwner(id, owner);
  GiveSlot(id, FileSlot(slot));
  CountEvictable(id, static_cast<Tier>(disk_.tier), +1);
  tree_.MoveChild(id, PrefixTree::kNowhere, static_cast<Tier>(disk_.tier));
  NotifyRecovered(op, id);
  CountChildOnDisk(op, id, +1);
}

void TierResidency::DropRecovered(SlotIndex slot) {
  OnDisk().slots.Release(slot);
  services_.files->Order(FileDrop{.window_index = options_.index, .slot = slot});
}

}  // namespace pagoda
