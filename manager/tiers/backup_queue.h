// The blocks that wait to be copied to disk: the most used first, then those of the highest
// priority.
#ifndef PAGODA_MANAGER_TIERS_BACKUP_QUEUE_H_
#define PAGODA_MANAGER_TIERS_BACKUP_QUEUE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "events/event.h"
#include "manager/words/block_facts.h"
#include "manager/words/retention.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible. Does not know whether a block still exists; the caller checks after Pop(). A
// class is a number of uses and ten adjacent priorities. Within a class the queue is first in,
// first out.
class BackupQueue {
 public:
  // A full queue forgets the oldest block of the lowest class that has any.
  static constexpr uint32_t kMaxBlocks = 1 << 16;

  uint32_t size() const { return size_; }
  // Returns the block that was forgotten for this one, if any.
  std::optional<BlockRef> Push(BlockRef block, uint8_t uses, Priority priority) {
    std::optional<BlockRef> forgotten;
    if (size_ == kMaxBlocks) {
      for (std::deque<BlockRef>& blocks : classes_) {
        if (blocks.empty()) continue;
        forgotten = blocks.front();
        blocks.pop_front();
        --size_;
        break;
      }
    }
    classes_[ClassOf(uses, priority)].push_back(block);
    ++size_;
    return forgotten;
  }
  // Puts a block that was taken from the queue before all others. The queue can exceed kMaxBlocks
  // by the number of blocks that were taken.
  void PushFirst(BlockRef block) {
    classes_.back().push_front(block);
    ++size_;
  }
  // The next block; nothing if the queue is empty.
  std::optional<BlockRef> Pop() {
    for (size_t c = classes_.size(); c-- > 0;) {
      if (classes_[c].empty()) continue;
      const BlockRef block = classes_[c].front();
      classes_[c].pop_front();
      --size_;
      return block;
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kPriorityClasses = kMaxPriority / 10 + 1;
  static size_t ClassOf(uint8_t uses, Priority priority) {
    return uses * kPriorityClasses + priority.value() / 10;
  }

  std::array<std::deque<BlockRef>, (BlockFacts::kMaxUses + 1) * kPriorityClasses> classes_;
  uint32_t size_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_BACKUP_QUEUE_H_
