// The moves of blocks of one window between its tiers, and how slots become free.
#ifndef PAGODA_MANAGER_TIERS_TIER_MOVES_H_
#define PAGODA_MANAGER_TIERS_TIER_MOVES_H_

#include <array>
#include <cstdint>
#include <optional>

#include "events/event.h"
#include "manager/accounts/tenants.h"
#include "manager/api/stats.h"
#include "manager/services/event_recorder.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/block_copies.h"
#include "manager/tiers/content_journal.h"
#include "manager/tiers/disk_backups.h"
#include "manager/tiers/disk_copies.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_candidates.h"
#include "manager/tiers/tier_counts.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. Refuses nothing: the caller has checked that enough blocks are
// available. Thread-compatible.
//
// Invariants
// 1. In each tier, a victim is offloaded if a tier below takes it, and evicted otherwise (rule 14).
// 2. Under full attention no block is in a farther tier than its children (rule 13).
// 3. The parts below hear of each move: slots, counts, candidates, journal, tree and events.
class TierMoves {
 public:
  // The parts outlive the moves.
  TierMoves(const ResidencyContext& context, TierSlots* slots, BlockCopies* copies,
            TierCounts* counts, ContentJournal* journal, TierCandidates* candidates,
            DiskCopies* disk_copies, DiskBackups* backups)
      : options_(context.options),
        store_(context.store),
        tree_(context.tree),
        exit_(context.exit),
        recorder_(*context.services.recorder),
        slots_(*slots),
        copies_(*copies),
        counts_(*counts),
        journal_(*journal),
        candidates_(*candidates),
        disk_copies_(*disk_copies),
        backups_(*backups) {}

  // --- Moving ---

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
  // Makes `slot` the nearest copy of the block: a slot taken for it, or its next copy. The caller
  // counts the block in its new tier, and lists it there.
  using OldSlot = TierSlots::OldSlot;
  void ChangeTier(OperationScope& op, BlockId id, SlotRef slot, OldSlot old_slot);

  // The bytes of a duplicate, or of the nearest copy, are lost. LoseNearest returns whether the
  // block fell to another copy. If it returns false, the block has to leave the tree.
  void LoseDuplicate(BlockId id, SlotRef slot);
  bool LoseNearest(OperationScope& op, BlockId id);

  // --- Freeing slots ---

  // Frees at least one primary slot that `tenant` may have. REQUIRES: there is a candidate.
  void FreeOneSlot(OperationScope& op, TenantId tenant);
  // Takes a candidate out of its tier: moves it down, or evicts it.
  void GiveUp(OperationScope& op, BlockId victim, RemovalReason reason);
  // A free slot, or that of the oldest duplicate. REQUIRES: the tier has one of the two.
  SlotIndex TakeSlot(Tier tier);

  // Fills in what WindowStats says of blocks that moved.
  void AddStats(WindowStats* stats) const;

 private:
  // The block that is being onboarded.
  struct Leaving {
    Tier tier;
    TenantId owner;
  };
  // Why a candidate leaves its tier: its slot is needed now, or will be, or a client asks for it.
  enum class Why : uint8_t { kSlotNeeded, kAhead, kAsked };

  Offloaded MoveDown(OperationScope& op, BlockId victim, Why why);
  bool Wants(Tier tier, BlockId victim) const;
  bool MustGoTo(Tier tier, BlockId victim) const;
  bool HasSlotFor(Tier tier, TenantId owner) const;
  bool IsWorthLess(const OperationScope& op, BlockId comes, Tier tier) const;
  bool FreeSlotFor(OperationScope& op, BlockId comes, Tier tier);
  void MoveTo(OperationScope& op, BlockId victim, SlotRef to);
  bool CanFallTo(BlockId id, SlotRef lower) const;
  void FallTo(OperationScope& op, BlockId victim, SlotRef to);
  void GiveToHolder(BlockId id);

  const ResidencyOptions& options_;
  const BlockStore& store_;
  PrefixTree& tree_;
  CacheExit& exit_;
  EventRecorder& recorder_;
  TierSlots& slots_;
  BlockCopies& copies_;
  TierCounts& counts_;
  ContentJournal& journal_;
  TierCandidates& candidates_;
  DiskCopies& disk_copies_;
  DiskBackups& backups_;
  // The block that is being onboarded: its slot and its place in the quota will be free. A block
  // that is offloaded meanwhile can count on both.
  std::optional<Leaving> leaving_;
  uint64_t offloaded_blocks_ = 0;
  uint64_t onboarded_blocks_ = 0;
  uint64_t passed_over_ = 0;  // See DiskTierStats.
  std::array<uint64_t, kMaxTiers> freely_evicted_blocks_ = {};
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_MOVES_H_
