// The slots of every tier of one window, and the copies of each block in them.
#ifndef PAGODA_MANAGER_TIERS_TIER_SLOTS_H_
#define PAGODA_MANAGER_TIERS_TIER_SLOTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "events/event.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/slot_queue.h"
#include "manager/tiers/slot_table.h"
#include "manager/tree/block_store.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. It knows where the bytes of blocks are, and neither who holds the blocks
// nor how many there are. Thread-compatible. All memory is taken at the start.
//
// A block that has a slot can have further copies of its bytes in farther tiers, at most one in
// each. The block is counted, held and evicted at its nearest copy. The other copies are
// duplicates. Nothing is lost with a duplicate, so a memory tier gives up its duplicates first. No
// tenant is charged for them.
//
// Invariants
// 1. A slot is free, belongs to one block, is the spare or a staging slot, or is in transit: a
// backup writes it, a fetch fills it, or it is to be erased.
// 2. One slot of each memory tier below the first is the spare, which belongs to no block.
// 3. A block owns its nearest copy, which the store names, and its duplicates. Each copy names the
// next one, in a farther tier.
// 4. Only a cached block has duplicates. A memory tier knows the order in which it got them.
class TierSlots {
 public:
  static constexpr size_t kNoTier = kMaxTiers;

  TierSlots(const ResidencyOptions& options, BlockStore* store);

  // --- The tiers ---

  // The next tier that has blocks; kNoTier: there is none.
  size_t below(Tier tier) const { return At(tier).below; }
  // Whether there is a tier below the first one.
  bool has_lower() const { return below(kPrimaryTier) != kNoTier; }
  uint32_t capacity(Tier tier) const { return At(tier).capacity; }
  // The tier's slots, with the spare and the staging slots.
  uint32_t num_slots(Tier tier) const { return At(tier).table.size(); }
  bool has_disk() const { return disk_ != kNoTier; }
  bool IsOnDisk(Tier tier) const { return tier.value() == disk_; }
  // kMaxTiers: none.
  size_t disk_tier() const { return disk_; }
  // The tier on disk, and the one that has the staging slots. REQUIRES: has_disk().
  Tier disk() const { return Tier(disk_); }
  Tier above_disk() const { return Tier(above_disk_); }
  SlotRef FileSlot(SlotIndex slot) const { return {disk(), slot}; }

  // --- One slot ---

  uint32_t free_slots(Tier tier) const { return At(tier).table.free(); }
  // A free slot, which is taken from now on. REQUIRES: free_slots(tier) > 0.
  SlotIndex Take(Tier tier) { return At(tier).table.Take(); }
  void Release(SlotRef slot) { At(slot.tier).table.Release(slot.slot); }
  // The slot, which was taken, is the block's nearest copy from now on.
  void Give(BlockId id, SlotRef slot) {
    At(slot.tier).table.Give(slot.slot, id);
    store_.SetSlot(id, slot);
  }
  // See SlotTable::Orphan.
  void Orphan(SlotRef slot) { At(slot.tier).table.Orphan(slot.slot); }
  // kNoBlock if the slot belongs to no block.
  BlockId OwnerOf(SlotRef slot) const { return At(slot.tier).table.owner(slot.slot); }
  bool IsFree(SlotRef slot) const { return At(slot.tier).table.is_free(slot.slot); }
  // Whether it is the spare or a staging slot.
  bool IsReserved(SlotRef slot) const {
    return slot.slot == At(slot.tier).spare || slot.slot.value() >= At(slot.tier).first_staging;
  }
  // The spare becomes free for a while, until another slot becomes the spare.
  void LendSpare(Tier tier) { At(tier).table.Release(At(tier).spare); }
  void TakeSpare(Tier tier) { At(tier).spare = At(tier).table.Take(); }
  // The staging slots that no backup uses.
  size_t free_staging() const { return staging_.size(); }
  SlotIndex TakeStaging();
  void ReleaseStaging(SlotIndex slot) { staging_.push_back(slot); }

  // --- The copies of a block ---

  // The next copy of the slot's block, in a farther tier; kNoSlot: none.
  SlotRef Lower(SlotRef slot) const { return At(slot.tier).table.lower(slot.slot); }
  // The farther tiers that have a copy of the block's bytes.
  TierSet LowerTiers(BlockId id) const;
  // Whether the block's nearest copy is in `slot`.
  bool IsIn(BlockId id, SlotRef slot) const {
    return OwnsSlot(store_[id].state()) && store_.slot(id) == slot;
  }
  bool IsDuplicate(BlockId id, SlotRef slot) const {
    return OwnerOf(slot) == id && store_.slot(id) != slot &&
           At(slot.tier).duplicates.contains(slot.slot);
  }
  // The block's copy on disk; kNoSlot: none.
  SlotIndex CopyOnDisk(BlockId id) const;
  bool HasCopyOnDisk(BlockId id) const { return CopyOnDisk(id) != kNoSlot; }
  // Whether the block has bytes, and only on disk.
  bool IsOnlyOnDisk(BlockId id) const {
    return store_[id].state() == BlockState::kCached && IsOnDisk(store_[id].tier());
  }
  uint32_t duplicates(Tier tier) const { return At(tier).duplicates.size(); }
  // REQUIRES: duplicates(tier) > 0.
  SlotRef OldestDuplicate(Tier tier) const { return {tier, At(tier).duplicates.front()}; }
  // A taken slot becomes a duplicate, the block's farthest copy. REQUIRES: the block is cached.
  void AddFarthest(BlockId id, SlotRef slot);
  // The slot belongs to the block as before, and is no copy of it any more. REQUIRES: it is a
  // duplicate of the block.
  void Unlink(BlockId id, SlotRef slot);
  // Frees all duplicates of a block that leaves the tree.
  void DropDuplicates(BlockId id);
  // Makes `slot` the block's nearest copy: a slot taken for it, or its next copy.
  enum class OldSlot : uint8_t { kFree, kDuplicate };
  void SetNearest(BlockId id, SlotRef slot, OldSlot old_slot);

  // --- A warm restart ---

  // Takes the slots of the blocks that were found, by tier. REQUIRES: nothing has happened yet.
  void Claim(const std::array<std::vector<SlotIndex>, kMaxTiers>& slots);
  // Claims the file slots of blocks of an earlier run. REQUIRES: as Claim.
  void ClaimOnDisk(absl::Span<const SlotIndex> slots) { At(disk()).table.Claim(slots); }

  // --- For tests ---

  // Stops the process unless invariant 3 holds for the block. Adds its duplicates, by tier.
  void CheckCopies(BlockId id, std::array<uint32_t, kMaxTiers>* duplicates) const;
  // Stops the process if a block owns a spare.
  void CheckSpares() const;

 private:
  struct TierState {
    SlotTable table;
    SlotQueue duplicates;  // The oldest first.
    uint32_t capacity = 0;
    SlotIndex spare = kNoSlot;   // None in the first tier.
    uint32_t first_staging = 0;  // Slots from here on are staging slots.
    size_t below = kNoTier;
  };

  TierState& At(Tier tier) { return tiers_[tier.value()]; }
  const TierState& At(Tier tier) const { return tiers_[tier.value()]; }

  BlockStore& store_;
  std::array<TierState, kMaxTiers> tiers_;
  size_t disk_ = kNoTier;
  size_t above_disk_ = kNoTier;     // The tier that the staging slots are in.
  std::vector<SlotIndex> staging_;  // The free ones.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_SLOTS_H_
