// Which blocks of a sliding window no likely prompt can use.
#ifndef PAGODA_MANAGER_WINDOW_PASSED_BLOCKS_H_
#define PAGODA_MANAGER_WINDOW_PASSED_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "pools/types.h"

namespace pagoda {

// A match that ends at a token needs only the window of blocks before it. So a block is of use if a
// prompt can end in its reach: where a request ended, where its prompt ended, and where prompts
// branch. The blocks between are passed. They are evicted first.
//
// A block that nobody has marked is not passed. Takes a byte for each block id. Thread-compatible.
class PassedBlocks {
 public:
  explicit PassedBlocks(uint32_t num_ids) : marks_(num_ids, Mark::kNone) {}

  // A request goes on beyond the block's reach. Does nothing if the block is kept.
  void Pass(BlockId id) {
    if (at(id) != Mark::kKept) at(id) = Mark::kPassed;
  }
  // A request ended in the block's reach.
  void Stop(BlockId id) {
    if (at(id) == Mark::kPassed) at(id) = Mark::kNone;
  }
  // Other prompts end in the block's reach. It is not passed until it leaves the tree.
  void Keep(BlockId id) { at(id) = Mark::kKept; }
  void Forget(BlockId id) { at(id) = Mark::kNone; }
  bool IsPassed(BlockId id) const { return marks_[id.value()] == Mark::kPassed; }

 private:
  enum class Mark : uint8_t { kNone, kPassed, kKept };
  Mark& at(BlockId id) { return marks_[id.value()]; }

  std::vector<Mark> marks_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_PASSED_BLOCKS_H_
