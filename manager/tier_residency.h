// Where the blocks of one window lie: slots, who holds them, what may go, and the copies between
// tiers.
#ifndef PAGODA_MANAGER_TIER_RESIDENCY_H_
#define PAGODA_MANAGER_TIER_RESIDENCY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "manager/backup_queue.h"
#include "manager/big_array.h"
#include "manager/block_facts.h"
#include "manager/block_store.h"
#include "manager/deferred_release_counts.h"
#include "manager/eviction_policy.h"
#include "manager/file_orders.h"
#include "manager/ids.h"
#include "manager/lists.h"
#include "manager/operation_scope.h"
#include "manager/prefix_tree.h"
#include "manager/recovered_block.h"
#include "manager/slot_queue.h"
#include "manager/slot_table.h"
#include "manager/stats.h"
#include "manager/tenants.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

// How blocks leave the cache. The one way from the residency up to whoever has the tree.
class CacheExit {
 public:
  // `victim` gives up its slot: it leaves the tree, or stays there as a hole. In a sliding window
  // what is below it may leave, too. REQUIRES: it is a candidate.
  virtual void Evict(OperationScope& op, BlockId victim, RemovalReason reason) = 0;
  // The only copy of a cached block is lost: it leaves, with all below it.
  virtual void Lose(OperationScope& op, BlockId id) = 0;

 protected:
  ~CacheExit() = default;
};

// Reads the prefix tree, and neither adds to it nor takes from it. Knows no sequence, and refuses
// nothing: its caller has made sure that there is room. Thread-compatible.
//
// A block that has a slot may have copies of its bytes in farther tiers, at most one in each. It is
// counted, held and evicted where its nearest copy is. The others are duplicates: they are nobody's
// loss, so a tier in memory gives them up before anything else, and they are charged to no tenant.
//
// The last tier may be on disk (tier_disk.cc). A block gets its copy there while it is in memory,
// by a backup: a copy to a staging slot and a write from there. It comes back by a fetch. No slot
// of memory waits for the disk, but for those that fetches have taken.
//
// Invariants
// 1. Every slot is free, or one block's, or the spare, or a staging slot, or in transit: a backup
// writes it, a fetch fills it, or it is to be erased. By tier: free + unheld + held + duplicates +
// in transit = capacity; unheld are the nearest copies of cached blocks that nobody holds.
// 2. Pinned and drained slots are among the held ones, and are counted.
// 3. Candidates of a tier's policies: the cached blocks there that nobody holds and that have no
// children in the way (IsCandidate). A block is a candidate of its owner's policy.
// 4. The tenants' accounts are what TenantAccounts says.
// 5. One slot of each tier below the first is the spare, which belongs to no block.
// 6. A slot that gets or loses content is in the slot journal, in order. A duplicate counts as
// having none.
// 7. Only a cached block has duplicates.
// 8. Candidates of the disk's policies: the copies there, also those that have nearer ones, of
// blocks that no child has a copy there, or one on order (IsDiskCandidate). So the disk gives up
// what a restart could not reach before anything else, and no copy for having a nearer one.
// 9. A backup begins where the block above has a copy on disk, or one on order before it.
class TierResidency {
 public:
  // By tier, then by tenant, over the tier's slots (SlotsFor()); none where the tier has no blocks.
  using Policies = std::array<std::vector<std::unique_ptr<EvictionPolicy>>, kMaxTiers>;

  struct Options {
    WindowSize window = kFullAttention;
    uint32_t index = 0;  // Among the cache's windows.
    struct TierOptions {
      uint32_t blocks = 0;                       // 0: the window has no blocks in the tier.
      Priority min_priority = kDefaultPriority;  // See TierSpec.
      bool on_disk = false;                      // Then it is the last one with blocks.
      uint32_t staging_slots = 0;                // Above a tier on disk.

      uint32_t num_slots(Tier tier) const {
        return on_disk ? blocks : SlotsFor(tier, blocks) + (blocks == 0 ? 0 : staging_slots);
      }
    };
    std::array<TierOptions, kMaxTiers> tiers;
    uint64_t block_bytes = 0;              // What a backup takes of the write budget.
    const TenantTable* tenants = nullptr;  // Outlives the residency.
  };

  // What the arguments name outlives the residency. `exit` is called later alone.
  TierResidency(const Options& options, Policies policies, const CoreServices& services,
                BlockStore* store, PrefixTree* tree, CacheExit* exit);

  // Whether there is a tier below the first one.
  bool has_lower() const { return At(Tier::kPrimary).below != kNoTier; }
  uint32_t capacity(Tier tier) const { return At(tier).capacity; }
  uint32_t free_slots(Tier tier) const { return At(tier).slots.free(); }
  // Primary blocks that can be had now: free ones, and cached ones that nobody holds; for a
  // tenant, as far as its quota goes.
  uint32_t available() const {
    return At(Tier::kPrimary).slots.free() + At(Tier::kPrimary).evictable;
  }
  uint32_t available(TenantId tenant) const {
    return accounts_.any() ? std::min(available(), accounts_.Left(Tier::kPrimary, tenant))
                           : available();
  }
  // Over all tiers.
  uint32_t held_blocks() const;
  uint32_t pinned_blocks() const;
  const TenantAccounts& accounts() const { return accounts_; }
  TenantId owner(BlockId id) const { return accounts_.owner(id); }
  // Whether a cached block that nobody holds may go (rule 13).
  bool IsCandidate(BlockId id) const;

  // --- Holding ---

  // A new life, outside the tree, with a primary slot of its own and one holder: the operation's
  // tenant. REQUIRES: available(op.tenant) > 0.
  BlockId Take(OperationScope& op, BlockState state);
  // The next life of a block that has left the tree in its slot, likewise. REQUIRES: it lies in
  // the primary tier.
  void Renew(OperationScope& op, BlockId id);
  // Holds the block once more, for that tenant. Returns whether nobody held it.
  bool Hold(OperationScope& op, BlockId id, TenantId tenant);
  // As Hold, of a block that is held.
  void HoldAgain(BlockId id, TenantId tenant) {
    Block& block = store_[id];
    if (block.state() != BlockState::kAlias) {
      accounts_.Hold(id, block.tier(), tenant, block.refs);
    }
    ++block.refs;
  }
  // What has become of a block that was let go.
  enum class Fate : uint8_t {
    kHeld,       // By others.
    kEvictable,  // It is cached.
    kFreed,      // Its slot and its id are free.
    kForgotten,  // It was an alias, without a slot of its own: its id is free.
  };
  Fate LetGo(OperationScope& op, BlockId id, TenantId tenant);
  // Candidates go until the tenant has no more than its quota.
  void GiveUpAboveQuota(OperationScope& op, TenantId tenant) {
    while (accounts_.AboveQuota(Tier::kPrimary, tenant)) FreeOneSlot(op, tenant);
  }

  // One more drain holds the block, or one less. The hold itself is the caller's.
  void AddDeferred(BlockId id);
  void RemoveDeferred(BlockId id);
  uint32_t deferred(BlockId id) const { return deferred_.of(id); }
  // Some pin holds the block, or none any more. Likewise.
  void MarkPinned(BlockId id);
  void UnmarkPinned(BlockId id);

  // --- Into the tree and out of it ---

  // A held block has come into the tree: from now on it is `owner`'s. REQUIRES: it is in the
  // primary tier.
  void Enter(OperationScope& op, BlockId id, TenantId owner);
  // A block of an earlier run, which nobody holds, is in the tree and lies in `slot`, which was
  // claimed. kNoSlot: it is a hole.
  void EnterRecovered(OperationScope& op, BlockId id, SlotRef slot, TenantId owner);
  // It is a candidate now, if it may be one. REQUIRES: all blocks of the earlier run are there.
  void OfferRecovered(OperationScope& op, BlockId id);
  // Ends the life of a block that nobody holds and that has no slot of its own.
  void Forget(BlockId id) {
    const SlotRef slot = store_.slot(id);
    PAGODA_CHECK(slot.slot == kNoSlot || OwnerOf(slot) != id,
                 "rule 5: a block gives its slot back before it ends");
    store_.ReleaseId(id);
  }
  // A cached block leaves the tree, in which it still is. Held, it is its only holder's from now
  // on.
  enum class SlotAfter : uint8_t { kFree, kKept };
  void Leave(OperationScope& op, BlockId id, SlotAfter slot, RemovalReason reason);
  // A child of `parent` that lay in `tier` is gone or was moved: the parent may be a candidate now.
  void ChildLeft(OperationScope& op, NodeRef parent, Tier tier);
  // The primary slot of `own`, which is the tenant's alone, becomes that of `canonical`, a hole or
  // a block in a farther tier. `own` is an alias from now on.
  void GiveSlotOf(OperationScope& op, BlockId own, TenantId tenant, BlockId canonical);
  // A prefix match used the block.
  void Touch(OperationScope& op, BlockId id) {
    Block& block = store_[id];
    if (block.uses < BlockFacts::kMaxUses) ++block.uses;
    if (At(block.tier()).follows_contents) policy(block.tier(), id).Touched(Facts(op, id));
  }
  void SetPriority(OperationScope& op, BlockId id, Priority priority);

  // --- Between the tiers ---

  // Brings a held block up; where it was, a duplicate stays. REQUIRES: there is room.
  void Onboard(OperationScope& op, BlockId id);
  // Moves a candidate of the primary tier down, whatever its priority.
  enum class Offloaded : uint8_t {
    kMoved,
    kNoSpace,
    kGone,  // In a sliding window: what it displaced below took it along.
  };
  Offloaded Offload(OperationScope& op, BlockId id);
  // Moves victims down until `free_target` blocks of the tier are free or duplicates, at most
  // `max_blocks`. Returns how many moved.
  uint32_t OffloadAhead(OperationScope& op, Tier tier, uint32_t free_target, uint32_t max_blocks);

  // --- Copies of a block's bytes ---

  // Copies the first `num_tokens` tokens from slot to slot.
  void CopyTokens(OperationScope& op, BlockId source, BlockId target, uint32_t num_tokens);
  // Whoever reads, or writes, the block's slot waits for the copies that are to bring, or touch,
  // its bytes.
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
  // The sequence reads the block's bytes by its table, or does so no more.
  void AddReader(BlockId id, SequenceKey sequence) {
    if (!copies().idle()) copies().AddReader(options_.index, store_.slot(id), sequence);
  }
  void RemoveReader(BlockId id, SequenceKey sequence) {
    if (!copies().idle()) copies().RemoveReader(options_.index, store_.slot(id), sequence);
  }
  bool KnowsReader(BlockId id, SequenceKey sequence) const {
    return copies().KnowsReader(options_.index, store_.slot(id), sequence);
  }

  // Farther tiers with a copy of the block's bytes.
  TierSet LowerTiers(BlockId id) const;
  bool IsDuplicate(BlockId id, SlotRef slot) const {
    return OwnerOf(slot) == id && store_.slot(id) != slot &&
           At(slot.tier).duplicates.contains(slot.slot);
  }
  // The bytes of a duplicate are lost, or those of the nearest copy. Returns whether that is all:
  // else the block has no copy that it could be cached by.
  void LoseDuplicate(BlockId id, SlotRef slot) { DropDuplicate(id, slot); }
  bool LoseNearest(OperationScope& op, BlockId id);

  // The slot has the content of its block, which has just come into the tree or moved.
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
  // Orders backups of blocks that wait for one, as far as the write budget, the staging slots and
  // the disk's slots go. Looks at `max_blocks` of them at most.
  void OrderBackups(OperationScope& op, uint32_t max_blocks);
  // Orders it before all others. Nothing where it has a copy on disk, or one on order.
  void AskForBackup(BlockId id);
  // A copy of the memory lane has ended: it may have filled a staging slot.
  void CopyEnded(OperationScope& op, Ticket ticket, bool ok);
  // Orders fetches of those of the blocks, parents before children, that lie on disk alone, from
  // the first on, as far as there is room. Those in memory are held. `fetched`: grows by those that
  // are on their way now. Returns the last one's ticket.
  Ticket Fetch(OperationScope& op, absl::Span<const BlockId> blocks, absl::Time deadline,
               uint32_t* fetched);
  // Gives up the fetches whose deadline is over.
  void ExpireFetches(OperationScope& op);
  // What the carrier says of an order. See BlockManager::CompleteFile.
  void FetchEnded(OperationScope& op, Ticket ticket, const absl::Status& status);
  void BackupEnded(OperationScope& op, Ticket ticket, const absl::Status& status);
  // Orders that what left the tree by an invalidation since the last call does not come back after
  // a restart; with kAll that nothing does. Returns the ticket; 0 without a disk.
  Ticket OrderErase(FileErase::What what);
  // Blocks of an earlier run, in the file's slots: claims them. REQUIRES: as Claim.
  void ClaimOnDisk(absl::Span<const SlotIndex> slots);
  // A cached block has one more copy, on disk, in a claimed slot.
  void AttachRecovered(OperationScope& op, BlockId id, SlotIndex slot);
  // A block that nobody holds, of an earlier run, is in the tree and lies on disk alone, in a
  // claimed slot.
  void EnterOnDisk(OperationScope& op, BlockId id, SlotIndex slot, TenantId owner);
  // What was found in a claimed slot is not taken back.
  void DropRecovered(SlotIndex slot);

  // --- A warm restart ---

  // Of a tier, with the spare's.
  uint32_t num_slots(Tier tier) const { return At(tier).slots.size(); }
  // Takes the slots of blocks that were found, by tier. REQUIRES: nothing has happened yet.
  void Claim(const std::array<std::vector<SlotIndex>, kMaxTiers>& slots);
  // Whether the block has its bytes in `slot`.
  bool IsIn(BlockId id, SlotRef slot) const {
    return OwnsSlot(store_[id].state()) && store_.slot(id) == slot;
  }

  // --- Numbers ---

  // Fills in what WindowStats says of the tiers, and of blocks that moved and were pinned.
  void AddStats(WindowStats* stats) const;
  void AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const;
  void SlotStates(Tier tier, uint32_t from, absl::Span<SlotState> states) const;
  // Stops the process unless invariant 1 holds by the counters. Cost: O(1).
  void CheckAccounting() const;

  // --- For tests ---

  // By block, for which tenant each of its holds is; of a raw block the session's.
  using Holders = std::vector<std::vector<TenantId>>;
  // Stops the process where what is kept here disagrees with the blocks or with `holders`.
  void CheckInvariants(const Holders& holders) const;

 private:
  static constexpr size_t kPrimary = static_cast<size_t>(Tier::kPrimary);
  static constexpr size_t kNoTier = kMaxTiers;

  // Of one tier. Counts are of its slots.
  struct TierState {
    uint32_t capacity = 0;
    SlotTable slots;
    SlotQueue duplicates;  // The oldest first.
    uint32_t held = 0;
    uint32_t evictable = 0;
    uint32_t pinned = 0;    // Of the held ones.
    uint32_t deferred = 0;  // Held by a drain; and those of them that are pinned, too.
    uint32_t deferred_and_pinned = 0;
    Priority min_priority = kDefaultPriority;
    size_t below = kNoTier;     // The next tier that has blocks.
    SlotIndex spare = kNoSlot;  // Below the first tier.
    EvictionPolicy* default_tenant_policy = nullptr;
    bool follows_contents = false;                          // Some of its policies.
    std::vector<std::unique_ptr<EvictionPolicy>> policies;  // By TenantId.
    PriorityCounts evictable_by_priority = {};
    uint64_t freely_evicted_blocks = 0;  // See WindowStats.
    uint32_t in_transit = 0;             // See invariant 1.
    uint32_t first_staging = 0;          // Slots from here on are staging slots.
  };

  // A block on its way to disk.
  struct Backup {
    BlockRef block;
    SlotIndex file;
    SlotIndex staging;
    Ticket copy;             // Of the memory lane: fills the staging slot.
    Ticket ticket;           // 0: not ordered of the carrier yet.
    bool filled = false;     // The copy has ended well.
    bool failed = false;     // The copy has not.
    bool abandoned = false;  // The block left the tree.
    bool erased = false;     // And an erase was ordered for it.
  };
  // A block on its way from disk.
  struct Fetched {
    Ticket ticket;
    BlockRef block;
    SlotIndex file;
    SlotIndex memory;
    enum class State : uint8_t { kRunning, kRead, kFailed } state = State::kRunning;
    bool given_up = false;
  };
  // Those of one call: they become blocks in order.
  struct FetchJob {
    absl::Time deadline;
    std::deque<Fetched> blocks;
  };
  // What touches a slot of the file beside backups.
  struct FileUse {
    uint32_t reads = 0;
    uint32_t erases = 0;
    bool orphaned = false;  // Its block has left it: it is free when nothing touches it.
    bool dropped = false;   // And the carrier has to hear of that.
    bool retired = false;   // It is not used again.
  };
  struct Disk {
    size_t tier = kMaxTiers;   // kNoTier: there is none.
    size_t above = kMaxTiers;  // The tier that the staging slots are in.
    // By block id. `children`: those that have a copy on disk, or one on order.
    struct Entry {
      uint32_t children : 29 = 0;
      uint32_t queued : 1 = 0;
      uint32_t queued_uses : 2 = 0;  // Block::uses when it was queued last.
    };
    BigArray<Entry> entries;
    std::vector<bool> listed;  // By slot: a candidate of its owner's policy.
    BackupQueue queue;
    std::vector<SlotIndex> staging;  // The free ones.
    std::deque<Backup> backups;      // In the order in which they were ordered.
    BlockId ordering = kNoBlock;     // While room is made for its backup.
    std::list<FetchJob> jobs;
    uint32_t fetching = 0;  // Slots in memory that fetches have.
    absl::flat_hash_map<SlotIndex, FileUse> uses;
    std::vector<SlotIndex> to_erase;
    struct Erasing {
      FileErase::What what = FileErase::What::kSlots;
      std::vector<SlotIndex> slots;
      std::vector<Ticket> tickets;  // That are done when it is: of the tries before, and its own.
    };
    absl::flat_hash_map<Ticket, Erasing> erasing;
    uint32_t resets = 0;        // Erases of kAll that have not ended.
    uint32_t write_errors = 0;  // One after another.
    DiskTierStats stats;
  };

  struct Leaving {
    Tier tier;
    TenantId owner;
  };

  bool sliding() const { return options_.window != kFullAttention; }
  TierState& At(Tier tier) { return tiers_[static_cast<size_t>(tier)]; }
  const TierState& At(Tier tier) const { return tiers_[static_cast<size_t>(tier)]; }
  CopyTracker& copies() const { return *services_.copies; }
  EventRecorder& recorder() { return *services_.recorder; }
  // A block that nobody holds becomes a candidate where its nearest copy is, if it may be one; or
  // is none any more. The copy's slot is that of the block now.
  void List(OperationScope& op, BlockId id) {
    if (IsOnDisk(store_[id].tier())) return ListOnDisk(op, id);
    if (IsCandidate(id)) policy(store_[id].tier(), id).Released(Facts(op, id));
  }
  void Unlist(OperationScope& op, BlockId id) {
    if (IsOnDisk(store_[id].tier())) return UnlistOnDisk(op, id);
    if (IsCandidate(id)) policy(store_[id].tier(), id).Withdrawn(Facts(op, id));
  }
  // The policy of the block's owner.
  EvictionPolicy& policy(Tier tier, BlockId id) {
    TierState& at = At(tier);
    return accounts_.any() ? *at.policies[accounts_.owner(id).value()] : *at.default_tenant_policy;
  }
  // What the policies hear of a block in the tree.
  BlockFacts Facts(OperationScope& op, BlockId id) const {
    return FactsIn(op, id, store_[id].slot);
  }
  // Likewise, of the slot that it had before it moved.
  BlockFacts FactsIn(OperationScope& op, BlockId id, SlotIndex slot) const {
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
  void TellInserted(OperationScope& op, BlockId id) {
    const Tier tier = store_[id].tier();
    if (At(tier).follows_contents) policy(tier, id).Inserted(Facts(op, id));
  }
  // It left `slot`.
  void TellRemoved(OperationScope& op, BlockId id, SlotRef slot) {
    if (!At(slot.tier).follows_contents) return;
    policy(slot.tier, id).Removed(FactsIn(op, id, slot.slot));
  }
  // The block in the slot that the policy names; kNoBlock where it names none.
  BlockId OwnerOfVictim(Tier tier, const EvictionPolicy& policy) const {
    const SlotIndex victim = policy.Victim();
    return victim == kNoSlot ? kNoBlock : OwnerOf({tier, victim});
  }
  BlockId Victim(Tier tier, TenantId tenant) const;
  void FreeOneSlot(OperationScope& op, TenantId tenant);
  Offloaded MoveDown(OperationScope& op, BlockId victim, bool whatever_priority);
  bool Wants(Tier tier, BlockId victim) const;
  bool MustGoDown(BlockId victim) const;
  bool HasSlotFor(Tier tier, TenantId owner) const;
  bool FreeSlotFor(OperationScope& op, BlockId comes, Tier tier);
  void CountPassedOver(BlockId victim);
  void MoveTo(OperationScope& op, BlockId victim, SlotRef to);
  bool CanFallTo(BlockId id, SlotRef lower) const;
  void FallTo(OperationScope& op, BlockId victim, SlotRef lower);
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
  // Lists or unlists the block's copy on disk by invariant 8.
  void ListOnDisk(OperationScope& op, BlockId id);
  void UnlistOnDisk(OperationScope& op, BlockId id);
  void CountChildOnDisk(OperationScope& op, BlockId child, int change);
  // Nobody holds the block any more: it waits for a backup, or its copy on disk is as recent as it.
  void ReleasedAboveDisk(OperationScope& op, BlockId id);
  bool OrderBackup(OperationScope& op, BlockId id);
  bool FreeSlotOnDisk(OperationScope& op, BlockId comes);
  bool MakeQuotaOnDisk(OperationScope& op, BlockId comes);
  void GiveUpOnDisk(OperationScope& op, BlockId victim);
  void SubmitBackups(OperationScope& op);
  void EndBackup(std::deque<Backup>::iterator backup, bool slot_is_free);
  void AttachOnDisk(OperationScope& op, BlockId id, SlotIndex slot);
  enum class Lost : uint8_t { kDropped, kErased, kForgotten };
  // The block has no copy on disk any more, and none on order. It is in the tree still.
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
  // A block that comes up: its slot will be free, and its tenant's, so what moves down meanwhile
  // may count on it.
  std::optional<Leaving> leaving_;
  DeferredReleaseCounts deferred_;
  Disk disk_;
  uint64_t offloaded_blocks_ = 0;
  uint64_t onboarded_blocks_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIER_RESIDENCY_H_
