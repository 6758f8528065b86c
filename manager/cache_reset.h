// Empties the cache, a few blocks at a time.
#ifndef PAGODA_MANAGER_CACHE_RESET_H_
#define PAGODA_MANAGER_CACHE_RESET_H_

#include <cstdint>
#include <optional>

#include "manager/sequences/prefix_pins.h"
#include "manager/services/operation_scope.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"

namespace pagoda {

// Owns the reset that is under way. Thread-compatible. The caller begins and ends the operation of
// each step.
//
// Invariant: the pins end first, while the blocks that their events name are still cached. Then all
// trees become empty in one step. Then the blocks are released.
class CacheReset {
 public:
  // REQUIRES: both outlive the reset.
  CacheReset(const WindowSet& windows, PrefixPins& pins) : windows_(windows), pins_(pins) {}
  CacheReset(const CacheReset&) = delete;
  CacheReset& operator=(const CacheReset&) = delete;

  // Runs a step of BlockManager::StepReset. Returns the number of blocks that left the tree in it.
  // The step was the last one if under_way() is false afterwards.
  uint64_t Step(OperationScope& op, uint32_t max_blocks);
  bool under_way() const { return reset_.has_value(); }

 private:
  // The last pin to end before the trees are emptied; nothing once they are.
  struct Reset {
    std::optional<PinId> pins_up_to;
  };

  const WindowSet& windows_;
  PrefixPins& pins_;
  std::optional<Reset> reset_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_CACHE_RESET_H_
