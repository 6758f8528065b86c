// The prefixes of one window that have become worth publishing to a store.
#ifndef PAGODA_MANAGER_WINDOW_PUBLISHABLE_PREFIXES_H_
#define PAGODA_MANAGER_WINDOW_PUBLISHABLE_PREFIXES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "manager/window/publish_queue.h"
#include "manager/window/window_part.h"
#include "manager/words/publishable_prefix.h"
#include "pools/types.h"

namespace pagoda {

// Changes no block. Thread-compatible.
//
// Invariant: whatever happens to a block in the queue, a prefix that Take() returns was used as
// often as ManagerOptions::publish_min_uses says, and all its blocks have bytes in memory.
class PublishablePrefixes final : private WindowPart {
 public:
  explicit PublishablePrefixes(const WindowFloor& floor);

  // The block was stored.
  void Stored(BlockId id) {
    if (options_.publish_min_uses == 0) Used(id);
  }
  // The block has been used, or stored, as ManagerOptions::publish_min_uses wants it. REQUIRES: the
  // option is set.
  void Used(BlockId id) {
    if (store_[id].token_count == tokens_per_block().value()) queue_->Push(id);
  }
  // See CacheLists::TakePublishable.
  void Take(uint32_t max_prefixes, uint32_t max_blocks, std::vector<PublishablePrefix>* out);
  PublishableBlocks counts() const;

 private:
  bool IsPublishable(BlockId id) const;
  bool HasBytesInMemory(BlockId id) const;
  PublishablePrefix PrefixOf(absl::Span<const BlockId> path, NodeRef root) const;

  std::optional<PublishQueue> queue_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_PUBLISHABLE_PREFIXES_H_
