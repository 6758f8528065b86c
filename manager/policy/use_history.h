// How often cached content was matched, and when it was last used.
#ifndef PAGODA_MANAGER_POLICY_USE_HISTORY_H_
#define PAGODA_MANAGER_POLICY_USE_HISTORY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/big_array.h"
#include "events/block_hash.h"
#include "manager/policy/evicted_content.h"
#include "pools/types.h"

namespace pagoda {

// The uses of all tenants' blocks of a tier, by slot. The tenants can share the table: while a
// block is cached its slot belongs to one tenant, and a content's hash covers its tenant's
// namespace. 8 bytes a slot. Thread-compatible, together with all histories that use the table.
class UseTable {
 public:
  explicit UseTable(uint32_t num_slots)
      : uses_(num_slots), evicted_(num_slots), mark_step_(std::max(1u, num_slots / 4)) {}

 private:
  friend class UseHistory;

  // 4 bytes.
  struct Use {
    uint32_t last_used : 28 = 0;
    uint32_t matches : 4 = 0;
  };
  static_assert(sizeof(Use) == 4);

  BigArray<Use> uses_;
  EvictedContent evicted_;
  const uint32_t mark_step_;  // Contents that leave between two marks of a history.
  uint64_t removed_ = 0;      // Contents of all tenants that left.
};

// One tenant's history: by slot while the content is cached, and for a while after it left. Content
// that comes back in that time keeps its count, plus one match. `now` is the policy's own clock. A
// block that was not used for 2^28 of its steps looks younger than it is. Thread-compatible.
class UseHistory {
 public:
  static constexpr uint32_t kMaxMatches = EvictedContent::kMaxNote;

  // The table outlives the history.
  explicit UseHistory(UseTable* table) : table_(table), uses_(table->uses_.data()) {}

  // Returns what is remembered of the content. Its note is the number of its matches when it left.
  // Its age is about the number of this tenant's contents that left since.
  std::optional<EvictedContent::Memory> Inserted(SlotIndex slot, BlockHash content, uint64_t now);
  void Touched(SlotIndex slot, uint64_t now);
  void Removed(SlotIndex slot, BlockHash content) {
    if (table_->removed_ - marks_.back().all >= table_->mark_step_) AddMark();
    ++removed_;
    ++table_->removed_;
    table_->evicted_.Remember(content, matches(slot));
  }
  // A holder released a block. So the current call is not the match that brought the last arrival.
  void Released() { arrived_ = kNoSlot; }

  // Whether the content has just come in. A touch then belongs to the match that onboarded it.
  bool arrives(SlotIndex slot) const { return slot == arrived_; }
  // At most kMaxMatches; further matches are not counted.
  uint32_t matches(SlotIndex slot) const { return uses_[slot.value()].matches; }
  // The time since its last use.
  uint64_t Age(SlotIndex slot, uint64_t now) const {
    return (now - uses_[slot.value()].last_used) & kClockMask;
  }

 private:
  static constexpr uint64_t kClockMask = (uint64_t{1} << 28) - 1;

  // How many contents had left at one moment: of all tenants, and of this one.
  struct Mark {
    uint64_t all = 0;
    uint64_t own = 0;
  };
  // The marks reach back twice as far as EvictedContent remembers.
  static constexpr size_t kMarks = 16;

  void AddMark();
  // How many of the last `left` contents of all tenants were this tenant's.
  uint64_t OwnOf(uint64_t left) const;

  UseTable* const table_;
  UseTable::Use* const uses_;       // The table's.
  uint64_t removed_ = 0;            // Contents of this tenant that left.
  std::array<Mark, kMarks> marks_;  // The newest last.
  SlotIndex arrived_ = kNoSlot;     // Inserted last; only Removed was called since.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_USE_HISTORY_H_
