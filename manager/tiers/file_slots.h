// The file slots of a tier on disk that reads, writes and erases touch, and the erases.
#ifndef PAGODA_MANAGER_TIERS_FILE_SLOTS_H_
#define PAGODA_MANAGER_TIERS_FILE_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "manager/api/stats.h"
#include "manager/services/order_lanes.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_counts.h"
#include "manager/tiers/tier_slots.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. Thread-compatible. Memory and cost are proportional to the reads and
// erases that have not ended. All methods but OrderErase() and EraseEnded() REQUIRE a tier on disk.
//
// Invariants
// 1. A slot that its block has left becomes free when no read, write or erase of it is under way.
// If it was dropped, the carrier is told then.
// 2. A slot whose write failed is retired: it never becomes free.
// 3. A slot that its block has left, or that a backup writes, is in transit until it is free or a
// block's.
class FileSlots {
 public:
  // `slots` and `counts` outlive the file slots.
  FileSlots(const ResidencyContext& context, TierSlots* slots, TierCounts* counts)
      : index_(context.options.index),
        lanes_(*context.services.lanes),
        slots_(*slots),
        counts_(*counts) {}

  // Whether a read or an erase of the slot is under way.
  bool IsInUse(SlotIndex slot) const { return uses_.contains(slot); }
  void BeginRead(SlotIndex slot) { ++uses_[slot].reads; }
  void EndRead(SlotIndex slot);

  // A free slot for a backup. REQUIRES: one is free.
  SlotIndex TakeForWrite();
  // The slot of a backup that wrote nothing becomes free.
  void Release(SlotIndex slot);
  // The slot of a backup, or a claimed one, becomes free. What the file holds there is dropped.
  void ReleaseWritten(SlotIndex slot);
  void DropRecovered(SlotIndex slot);
  // The next erase includes the slot, which a backup still writes.
  void EraseWhenWritten(SlotIndex slot);
  // The write of such a slot has ended.
  enum class Written : uint8_t { kEnded, kRetired };
  void EndWrite(SlotIndex slot, Written written);
  // A backup of no such slot failed, and the slot is not used again before the next start.
  void Retire() { ++retired_slots_; }

  // The slot's block has left it.
  enum class Lost : uint8_t { kDropped, kErased, kForgotten };
  void LetGo(SlotIndex slot, Lost lost);

  // Orders that blocks which left by an invalidation since the last call do not come back after a
  // restart; with kEraseAll, that no block does. Returns the ticket.
  Ticket OrderErase(Order::Kind kind);
  // Returns false if the ticket is not an erase's.
  bool EraseEnded(Ticket ticket, const absl::Status& status);
  // Whether a kEraseAll is under way.
  bool IsErasingAll() const { return resets_ != 0; }

  void AddStats(DiskTierStats* stats) const;
  // For tests. `copies`: by slot, whether it is a block's. Returns the slots that are in transit
  // because of what is known here.
  uint32_t CheckInvariants(const std::vector<bool>& copies) const;

 private:
  struct Use {
    uint32_t reads = 0;
    uint32_t writes = 0;  // Backups to a slot that is to be erased. Other backups are not counted.
    uint32_t erases = 0;
    bool orphaned = false;  // Its block has left it. It becomes free when nothing touches it.
    bool dropped = false;   // Orphaned, and the carrier has to be told.
    bool retired = false;   // Its write failed: it is not used again.
  };
  struct Erasing {
    Order::Kind kind = Order::Kind::kErase;
    std::vector<SlotIndex> slots;
    // Closed when it ends: its own ticket and those of its earlier tries.
    std::vector<Ticket> tickets;
  };

  void EndUse(SlotIndex slot);
  void OrderDrop(SlotIndex slot);
  void OrderErase(Erasing erasing);

  const uint32_t index_;
  OrderLanes& lanes_;
  TierSlots& slots_;
  TierCounts& counts_;
  absl::flat_hash_map<SlotIndex, Use> uses_;
  std::vector<SlotIndex> to_erase_;
  absl::flat_hash_map<Ticket, Erasing> erasing_;
  uint32_t resets_ = 0;  // Those of kEraseAll that are under way.
  uint64_t erased_blocks_ = 0;
  uint64_t failed_erases_ = 0;
  uint32_t retired_slots_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_FILE_SLOTS_H_
