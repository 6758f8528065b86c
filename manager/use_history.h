// How often cached content was matched, and when it was last used.
#ifndef PAGODA_MANAGER_USE_HISTORY_H_
#define PAGODA_MANAGER_USE_HISTORY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "events/block_hash.h"
#include "manager/big_array.h"
#include "manager/evicted_content.h"
#include "pools/types.h"

namespace pagoda {

// By block id while the content is cached, and for a while after it left: content that comes back
// in that time was matched once more. `now` is the policy's own clock; a block that was not used
// for 2^28 of its steps looks younger than it is. 8 bytes an id. Thread-compatible.
class UseHistory {
 public:
  static constexpr uint32_t kMaxMatches = EvictedContent::kMaxNote;

  explicit UseHistory(uint32_t num_ids) : uses_(num_ids), evicted_(num_ids) {}

  // Returns what is remembered of the content; its note is its matches when it left.
  std::optional<EvictedContent::Memory> Inserted(BlockId id, BlockHash content, uint64_t now);
  void Touched(BlockId id, uint64_t now);
  void Removed(BlockId id, BlockHash content) { evicted_.Remember(content, matches(id)); }
  // A holder let go: what came in last is not being matched.
  void Released() { arrived_ = kNoBlock; }

  // Whether it came in just now, so that a touch is of the match that brought it up.
  bool arrives(BlockId id) const { return id == arrived_; }
  // At most kMaxMatches: more are not counted.
  uint32_t matches(BlockId id) const { return uses_[id.value()].matches; }
  // How long ago it was last used.
  uint64_t Age(BlockId id, uint64_t now) const {
    return (now - uses_[id.value()].last_used) & kClockMask;
  }

 private:
  static constexpr uint64_t kClockMask = (uint64_t{1} << 28) - 1;

  // 4 bytes.
  struct Use {
    uint32_t last_used : 28 = 0;
    uint32_t matches : 4 = 0;
  };
  static_assert(sizeof(Use) == 4);

  BigArray<Use> uses_;
  EvictedContent evicted_;
  BlockId arrived_ = kNoBlock;  // Inserted last, with no other call since but Removed.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_USE_HISTORY_H_
