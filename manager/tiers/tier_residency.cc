// Holding blocks, and leading them into the tree and out of it.
#include "manager/tiers/tier_residency.h"

#include <utility>

namespace pagoda {
namespace {

FileSlots::Lost LostBy(RemovalReason reason, bool is_cut_off) {
  if (reason == RemovalReason::kInvalidated) return FileSlots::Lost::kErased;
  return is_cut_off ? FileSlots::Lost::kForgotten : FileSlots::Lost::kDropped;
}

}  // namespace

TierResidency::TierResidency(const Options& options, Policies policies,
                             const CoreServices& services, BlockStore* store, PrefixTree* tree,
                             CacheExit* exit)
    : options_(options),
      services_(services),
      store_(*store),
      tree_(*tree),
      exit_(*exit),
      recorder_(*services.recorder),
      slots_(options_, store),
      copies_(context(), &slots_),
      counts_(context(), &slots_, &copies_),
      journal_(context(), &slots_, &copies_),
      file_slots_(context(), &slots_, &counts_),
      candidates_(context(), std::move(policies), &slots_, &counts_, &file_slots_),
      disk_copies_(context(), &slots_, &counts_, &file_slots_, &candidates_),
      backups_(context(), &slots_, &copies_, &journal_, &file_slots_, &candidates_, &disk_copies_),
      moves_(context(), &slots_, &copies_, &counts_, &journal_, &candidates_, &disk_copies_,
             &backups_),
      fetches_(context(), &slots_, &copies_, &counts_, &file_slots_, &candidates_, &disk_copies_,
               &moves_) {}

// --- Holding ---

BlockId TierResidency::Take(OperationScope& op, BlockState state) {
  if (slots_.free_slots(kPrimaryTier) == 0 || counts_.accounts().AtQuota(kPrimaryTier, op.tenant)) {
    moves_.FreeOneSlot(op, op.tenant);
  }
  const SlotRef slot{kPrimaryTier, slots_.Take(kPrimaryTier)};
  if (!copies_.idle()) op.WaitFor(copies_.Overwrite(slot));
  const BlockId id = store_.TakeId(state);
  slots_.Give(id, slot);
  counts_.CountTaken(id, op.tenant);
  recorder_.BlockTaken(options_.window, id, op.tenant);
  return id;
}

void TierResidency::Renew(OperationScope& op, BlockId id) {
  store_.Renew(id, BlockState::kPrivate);
  counts_.CountTaken(id, op.tenant);
  recorder_.BlockTaken(options_.window, id, op.tenant);
}

bool TierResidency::Hold(OperationScope& op, BlockId id, TenantId tenant) {
  Block& block = store_[id];
  const Tier tier = block.tier();
  counts_.accounts().Hold(id, tier, tenant, block.refs);
  if (block.refs++ != 0) return false;
  PAGODA_CHECK(block.state() == BlockState::kCached, "what nobody holds is free, cached or a hole");
  counts_.CountHeld(tier, +1);
  counts_.CountEvictable(id, tier, -1);
  candidates_.Unlist(op, id);
  return true;
}

TierResidency::AfterHold TierResidency::EndHold(OperationScope& op, BlockId id, TenantId tenant) {
  Block& block = store_[id];
  PAGODA_CHECK(block.refs > 0, "a block is let go by its holders");
  --block.refs;
  const Tier tier = block.tier();
  if (counts_.accounts().any() && block.state() != BlockState::kAlias) {
    counts_.accounts().EndHold(id, tier, tenant, block.refs);
  }
  if (block.refs != 0) return AfterHold::kHeld;
  switch (block.state()) {
    case BlockState::kCached:
      counts_.CountHeld(tier, -1);
      counts_.CountEvictable(id, tier, +1);
      candidates_.List(op, id);
      if (slots_.has_disk()) [[unlikely]] {
        backups_.Released(op, id);
      }
      return AfterHold::kEvictable;
    case BlockState::kAlias:
      recorder_.BlockFreed(options_.window, id, counts_.owner(id));
      Forget(id);
      return AfterHold::kForgotten;
    case BlockState::kPrivate:
    case BlockState::kRaw:
      counts_.CountHeld(tier, -1);
      recorder_.BlockFreed(options_.window, id, counts_.owner(id));
      slots_.Release(store_.slot(id));
      store_.ReleaseId(id);
      return AfterHold::kFreed;
    case BlockState::kFree:
    case BlockState::kHole:
      break;
  }
  PAGODA_CHECK(false, "what is held is raw, private, cached or an alias");
}

// --- Into the tree and out of it ---

void TierResidency::Enter(OperationScope& op, BlockId id, TenantId owner) {
  tree_.MoveChild(id, PrefixTree::kNowhere, kPrimaryTier);
  counts_.accounts().SetOwner(id, owner);
  candidates_.NotifyInserted(op, id);
}

void TierResidency::EnterRecovered(OperationScope& op, BlockId id, SlotRef slot, TenantId owner) {
  counts_.accounts().SetOwner(id, owner);
  if (slot.slot == kNoSlot) return;
  slots_.Give(id, slot);
  counts_.CountEvictable(id, slot.tier, +1);
  tree_.MoveChild(id, PrefixTree::kNowhere, slot.tier);
  candidates_.NotifyRecovered(op, id);
}

void TierResidency::EnterOnDisk(OperationScope& op, BlockId id, SlotIndex slot, TenantId owner) {
  EnterRecovered(op, id, slots_.FileSlot(slot), owner);
  candidates_.CountChildOnDisk(op, id, +1);
}

void TierResidency::OfferRecovered(OperationScope& op, BlockId id) {
  if (store_[id].state() != BlockState::kCached) return;
  candidates_.List(op, id);
  if (slots_.has_disk()) backups_.Released(op, id);
}

// The steps have this order: the disk, the duplicates, the policy, the journal, the accounts, the
// slot.
void TierResidency::Leave(OperationScope& op, BlockId id, SlotAfter after, RemovalReason reason) {
  const SlotRef slot = store_.slot(id);
  const bool is_held = store_[id].refs != 0;
  if (slots_.has_disk()) [[unlikely]] {
    backups_.Leave(op, id, LostBy(reason, tree_.IsCutOff(id)));
  }
  if (slots_.has_lower()) slots_.DropDuplicates(id);
  tree_.MoveChild(id, slot.tier, PrefixTree::kNowhere);
  if (slots_.IsOnDisk(slot.tier)) {
    PAGODA_CHECK(!is_held, "what leaves the tree is held in memory");
    return counts_.CountEvictable(id, slot.tier, -1);
  }
  if (!is_held) candidates_.policy(slot.tier, id).Withdrawn(candidates_.Facts(op, id));
  candidates_.NotifyRemoved(op, id, slot);
  journal_.NoteNothing(slot);
  if (!is_held) {
    counts_.CountEvictable(id, slot.tier, -1);
  } else if (slot.tier == kPrimaryTier) {
    counts_.accounts().GiveToHolder(id);
  }
  if (after == SlotAfter::kFree) slots_.Release(slot);
}

void TierResidency::GiveSlotOf(OperationScope& op, BlockId own, TenantId tenant,
                               BlockId canonical) {
  Block& block = store_[canonical];
  const SlotRef slot = store_.slot(own);
  store_[own].set_state(BlockState::kAlias);
  counts_.CountHeld(kPrimaryTier, -1);
  counts_.accounts().EndHold(own, kPrimaryTier, tenant, 0);
  if (block.state() == BlockState::kHole) {
    block.set_state(BlockState::kCached);
    block.set_priority(kDefaultPriority);
    block.uses = 0;
    slots_.Give(canonical, slot);
    tree_.MoveChild(canonical, PrefixTree::kNowhere, kPrimaryTier);
    candidates_.NotifyInserted(op, canonical);
    // The block becomes a candidate, the same as after its last holder has released it.
    counts_.CountEvictable(canonical, kPrimaryTier, +1);
    candidates_.policy(kPrimaryTier, canonical).Released(candidates_.Facts(op, canonical));
    return;
  }
  const Tier from = block.tier();
  const bool evictable = block.refs == 0;
  if (evictable) candidates_.Unlist(op, canonical);
  if (block.deferred) counts_.CountDeferred(canonical, -1);
  moves_.ChangeTier(op, canonical, slot, TierSlots::OldSlot::kDuplicate);
  if (block.deferred) counts_.CountDeferred(canonical, +1);
  if (!evictable) return counts_.MoveHeld(canonical, from, kPrimaryTier);
  counts_.MoveEvictable(canonical, from, kPrimaryTier);
  candidates_.List(op, canonical);
}

void TierResidency::SetPriority(OperationScope& op, BlockId id, Priority priority) {
  Block& block = store_[id];
  const bool evictable = block.refs == 0;
  if (slots_.has_disk()) candidates_.UnlistOnDisk(op, id);
  if (evictable) candidates_.Unlist(op, id);
  if (evictable) counts_.MoveToPriority(id, priority);
  block.set_priority(priority);
  if (evictable) candidates_.List(op, id);
  if (slots_.has_disk()) candidates_.ListOnDisk(op, id);
}

void TierResidency::AddStats(WindowStats* stats) const {
  counts_.AddStats(stats);
  moves_.AddStats(stats);
  file_slots_.AddStats(&stats->disk);
  backups_.AddStats(&stats->disk);
  fetches_.AddStats(&stats->disk);
}

}  // namespace pagoda
