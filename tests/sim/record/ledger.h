// The holders of each block of a window, and the slot in which each block lies. Counted anew after
// every operation from the clients' knowledge, the events and the copies, without asking the core.
#ifndef PAGODA_TESTS_SIM_RECORD_LEDGER_H_
#define PAGODA_TESTS_SIM_RECORD_LEDGER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "manager/api/stats.h"
#include "manager/words/retention.h"
#include "tests/sim/record/memory.h"
#include "tests/sim/record/shadow.h"
#include "tests/sim/words/fail.h"

namespace pagoda::sim {

struct BlockFacts {
  uint16_t refs = 0;  // Holders.
  uint16_t pins = 0;
  uint16_t deferred = 0;
  bool placed = false;                                   // Whether `place` is valid.
  SlotRef place;                                         // The nearest of `copies`.
  std::array<SlotIndex, kMaxTiers> copies = NoCopies();  // By tier; kNoSlot: none.
  Generation generation;                                 // The last one seen.
  // Found on disk: its generation is not known yet.
  bool unknown_life = false;
  // The retention of a cached block, by the wishes of its sequences and the time.
  Priority priority = kDefaultPriority;
  absl::Duration duration = absl::InfiniteDuration();
  absl::Time deadline = absl::InfiniteFuture();  // Infinite: the clock is stopped.

  static constexpr std::array<SlotIndex, kMaxTiers> NoCopies() {
    return {kNoSlot, kNoSlot, kNoSlot, kNoSlot};
  }
  BlockRetention retention() const { return {.priority = priority, .duration = duration}; }
};

// More ids than any of these cores has.
inline constexpr uint32_t kMostIds = 4096;

class Ledger {
 public:
  Ledger(const SimConfig* config, uint32_t window_index);

  BlockFacts& operator[](uint32_t id) {
    SIM_CHECK(id < kMostIds, "an absurd block id: ", id);
    if (id >= facts_.size()) facts_.resize(id + 1);
    return facts_[id];
  }
  BlockFacts& operator[](BlockId id) { return (*this)[id.value()]; }
  uint32_t num_ids() const { return static_cast<uint32_t>(facts_.size()); }

  // --- Places of blocks ---

  // `id` owns the slot from now on, and no other slot.
  void Place(uint32_t id, SlotRef slot);
  // `id` owns this slot too. In its tier it owns no other.
  void AddCopy(uint32_t id, SlotRef slot);
  // Removes the copy of `id` in that slot, if there is one.
  void RemoveCopy(uint32_t id, SlotRef slot);
  // Removes the copies of `id` in all other tiers.
  void KeepCopies(uint32_t id, TierSet tiers);
  // Whether the block has a nearer copy.
  bool IsDuplicate(uint32_t id, SlotRef slot) const {
    return facts_[id].placed && facts_[id].place != slot;
  }
  // The block that owns the slot; kNone if there is none.
  uint32_t owner(SlotRef slot) const { return owners_[Index(slot.tier)][slot.slot.value()]; }
  uint32_t num_slots(Tier tier) const { return static_cast<uint32_t>(owners_[Index(tier)].size()); }
  // The block left the cache, and nothing holds it.
  void Unplace(uint32_t id);

  // --- Holders ---

  // Forgets all holders.
  void BeginCount();
  // A fetch has the slot, which belongs to no block.
  void Reserve(SlotRef slot) { reserved_.push_back(slot); }
  // The number of disk slots that belong to no block and are not free.
  void SetDiskInFlight(uint32_t slots) { disk_in_flight_ = slots; }
  enum class Holder : uint8_t { kUser, kPin, kDefer };
  void Hold(BlockId id, Holder holder);
  // Removes one holder while an operation runs.
  void LetGo(BlockId id) { --(*this)[id].refs; }
  // Called when all holders are counted. Slots whose block is neither held nor cached are free.
  void EndCount(const Shadow& shadow);

  // Primary slots that nothing holds.
  uint32_t available() const { return available_; }
  uint32_t pinned_blocks() const { return pinned_blocks_; }
  // Stops the run if rule 5 does not hold, or if the numbers differ from the ledger's. While a
  // reset goes on, cut-off blocks count as cached until they are released.
  enum class Reset : uint8_t { kOver, kGoesOn };
  void CheckStats(const WindowStats& stats, const Memory& memory, const Shadow& shadow,
                  Reset reset) const;

 private:
  struct TierCount {
    TierOccupancy occupancy;
    PriorityCounts priorities = {};  // The priorities of cached blocks that are no duplicates.
    uint32_t free_in_flight = 0;     // Slots in flight without a block.
  };

  static size_t Index(Tier tier) { return tier.value(); }
  TierCount CountTier(Tier tier, const Memory& memory, const Shadow& shadow) const;
  void CheckTierStats(const WindowStats& stats, Tier tier, const TierCount& count,
                      Reset reset) const;
  void CheckDiskStats(const WindowStats& stats, const Shadow& shadow, Reset reset) const;
  bool IsReserved(SlotRef slot) const;
  void DropCopy(uint32_t id, Tier tier);
  void FindPlace(uint32_t id);

  const SimConfig* const config_;
  const uint32_t window_index_;
  std::vector<BlockFacts> facts_;
  std::array<std::vector<uint32_t>, kMaxTiers> owners_;
  std::vector<SlotRef> reserved_;
  uint32_t disk_in_flight_ = 0;
  uint32_t available_ = 0;
  uint32_t pinned_blocks_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_LEDGER_H_
