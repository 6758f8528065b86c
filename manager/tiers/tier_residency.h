// The place of every block of one window: slots, holders, eviction candidates, and the copies
// between tiers.
#ifndef PAGODA_MANAGER_TIERS_TIER_RESIDENCY_H_
#define PAGODA_MANAGER_TIERS_TIER_RESIDENCY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/big_array.h"
#include "base/check.h"
#include "manager/accounts/tenants.h"
#include "manager/api/stats.h"
#include "manager/policy/eviction_policy.h"
#include "manager/tiers/disk_tier_state.h"
#include "manager/tiers/operation_scope.h"
#include "manager/tiers/slot_queue.h"
#include "manager/tiers/slot_table.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "manager/words/block_facts.h"
#include "manager/words/deferred_release_counts.h"
#include "manager/words/file_orders.h"
#include "manager/words/ids.h"
#include "manager/words/lists.h"
#include "manager/words/recovered_block.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

// How blocks leave the cache. The residency calls the owner of the tree only through this
// interface.
class CacheExit {
 public:
  // Takes the slot of `victim`. The block leaves the tree, or stays there as a hole. In a sliding
  // window the blocks below it can leave too. REQUIRES: it is a candidate.
  virtual void Evict(OperationScope& op, BlockId victim, RemovalReason reason) = 0;
  // The only copy of a cached block is lost: the block leaves the tree, with all blocks below it.
  virtual void Lose(OperationScope& op, BlockId id) = 0;
  virtual void Used(BlockId id) = 0;  // By TierResidency::Options::publish_uses prefix matches.

 protected:
  ~CacheExit() = default;
};

// Reads the prefix tree, and neither adds nor removes nodes. Knows no sequences. Refuses nothing:
// the caller has checked that enough blocks are available. Thread-compatible.
//
// A block that has a slot can have further copies of its bytes in farther tiers, at most one in
// each. The block is counted, held and evicted at its nearest copy. The other copies are
// duplicates. Nothing is lost with a duplicate, so a memory tier gives up its duplicates first. No
// tenant is charged for them.
//
// The last tier can be on disk (tier_disk.cc). A backup puts a copy of a block in memory there: a
// copy to a staging slot, then a write from that slot. A fetch brings the block back. Only the
// memory slots that fetches have taken wait for the disk.
//
// Invariants
// 1. A slot is free, belongs to one block, is the spare or a staging slot, or is in transit: a
// backup writes it, a fetch fills it, or it is to be erased. In each tier: free + evictable + held
// + duplicates + in transit = capacity. Evictable slots are the nearest copies of cached blocks
// that nothing holds.
// 2. Pinned slots and slots with deferred releases are among the held ones, and are counted.
// 3. A tier's policies have as candidates the cached blocks there that nothing holds and that have
// no children in the way (IsCandidate). A block is a candidate of its owner's policy.
// 4. The tenants' accounts are what TenantAccounts says.
// 5. One slot of each tier below the first is the spare, which belongs to no block.
// 6. The slot journal names, in order, each slot that gets or loses content. A duplicate counts as
// a slot without content.
// 7. Only a cached block has duplicates.
// 8. The disk's policies have as candidates the copies there whose blocks have no child with a copy
// on disk or a backup under way (IsDiskCandidate). Nearer copies of the block do not matter. So the
// disk gives up no copy through which a restart reaches another.
// 9. A backup begins only if the parent has a copy on disk, or an earlier backup under way.
class TierResidency {
 public:
  using Policies = TierPolicies;  // Over the slots of each tier (SlotsFor()).

  struct Options {
    WindowSize window = kFullAttention;
    uint32_t index = 0;  // Among the cache's windows.
    struct TierOptions {
      uint32_t blocks = 0;                       // 0: the window has no blocks in the tier.
      Priority min_priority = kDefaultPriority;  // See TierSpec.
      bool on_disk = false;                      // Only the last tier with blocks.
      uint32_t staging_slots = 0;                // In the tier above the disk.

      uint32_t num_slots(Tier tier) const {
        return on_disk ? blocks : SlotsFor(tier, blocks) + (blocks == 0 ? 0 : staging_slots);
      }
    };
    std::array<TierOptions, kMaxTiers> tiers;
    uint64_t block_bytes = 0;              // What a backup takes of the write budget.
    uint32_t publish_uses = 0;             // Of CacheExit::Used; 0: it is not called.
    const TenantTable* tenants = nullptr;  // Outlives the residency.
  };

  // Everything that the arguments name outlives the residency. The constructor does not call
  // `exit`.
  TierResidency(const Options& options, Policies policies, const CoreServices& services,
                BlockStore* store, PrefixTree* tree, CacheExit* exit);

  // Whether there is a tier below the first one.
  bool has_lower() const { return At(Tier::kPrimary).below != kNoTier; }
  uint32_t capacity(Tier tier) const { return At(tier).capacity; }
  uint32_t free_slots(Tier tier) const { return At(tier).slots.free(); }
  // Primary blocks that can be taken now: free ones, and cached ones that nothing holds. For a
  // tenant, limited by its quota.
  uint32_t available() const {
    return At(Tier::kPrimary).slots.free() + At(Tier::kPrimary).evictable;
  }
  uint32_t available(TenantId tenant) const {
    return accounts_.any() ? std::min(available(), accounts_.Left(Tier::kPrimary, tenant))
                           : available();
  }
  // Over all tiers.
  uint32_t held_blocks() const;
  uint32_t evictable_blocks() const;
  uint32_t pinned_blocks() const;
  const TenantAccounts& accounts() const { return accounts_; }
  TenantId owner(BlockId id) const { return accounts_.owner(id); }
  // Whether a cached block that nothing holds can be evicted (rule 13).
  bool IsCandidate(BlockId id) const;

  // --- Holding ---

  // A block with a new generation, outside the tree, in a primary slot. Its one holder is
  // op.tenant. REQUIRES: available(op.tenant) > 0.
  BlockId Take(OperationScope& op, BlockState state);
  // A new generation of a block that has left the tree and keeps its slot. Otherwise as Take.
  // REQUIRES: it lies in the primary tier.
  void Renew(OperationScope& op, BlockId id);
  // Adds a hold of `tenant`. Returns whether nothing held the block before.
  bool Hold(OperationScope& op, BlockId id, TenantId tenant);
  // As Hold, for a block that is held already.
  void HoldAgain(BlockId id, TenantId tenant) {
    Block& block = store_[id];
    if (block.state() != BlockState::kAlias) {
      accounts_.Hold(id, block.tier(), tenant, block.refs);
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
    while (accounts_.AboveQuota(Tier::kPrimary, tenant)) FreeOneSlot(op, tenant);
  }

  // --- Many blocks of one request (tier_residency_runs.h) ---

  // As EndHold, where the last holder lets go of a block that becomes evictable and is no candidate
  // yet, because it has cached children. Returns false, and does nothing, if that is not so.
  bool EndHoldOfParent(BlockId id, TenantId tenant);
  // As Enter, for a block that PrefixTree::Extend() put into the tree.
  void EnterTree(OperationScope& op, BlockId id, TenantId owner);
  // Whether Reuse() can give the slots of victims to a request: the window has one tier, no quotas
  // and no copies under way.
  bool CanReuse() const;
  // The block to evict first; kNoBlock if there is none. REQUIRES: CanReuse().
  BlockId FirstVictim() const;
  // Evicts a victim without pins, clock, extras or client key, and takes its slot and its id for a
  // new block in `state`: as Leave(), PrefixTree::Erase(), Forget(), ChildLeft() and Take().
  // Returns the next victim. REQUIRES: CanReuse(), no slot is free, PrefixTree::EndsChain(id), and
  // no block is cut off.
  BlockId Reuse(OperationScope& op, BlockId id, BlockState state);

  // Adds or removes one deferred release of the block. The caller counts the hold itself.
  void AddDeferred(BlockId id);
  void RemoveDeferred(BlockId id);
  uint32_t deferred(BlockId id) const { return deferred_.of(id); }
  // At least one pin holds the block, or none does any more. The caller counts the hold itself.
  void MarkPinned(BlockId id);
  void UnmarkPinned(BlockId id);

  // --- Into the tree and out of it ---

  // A held block has entered the tree: from now on `owner` owns it. REQUIRES: it is in the primary
  // tier.
  void Enter(OperationScope& op, BlockId id, TenantId owner);
  // A block of an earlier run, which nothing holds, is in the tree. It lies in `slot`, which was
  // claimed. kNoSlot: it is a hole.
  void EnterRecovered(OperationScope& op, BlockId id, SlotRef slot, TenantId owner);
  // Makes the block a candidate if it qualifies. REQUIRES: all blocks of the earlier run are there.
  void OfferRecovered(OperationScope& op, BlockId id);
  // Frees the id of a block that nothing holds and that owns no slot.
  void Forget(BlockId id) {
    const SlotRef slot = store_.slot(id);
    PAGODA_CHECK(slot.slot == kNoSlot || OwnerOf(slot) != id,
                 "rule 5: a block gives its slot back before it ends");
    store_.ReleaseId(id);
  }
  // Prepares a cached block, which is still in the tree, to leave it. If it is held, its only
  // holder owns it from now on (see TenantAccounts, invariant 1).
  enum class SlotAfter : uint8_t { kFree, kKept };
  void Leave(OperationScope& op, BlockId id, SlotAfter after, RemovalReason reason);
  // A child of `parent` left `tier`: the parent can now be a candidate.
  void ChildLeft(OperationScope& op, NodeRef parent, Tier tier);
  // `canonical`, a hole or a block in a farther tier, gets the primary slot of `own`, which only
  // the tenant holds. `own` becomes an alias.
  void GiveSlotOf(OperationScope& op, BlockId own, TenantId tenant, BlockId canonical);
  void Touch(OperationScope& op, BlockId id) {
    Block& block = store_[id];
    if (block.uses < BlockFacts::kMaxUses && ++block.uses == options_.publish_uses) exit_.Used(id);
    if (At(block.tier()).follows_contents) policy(block.tier(), id).Touched(Facts(op, id));
  }
  void SetPriority(OperationScope& op, BlockId id, Priority priority);
  // See EvictionPolicy::Passed. REQUIRES: the block is evictable.
  void Passed(OperationScope& op, BlockId id) {
    if (!IsOnDisk(store_[id].tier())) policy(store_[id].tier(), id).Passed(Facts(op, id));
  }

  // --- Between the tiers ---

  // Onboards a held block. Its old slot becomes a duplicate. REQUIRES: the primary tier and the
  // owner's quota have an available block.
  void Onboard(OperationScope& op, BlockId id);
  // Offloads a candidate of the primary tier, whatever its priority.
  enum class Offloaded : uint8_t {
    kMoved,
    kNoSpace,
    kGone,  // Sliding window: the block left with a block that it displaced below.
  };
  Offloaded Offload(OperationScope& op, BlockId id);
  // Offloads victims until `free_target` slots of the tier are free or duplicates, at most
  // `max_blocks` blocks. Returns how many moved.
  uint32_t OffloadAhead(OperationScope& op, Tier tier, uint32_t free_target, uint32_t max_blocks);

  // --- Copies of a block's bytes ---

  // Copies the first `num_tokens` tokens from slot to slot.
  void CopyTokens(OperationScope& op, BlockId source, BlockId target, uint32_t num_tokens);
  // Makes the operation wait for the copies that bring the block's bytes (before a read), or for
  // all copies that touch its slot (before a write).
  void WaitToRead(OperationScope& op, BlockId id) {
    if (!copies().idle()) op.WaitFor(copies().Arrival(options_.index, store_.slot(id)));
  }
  void WaitToWrite(OperationScope& op, BlockId id) {
    if (!copies().idle()) op.WaitFor(copies().LastTouch(options_.index, store_.slot(id)));
  }
  bool IsArriving(BlockId id) const {
    return copies().Arrival(options_.index, store_.slot(id)) != Ticket{};
  }
  bool IsTouched(BlockId id) const {
    return copies().LastTouch(options_.index, store_.slot(id)) != Ticket{};
  }
  bool copies_idle() const { return copies().idle(); }
  // The sequence's table names the block for reading, or no longer does.
  void AddReader(BlockId id, SequenceKey sequence) {
    if (!copies().idle()) copies().AddReader(options_.index, store_.slot(id), sequence);
  }
  void RemoveReader(BlockId id, SequenceKey sequence) {
    if (!copies().idle()) copies().RemoveReader(options_.index, store_.slot(id), sequence);
  }
  bool KnowsReader(BlockId id, SequenceKey sequence) const {
    return copies().KnowsReader(options_.index, store_.slot(id), sequence);
  }

  // The farther tiers that have a copy of the block's bytes.
  TierSet LowerTiers(BlockId id) const;
  // The nearest copy in one of the tiers whose bytes have arrived; kNoSlot if there is none.
  SlotRef CompleteCopy(BlockId id, TierSet tiers) const;
  bool IsDuplicate(BlockId id, SlotRef slot) const {
    return OwnerOf(slot) == id && store_.slot(id) != slot &&
           At(slot.tier).duplicates.contains(slot.slot);
  }
  // The bytes of a duplicate, or of the nearest copy, are lost. LoseNearest returns whether the
  // block fell to another copy. If it returns false, the block has to leave the tree.
  void LoseDuplicate(BlockId id, SlotRef slot) { DropDuplicate(id, slot); }
  bool LoseNearest(OperationScope& op, BlockId id);

  // Journals the content of the block's slot, after the block entered the tree or moved.
  void NoteContent(BlockId id) {
    if (services_.slot_changes != nullptr && !IsOnDisk(store_[id].tier())) WriteContent(id);
  }

  // --- A tier on disk (tier_disk.cc) ---

  bool has_disk() const { return disk_.tier != kNoTier; }
  // kMaxTiers: none.
  size_t disk_tier() const { return disk_.tier; }
  bool IsOnDisk(Tier tier) const { return static_cast<size_t>(tier) == disk_.tier; }
  bool HasCopyOnDisk(BlockId id) const { return CopyOnDisk(id) != kNoSlot; }
  // Whether the block has bytes, and only on disk.
  bool IsOnlyOnDisk(BlockId id) const {
    return store_[id].state() == BlockState::kCached && IsOnDisk(store_[id].tier());
  }
  // Orders backups of waiting blocks, as far as the write budget, the staging slots and the disk's
  // slots allow. Looks at `max_blocks` waiting blocks at most.
  void OrderBackups(OperationScope& op, uint32_t max_blocks);
  // Puts the block first in the queue for backups. Does nothing if it has a copy on disk or a
  // backup under way.
  void AskForBackup(BlockId id);
  // A copy of the memory lane has ended: possibly the one that fills a staging slot.
  void CopyEnded(OperationScope& op, Ticket ticket, bool ok);
  // Orders fetches of the blocks that lie on disk alone, first to last, until no slot is left for
  // one. `blocks` names parents before children; the caller holds the blocks in memory. `fetched`
  // grows by the number of fetches ordered. Returns the last one's ticket.
  Ticket Fetch(OperationScope& op, absl::Span<const BlockId> blocks, absl::Time deadline,
               uint32_t* fetched);
  // Gives up the fetches whose deadline is over.
  void ExpireFetches(OperationScope& op);
  // The carrier's answer to an order. See BlockManager::CompleteFile.
  void FetchEnded(OperationScope& op, Ticket ticket, const absl::Status& status);
  void BackupEnded(OperationScope& op, Ticket ticket, const absl::Status& status);
  // Orders that blocks which left by an invalidation since the last call do not come back after a
  // restart; with kAll, that no block does. Returns the ticket; 0 without a disk.
  Ticket OrderErase(FileErase::What what);
  // Claims the file slots of blocks of an earlier run. REQUIRES: as Claim.
  void ClaimOnDisk(absl::Span<const SlotIndex> slots);
  // A cached block has one more copy: on disk, in a claimed slot.
  void AttachRecovered(OperationScope& op, BlockId id, SlotIndex slot);
  // A block of an earlier run, which nothing holds, is in the tree. It lies on disk alone, in a
  // claimed slot.
  void EnterOnDisk(OperationScope& op, BlockId id, SlotIndex slot, TenantId owner);
  // Frees a claimed slot whose content is not taken back.
  void DropRecovered(SlotIndex slot);

  // --- A warm restart ---

  // The tier's slots, with the spare.
  uint32_t num_slots(Tier tier) const { return At(tier).slots.size(); }
  // Takes the slots of the blocks that were found, by tier. REQUIRES: nothing has happened yet.
  void Claim(const std::array<std::vector<SlotIndex>, kMaxTiers>& slots);
  // Whether the block's nearest copy is in `slot`.
  bool IsIn(BlockId id, SlotRef slot) const {
    return OwnsSlot(store_[id].state()) && store_.slot(id) == slot;
  }

  // --- Numbers ---

  // Fills in what WindowStats says of the tiers, and of blocks that moved or are pinned.
  void AddStats(WindowStats* stats) const;
  void AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const;
  void SlotStates(Tier tier, uint32_t from, absl::Span<SlotState> states) const;
  // Stops the process unless invariant 1 holds by the counters. Cost: O(1).
  void CheckAccounting() const;

  // --- For tests ---

  // By block: the tenant of each hold. For a raw block, its session's tenant.
  using Holders = std::vector<std::vector<TenantId>>;
  // Stops the process if the state here disagrees with the blocks or with `holders`.
  void CheckInvariants(const Holders& holders) const;

 private:
  static constexpr size_t kPrimary = static_cast<size_t>(Tier::kPrimary);
  static constexpr size_t kNoTier = kMaxTiers;

  // One tier. Counts are of its slots.
  struct TierState {
    uint32_t capacity = 0;
    SlotTable slots;
    SlotQueue duplicates;  // The oldest first.
    uint32_t held = 0;
    uint32_t evictable = 0;
    uint32_t pinned = 0;    // Among the held ones.
    uint32_t deferred = 0;  // Held by a deferred release.
    uint32_t deferred_and_pinned = 0;
    Priority min_priority = kDefaultPriority;
    size_t below = kNoTier;     // The next tier that has blocks.
    SlotIndex spare = kNoSlot;  // None in the first tier.
    EvictionPolicy* default_tenant_policy = nullptr;
    bool follows_contents = false;                          // Whether any policy does.
    std::vector<std::unique_ptr<EvictionPolicy>> policies;  // By TenantId.
    PriorityCounts evictable_by_priority = {};
    uint64_t freely_evicted_blocks = 0;  // See WindowStats.
    uint32_t in_transit = 0;             // See invariant 1.
    uint32_t first_staging = 0;          // Slots from here on are staging slots.
  };

  using Disk = DiskTierState;
  using Backup = Disk::Backup;
  using Fetched = Disk::Fetched;
  using FetchJob = Disk::FetchJob;
  using FileUse = Disk::FileUse;

  struct Leaving {
    Tier tier;
    TenantId owner;
  };

  bool sliding() const { return options_.window != kFullAttention; }
  TierState& At(Tier tier) { return tiers_[static_cast<size_t>(tier)]; }
  const TierState& At(Tier tier) const { return tiers_[static_cast<size_t>(tier)]; }
  CopyTracker& copies() const { return *services_.copies; }
  EventRecorder& recorder() { return *services_.recorder; }
  // List makes the block a candidate at its nearest copy, if nothing holds it and it qualifies.
  // Unlist ends that. The block's slot is the copy's current slot.
  void List(OperationScope& op, BlockId id) {
    if (IsOnDisk(store_[id].tier())) return ListOnDisk(op, id);
    if (IsCandidate(id)) policy(store_[id].tier(), id).Released(Facts(op, id));
  }
  void Unlist(OperationScope& op, BlockId id) {
    if (IsOnDisk(store_[id].tier())) return UnlistOnDisk(op, id);
    if (IsCandidate(id)) policy(store_[id].tier(), id).Withdrawn(Facts(op, id));
  }
  // The policy of the block's owner.
  EvictionPolicy& policy(Tier tier, BlockId id) const {
    const TierState& at = At(tier);
    return accounts_.any() ? *at.policies[accounts_.owner(id).value()] : *at.default_tenant_policy;
  }
  // The facts of a block in the tree, for the policies.
  BlockFacts Facts(const OperationScope& op, BlockId id) const {
    return FactsIn(op, id, store_[id].slot);
  }
  // As Facts, with the slot that the block had before it moved.
  BlockFacts FactsIn(const OperationScope& op, BlockId id, SlotIndex slot) const {
    const Block& block = store_[id];
    return {.slot = slot,
            .block = id,
            .hash = tree_.hash(id),
            .time = op.now,
            .tenant = accounts_.owner(id),
            .priority = block.priority(),
            .uses = static_cast<uint8_t>(block.uses),
            .content = tree_.facts(id)};
  }
  void CountEvictable(BlockId id, Tier tier, int change) {
    TierState& at = At(tier);
    at.evictable += static_cast<uint32_t>(change);
    at.evictable_by_priority[store_[id].priority_value] += static_cast<uint32_t>(change);
    accounts_.CountCached(id, tier, change);
  }
  void CountDeferred(BlockId id, int32_t sign);
  void MoveHeld(BlockId id, Tier from, Tier to);
  SlotRef Lower(SlotRef slot) const { return At(slot.tier).slots.lower(slot.slot); }
  void GiveSlot(BlockId id, SlotRef slot) {
    At(slot.tier).slots.Give(slot.slot, id);
    store_.SetSlot(id, slot);
  }
  void Release(SlotRef slot) { At(slot.tier).slots.Release(slot.slot); }
  BlockId OwnerOf(SlotRef slot) const { return At(slot.tier).slots.owner(slot.slot); }

  // --- tier_moves.cc ---
  void NotifyInserted(OperationScope& op, BlockId id) {
    const Tier tier = store_[id].tier();
    if (At(tier).follows_contents) policy(tier, id).Inserted(Facts(op, id));
  }
  void NotifyRecovered(OperationScope& op, BlockId id) {
    const Tier tier = store_[id].tier();
    if (At(tier).follows_contents) policy(tier, id).Recovered(Facts(op, id));
  }
  // The block's copy on disk is one of a block that lies, or lay until now, in `memory` too.
  void NotifyInheritedOnDisk(OperationScope& op, BlockId id, SlotIndex slot, SlotRef memory) {
    if (!OnDisk().follows_contents) return;
    policy(static_cast<Tier>(disk_.tier), id).Inherited(FactsIn(op, id, slot), memory);
  }
  // The block has left the disk for memory, and its copy in `file` stays there.
  void NotifyInheritedFromDisk(OperationScope& op, BlockId id, SlotRef file) {
    const Tier tier = store_[id].tier();
    if (At(tier).follows_contents) policy(tier, id).Inherited(Facts(op, id), file);
  }
  // The block left `slot`.
  void NotifyRemoved(OperationScope& op, BlockId id, SlotRef slot) {
    if (!At(slot.tier).follows_contents) return;
    policy(slot.tier, id).Removed(FactsIn(op, id, slot.slot));
  }
  // The block in the slot that the policy names; kNoBlock if it names none.
  BlockId OwnerOfVictim(Tier tier, const EvictionPolicy& policy) const {
    const SlotIndex victim = policy.Victim();
    return victim == kNoSlot ? kNoBlock : OwnerOf({tier, victim});
  }
  BlockId Victim(Tier tier, TenantId tenant) const;
  void FreeOneSlot(OperationScope& op, TenantId tenant);
  // Why a candidate leaves its tier: its slot is needed now, or will be, or a client asks for it.
  enum class Why : uint8_t { kSlotNeeded, kAhead, kAsked };
  Offloaded MoveDown(OperationScope& op, BlockId victim, Why why);
  bool Wants(Tier tier, BlockId victim) const;
  bool MustGoTo(Tier tier, BlockId victim) const;
  bool HasSlotFor(Tier tier, TenantId owner) const;
  bool IsWorthLess(const OperationScope& op, BlockId comes, Tier tier) const;
  bool FreeSlotFor(OperationScope& op, BlockId comes, Tier tier);
  void CountPassedOver(BlockId victim);
  void MoveTo(OperationScope& op, BlockId victim, SlotRef to);
  bool CanFallTo(BlockId id, SlotRef lower) const;
  void FallTo(OperationScope& op, BlockId victim, SlotRef to);
  SlotIndex TakeSlot(Tier tier);
  void DropDuplicate(BlockId id, SlotRef slot);
  void DropDuplicates(BlockId id);
  enum class OldSlot : uint8_t { kFree, kDuplicate };
  void ChangeTier(OperationScope& op, BlockId id, SlotRef slot, OldSlot old_slot);
  void OrderMoveDown(BlockId victim, SlotRef from, SlotRef to);
  void GiveToHolder(BlockId id);

  // --- tier_residency.cc ---
  SlotState StateOf(SlotRef slot) const;
  void NoteNothing(SlotRef slot) {
    if (services_.slot_changes != nullptr && !IsOnDisk(slot.tier)) WriteNothing(slot);
  }
  SlotContent ContentOf(BlockId id) const;
  void WriteContent(BlockId id);
  void WriteNothing(SlotRef slot);

  // --- tier_disk.cc ---
  TierState& OnDisk() { return tiers_[disk_.tier]; }
  const TierState& OnDisk() const { return tiers_[disk_.tier]; }
  TierState& AboveDisk() { return tiers_[disk_.above]; }
  SlotRef FileSlot(SlotIndex slot) const { return {static_cast<Tier>(disk_.tier), slot}; }
  // The block's copy on disk; kNoSlot: none.
  SlotIndex CopyOnDisk(BlockId id) const;
  Backup* BackupOf(BlockId id);
  bool HasOrGetsCopyOnDisk(BlockId id) {
    return CopyOnDisk(id) != kNoSlot || BackupOf(id) != nullptr;
  }
  bool IsDiskCandidate(BlockId id, SlotIndex slot) const;
  // Why the disk can give up a copy from now on. See EvictionPolicy::Released and Unparked.
  enum class DiskListing : uint8_t { kReleased, kUnparked };
  // List or unlist the block's copy on disk by invariant 8.
  void ListOnDisk(OperationScope& op, BlockId id, DiskListing why = DiskListing::kReleased);
  void UnlistOnDisk(OperationScope& op, BlockId id);
  // The child's parent has one more or less child on disk, or about to be.
  void CountChildOnDisk(OperationScope& op, BlockId child, int change,
                        DiskListing why = DiskListing::kReleased);
  // Nothing holds the block any more. Queues it for a backup, or makes its copy on disk the most
  // recent.
  void ReleasedAboveDisk(OperationScope& op, BlockId id);
  bool OrderBackup(OperationScope& op, BlockId id);
  bool StaysOnDisk(const OperationScope& op, BlockId id, BlockId comes) const;
  bool FreeSlotOnDisk(OperationScope& op, BlockId comes);
  bool MakeQuotaOnDisk(OperationScope& op, BlockId comes);
  void GiveUpOnDisk(OperationScope& op, BlockId victim);
  void SubmitBackups(OperationScope& op);
  void EndBackup(std::deque<Backup>::iterator backup, bool slot_is_free);
  void AttachOnDisk(OperationScope& op, BlockId id, SlotIndex slot);
  enum class Lost : uint8_t { kDropped, kErased, kForgotten };
  // Ends the block's copy on disk or its backup. The block is still in the tree.
  void LeaveDisk(OperationScope& op, BlockId id, Lost lost);
  void DropOnDisk(OperationScope& op, BlockId id);
  void DetachOnDisk(OperationScope& op, BlockId id, SlotIndex slot, Lost lost);
  void LetFileSlotGo(SlotIndex slot, Lost lost);
  void EndFileUse(SlotIndex slot);
  void OrderErase(Disk::Erasing erasing);
  void EraseEnded(Ticket ticket, const absl::Status& status);
  Ticket FetchOf(BlockId id) const;
  std::optional<SlotIndex> TakeForFetch(OperationScope& op, BlockId id);
  bool OrderFetch(OperationScope& op, BlockId id, FetchJob& job);
  void Advance(OperationScope& op, std::list<FetchJob>::iterator job);
  bool IsInMemory(BlockRef block) const;
  bool BringUp(OperationScope& op, const Fetched& fetched);
  void GiveUp(FetchJob& job, size_t from);
  void LoseOnDisk(OperationScope& op, const Fetched& fetched);

  // --- tier_residency_check.cc ---
  void CheckDisk() const;
  void CheckCopies(BlockId id, std::array<uint32_t, kMaxTiers>* duplicates) const;
  void CheckCandidates() const;
  void CheckSlotStates() const;
  void CheckAccounts(const Holders& holders) const;

  const Options options_;
  const CoreServices services_;
  BlockStore& store_;
  PrefixTree& tree_;
  CacheExit& exit_;
  std::array<TierState, kMaxTiers> tiers_;
  TenantAccounts accounts_;
  // The block that is being onboarded: its slot and its place in the quota will be free. A block
  // that is offloaded meanwhile can count on both.
  std::optional<Leaving> leaving_;
  DeferredReleaseCounts deferred_;
  Disk disk_;
  uint64_t offloaded_blocks_ = 0;
  uint64_t onboarded_blocks_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_RESIDENCY_H_
