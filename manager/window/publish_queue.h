// The cached blocks that have become worth publishing to a store, until they are taken.
#ifndef PAGODA_MANAGER_WINDOW_PUBLISH_QUEUE_H_
#define PAGODA_MANAGER_WINDOW_PUBLISH_QUEUE_H_

#include <cstdint>

#include "manager/tiers/slot_queue.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible. Holds block ids and looks at no block: the caller checks after PopNewest()
// whether the block still deserves it. Takes 8 bytes for each id at the start.
//
// The newest block is taken first. A parent comes before its children, so the first block of a path
// that is taken is the deepest one, and the blocks above it can be removed with it. If blocks come
// faster than they are taken, the oldest are forgotten, which are also the first to be evicted.
class PublishQueue {
 public:
  static constexpr uint32_t kMaxBlocks = 1 << 16;

  // A block is worth publishing after `min_uses` prefix matches; 0: when it is stored.
  PublishQueue(uint8_t min_uses, uint32_t num_ids) : min_uses_(min_uses), blocks_(num_ids) {}

  uint32_t min_uses() const { return min_uses_; }
  uint32_t size() const { return blocks_.size(); }
  // Blocks that a full queue gave up.
  uint64_t forgotten() const { return forgotten_; }

  // The block becomes the newest one. It can be in the queue from an earlier life of its id.
  void Push(BlockId id) {
    Remove(id);
    if (size() == kMaxBlocks) {
      blocks_.Remove(blocks_.front());
      ++forgotten_;
    }
    blocks_.PushBack(id);
  }
  // REQUIRES: size() > 0.
  BlockId PopNewest() {
    const BlockId id = blocks_.back();
    blocks_.Remove(id);
    return id;
  }
  void Remove(BlockId id) {
    if (blocks_.contains(id)) blocks_.Remove(id);
  }

 private:
  const uint32_t min_uses_;
  IndexQueue<BlockId> blocks_;
  uint64_t forgotten_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_PUBLISH_QUEUE_H_
