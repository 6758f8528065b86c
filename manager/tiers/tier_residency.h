// The place of every block of one window: slots, holders, eviction candidates, and the copies
// between tiers.
#ifndef PAGODA_MANAGER_TIERS_TIER_RESIDENCY_H_
#define PAGODA_MANAGER_TIERS_TIER_RESIDENCY_H_

#include <cstdint>

#include "base/check.h"
#include "events/event.h"
#include "manager/accounts/tenants.h"
#include "manager/api/stats.h"
#include "manager/policy/eviction_policy.h"
#include "manager/services/event_recorder.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/block_copies.h"
#include "manager/tiers/content_journal.h"
#include "manager/tiers/disk_backups.h"
#include "manager/tiers/disk_copies.h"
#include "manager/tiers/disk_fetches.h"
#include "manager/tiers/file_slots.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_candidates.h"
#include "manager/tiers/tier_counts.h"
#include "manager/tiers/tier_moves.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "pools/types.h"

namespace pagoda {

// Holds blocks and lets go of them, and leads them into the tree and out of it. The rest is done by
// its parts, each with its own invariants. A part calls the parts before it alone, and the owner of
// the tree through CacheExit.
//
// Reads the prefix tree. Adds and removes no nodes, except that Reuse() erases its victim. Knows no
// sequences. Refuses nothing: the caller has checked that enough blocks are available.
// Thread-compatible.
//
// Invariant: a block has a slot exactly while OwnsSlot(its state). It is counted as held while it
// has holders, and else as evictable. Each part is told of each change, in the order of the parts
// unless a method says otherwise.
class TierResidency {
 public:
  using Policies = TierPolicies;  // Over the slots of each tier (SlotsFor()).
  using Options = ResidencyOptions;

  // Everything that the arguments name outlives the residency. The constructor does not call
  // `exit`.
  TierResidency(const Options& options, Policies policies, const CoreServices& services,
                BlockStore* store, PrefixTree* tree, CacheExit* exit);
  // The parts refer to each other.
  TierResidency(const TierResidency&) = delete;
  TierResidency& operator=(const TierResidency&) = delete;

  // --- The parts ---

  TierSlots& slots() { return slots_; }
  const TierSlots& slots() const { return slots_; }
  BlockCopies& copies() { return copies_; }
  const BlockCopies& copies() const { return copies_; }
  TierCounts& counts() { return counts_; }
  const TierCounts& counts() const { return counts_; }
  ContentJournal& journal() { return journal_; }
  FileSlots& file_slots() { return file_slots_; }
  TierCandidates& candidates() { return candidates_; }
  const TierCandidates& candidates() const { return candidates_; }
  DiskCopies& disk_copies() { return disk_copies_; }
  DiskBackups& backups() { return backups_; }
  TierMoves& moves() { return moves_; }
  DiskFetches& fetches() { return fetches_; }

  // --- Holding ---

  // A block with a new generation, outside the tree, in a primary slot. Its one holder is
  // op.tenant. REQUIRES: counts().available(op.tenant) > 0.
  BlockId Take(OperationScope& op, BlockState state);
  // A new generation of a block that has left the tree and keeps its slot. Otherwise as Take.
  // REQUIRES: it lies in the primary tier.
  void Renew(OperationScope& op, BlockId id);
  // Adds a hold of `tenant`. Returns whether nothing held the block before.
  bool Hold(OperationScope& op, BlockId id, TenantId tenant);
  // Adds a hold of `tenant` to a block that is held already.
  void HoldAgain(BlockId id, TenantId tenant) {
    Block& block = store_[id];
    if (block.state() != BlockState::kAlias) {
      counts_.accounts().Hold(id, block.tier(), tenant, block.refs);
    }
    ++block.refs;
  }
  // The state of a block after EndHold.
  enum class AfterHold : uint8_t {
    kHeld,       // By others.
    kEvictable,  // It is cached.
    kFreed,      // Its slot and its id are free.
    kForgotten,  // It was an alias, which has no slot: its id is free.
  };
  AfterHold EndHold(OperationScope& op, BlockId id, TenantId tenant);
  // Evicts candidates until the tenant is within its quota.
  void GiveUpAboveQuota(OperationScope& op, TenantId tenant) {
    while (counts_.accounts().AboveQuota(kPrimaryTier, tenant)) moves_.FreeOneSlot(op, tenant);
  }

  // --- Many blocks of one request (tier_residency_runs.h) ---

  // False in a sliding window, and in a cache with a disk tier.
  bool CanEndHoldsOfParents() const;
  // Ends the last hold of a cached primary block that becomes evictable, but no candidate, because
  // it has cached children. Returns false and changes nothing for any other block. REQUIRES:
  // CanEndHoldsOfParents().
  bool EndHoldOfParent(BlockId id, TenantId tenant);
  // A block has entered the tree by PrefixTree::Extend(): from now on `facts.tenant` owns it, as in
  // Enter.
  void EnterTree(const BlockFacts& facts);
  // Whether Reuse() can give the slots of victims to a request: the window has one tier, no quotas
  // and no copies under way.
  bool CanReuse() const;
  // The block to evict first; kNoBlock if there is none. REQUIRES: CanReuse().
  BlockId FirstVictim() const { return candidates_.Victim(kPrimaryTier); }
  // Evicts a victim without pins, clock, extras or client key, and takes its slot and its id for a
  // new block in `state`: as Leave(), PrefixTree::Erase(), Forget(), ChildLeft() and Take().
  // Returns the next victim. REQUIRES: CanReuse(), no slot is free, PrefixTree::EndsChain(id), and
  // no block is cut off.
  BlockId Reuse(OperationScope& op, BlockId id, BlockState state);

  // --- Into the tree and out of it ---

  // A held block has entered the tree: from now on `owner` owns it. REQUIRES: it is in the primary
  // tier.
  void Enter(OperationScope& op, BlockId id, TenantId owner);
  // A block of an earlier run, which nothing holds, is in the tree. It lies in `slot`, which was
  // claimed. kNoSlot: it is a hole.
  void EnterRecovered(OperationScope& op, BlockId id, SlotRef slot, TenantId owner);
  // A block of an earlier run, which nothing holds, is in the tree. Its only copy lies on disk in
  // `slot`, which was claimed.
  void EnterOnDisk(OperationScope& op, BlockId id, SlotIndex slot, TenantId owner);
  // Makes the block a candidate if it qualifies. REQUIRES: all blocks of the earlier run are there.
  void OfferRecovered(OperationScope& op, BlockId id);
  // Frees the id of a block that nothing holds and that owns no slot.
  void Forget(BlockId id) {
    const SlotRef slot = store_.slot(id);
    PAGODA_CHECK(slot.slot == kNoSlot || slots_.OwnerOf(slot) != id,
                 "rule 5: a block gives its slot back before it ends");
    store_.ReleaseId(id);
  }
  // Prepares a cached block, which is still in the tree, to leave it. If it is held, its only
  // holder owns it from now on (see TenantAccounts, invariant 1).
  enum class SlotAfter : uint8_t { kFree, kKept };
  void Leave(OperationScope& op, BlockId id, SlotAfter after, RemovalReason reason);
  // `canonical`, a hole or a block in a farther tier, gets the primary slot of `own`, which only
  // the tenant holds. `own` becomes an alias.
  void GiveSlotOf(OperationScope& op, BlockId own, TenantId tenant, BlockId canonical);
  void Touch(OperationScope& op, BlockId id) {
    Block& block = store_[id];
    if (block.uses < BlockFacts::kMaxUses && ++block.uses == options_.publish_uses) exit_.Used(id);
    candidates_.NotifyTouched(op, id);
  }
  void SetPriority(OperationScope& op, BlockId id, Priority priority);

  // --- Numbers, and tests ---

  // Fills in what WindowStats says of the tiers, and of blocks that moved or are pinned.
  void AddStats(WindowStats* stats) const;
  using Holders = TierCounts::Holders;
  // Stops the process if the state of a part disagrees with the blocks or with `holders`.
  void CheckInvariants(const Holders& holders) const;

 private:
  ResidencyContext context() { return {options_, services_, store_, tree_, exit_}; }
  void CheckDisk() const;

  const Options options_;
  const CoreServices services_;
  BlockStore& store_;
  PrefixTree& tree_;
  CacheExit& exit_;
  EventRecorder& recorder_;
  // The parts: each knows those before it.
  TierSlots slots_;
  BlockCopies copies_;
  TierCounts counts_;
  ContentJournal journal_;
  FileSlots file_slots_;
  TierCandidates candidates_;
  DiskCopies disk_copies_;
  DiskBackups backups_;
  TierMoves moves_;
  DiskFetches fetches_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_RESIDENCY_H_
