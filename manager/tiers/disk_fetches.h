// The fetches of one window: the blocks that are being read from disk into memory.
#ifndef PAGODA_MANAGER_TIERS_DISK_FETCHES_H_
#define PAGODA_MANAGER_TIERS_DISK_FETCHES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/event.h"
#include "manager/api/stats.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/block_copies.h"
#include "manager/tiers/disk_copies.h"
#include "manager/tiers/file_slots.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_candidates.h"
#include "manager/tiers/tier_counts.h"
#include "manager/tiers/tier_moves.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. Only the memory slots that fetches have taken wait for the disk.
// Thread-compatible.
//
// Invariants
// 1. A fetch has a slot in the tier above the disk, which is in transit until the fetch ends. All
// fetches together have at most a part of that tier.
// 2. The blocks of one job become usable in their order: no block before its parent.
// 3. A fetch that was given up, or whose block changed meanwhile, brings no block into memory.
class DiskFetches {
 public:
  // The parts outlive the fetches.
  DiskFetches(const ResidencyContext& context, TierSlots* slots, BlockCopies* copies,
              TierCounts* counts, FileSlots* file_slots, TierCandidates* candidates,
              DiskCopies* disk_copies, TierMoves* moves)
      : options_(context.options),
        services_(context.services),
        store_(context.store),
        tree_(context.tree),
        exit_(context.exit),
        slots_(*slots),
        copies_(*copies),
        counts_(*counts),
        file_slots_(*file_slots),
        candidates_(*candidates),
        disk_copies_(*disk_copies),
        moves_(*moves) {}

  // Orders fetches of the blocks that lie on disk alone, first to last, until no slot is left for
  // one. `blocks` names parents before children; the caller holds the blocks in memory. `fetched`
  // grows by the number of fetches ordered. Returns the last one's ticket. REQUIRES: there is a
  // tier on disk.
  Ticket Fetch(OperationScope& op, absl::Span<const BlockId> blocks, absl::Time deadline,
               uint32_t* fetched);
  // Gives up the fetches whose deadline is over.
  void ExpireFetches(OperationScope& op);
  // The carrier's answer to a fetch. See BlockManager::Complete.
  void FetchEnded(OperationScope& op, Ticket ticket, const absl::Status& status);

  void AddStats(DiskTierStats* stats) const;
  // For tests. Stops the process unless invariant 1 holds.
  void CheckInvariants() const;

 private:
  // A block that is being read from disk.
  struct Fetched {
    Ticket ticket;
    BlockRef block;
    SlotIndex file;
    SlotIndex memory;
    enum class State : uint8_t { kRunning, kRead, kFailed } state = State::kRunning;
    bool given_up = false;
  };
  // The fetches of one call. The blocks become usable in this order.
  struct Job {
    absl::Time deadline;
    std::deque<Fetched> blocks;
  };

  Ticket FetchOf(BlockId id) const;
  std::optional<SlotIndex> TakeSlot(OperationScope& op, BlockId id);
  bool OrderFetch(OperationScope& op, BlockId id, Job& job);
  void Advance(OperationScope& op, std::list<Job>::iterator job);
  bool IsInMemory(BlockRef block) const;
  bool BringUp(OperationScope& op, const Fetched& fetched);
  void GiveUp(Job& job, size_t from);
  void LoseOnDisk(OperationScope& op, const Fetched& fetched);

  const ResidencyOptions& options_;
  const CoreServices& services_;
  const BlockStore& store_;
  const PrefixTree& tree_;
  CacheExit& exit_;
  TierSlots& slots_;
  BlockCopies& copies_;
  TierCounts& counts_;
  FileSlots& file_slots_;
  TierCandidates& candidates_;
  DiskCopies& disk_copies_;
  TierMoves& moves_;
  std::list<Job> jobs_;
  uint32_t fetching_ = 0;  // Memory slots that fetches have taken.
  uint64_t fetched_ = 0;
  uint64_t fetch_bytes_ = 0;
  uint64_t late_fetches_ = 0;
  uint64_t failed_fetches_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_DISK_FETCHES_H_
