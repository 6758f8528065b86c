#include "manager/tiers/disk_copies.h"

namespace pagoda {
namespace {

// The most copies on disk that a tenant at its quota gives up for one block.
constexpr int kMaxGivenUp = 64;

}  // namespace

void DiskCopies::Attach(OperationScope& op, BlockId id, SlotIndex slot) {
  const TierSet before = slots_.LowerTiers(id);
  counts_.CountInTransit(slots_.disk(), -1);
  slots_.AddFarthest(id, slots_.FileSlot(slot));
  if (candidates_.follows_contents(slots_.disk())) {
    candidates_.policy(slots_.disk(), id).Inserted(candidates_.FactsIn(op, id, slot));
  }
  candidates_.NotifyInheritedOnDisk(op, id, slot, store_.slot(id));
  candidates_.ListOnDisk(op, id);
  RecordChange(id, before);
}

void DiskCopies::AttachRecovered(OperationScope& op, BlockId id, SlotIndex slot) {
  candidates_.CountChildOnDisk(op, id, +1);
  counts_.CountInTransit(slots_.disk(), +1);
  Attach(op, id, slot);
}

void DiskCopies::Drop(OperationScope& op, BlockId id) {
  const TierSet before = slots_.LowerTiers(id);
  const bool is_cut_off = tree_.IsCutOff(id);
  Detach(op, id, slots_.CopyOnDisk(id),
         is_cut_off ? FileSlots::Lost::kForgotten : FileSlots::Lost::kDropped);
  if (!is_cut_off) RecordChange(id, before);
}

void DiskCopies::Detach(OperationScope& op, BlockId id, SlotIndex slot, FileSlots::Lost lost) {
  candidates_.UnlistOnDisk(op, id);
  candidates_.NotifyRemoved(op, id, slots_.FileSlot(slot));
  // That is no use of its parent.
  candidates_.CountChildOnDisk(op, id, -1, TierCandidates::DiskListing::kUnparked);
  if (!slots_.IsOnDisk(store_[id].tier())) slots_.Unlink(id, slots_.FileSlot(slot));
  file_slots_.LetGo(slot, lost);
}

void DiskCopies::RecordChange(BlockId id, TierSet before) {
  const Tier tier = store_[id].tier();
  recorder_.CopiesChanged(options_.window, tree_.Named(id), {tier, tier},
                          {before, slots_.LowerTiers(id)}, counts_.owner(id));
}

// --- Which copies the disk gives up ---

bool DiskCopies::FreeSlot(OperationScope& op, BlockId comes) {
  if (slots_.free_slots(slots_.disk()) > 0) return true;
  const BlockId victim = candidates_.Victim(slots_.disk(), kDefaultTenant);
  if (victim == kNoBlock || Stays(op, victim, comes)) return false;
  GiveUp(op, victim);
  return slots_.free_slots(slots_.disk()) > 0;
}

bool DiskCopies::MakeQuota(OperationScope& op, BlockId comes) {
  const TenantAccounts& accounts = counts_.accounts();
  const TenantId owner = counts_.owner(comes);
  if (!accounts.AtQuota(slots_.disk(), owner)) return true;
  const Generation life = store_[comes].generation;
  for (int i = 0; accounts.AtQuota(slots_.disk(), owner); ++i) {
    // It is a candidate again when its last child on disk has gone.
    candidates_.UnlistOnDisk(op, comes);
    const BlockId victim = i < kMaxGivenUp ? candidates_.Victim(slots_.disk(), owner) : kNoBlock;
    if (victim == kNoBlock || Stays(op, victim, comes)) return false;
    GiveUp(op, victim);
    const Block& block = store_[comes];
    if (block.generation != life || block.state() != BlockState::kCached) return false;
  }
  return true;
}

// Whether the candidate's copy on disk stays, rather than that of a block in memory: it has a
// higher priority, or its policy says that it is worth more. A block with children below memory is
// worth all of them.
bool DiskCopies::Stays(const OperationScope& op, BlockId id, BlockId comes) const {
  const Priority own = store_[id].priority(), other = store_[comes].priority();
  if (own != other) return own > other;
  const bool has_children = candidates_.HasChildrenOnDisk(comes);
  return candidates_.follows_contents(slots_.disk()) && !has_children && !tree_.IsCutOff(id) &&
         candidates_.policy(slots_.disk(), id)
             .Keeps(candidates_.FactsIn(op, id, slots_.CopyOnDisk(id)),
                    candidates_.Facts(op, comes), store_[comes].tier());
}

// Gives up a candidate's copy on disk. If that is its last copy, the block leaves.
void DiskCopies::GiveUp(OperationScope& op, BlockId victim) {
  if (slots_.IsOnDisk(store_[victim].tier())) {
    exit_.Evict(op, victim, RemovalReason::kDisplaced);
  } else {
    Drop(op, victim);
  }
}

}  // namespace pagoda
