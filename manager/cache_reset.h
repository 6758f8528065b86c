// How the cache is emptied, a few blocks at a time.
#ifndef PAGODA_MANAGER_CACHE_RESET_H_
#define PAGODA_MANAGER_CACHE_RESET_H_

#include <cstdint>
#include <optional>

#include "manager/ids.h"
#include "manager/operation_scope.h"
#include "manager/prefix_pins.h"
#include "manager/window_set.h"

namespace pagoda {

// Owns the reset that is under way. Thread-compatible. The caller begins and ends the operation of
// each step.
//
// Invariant: the pins end first, while the blocks that their events name are cached; then the trees
// are empty at once; then the blocks are let go.
class CacheReset {
 public:
  // Both outlive the reset.
  CacheReset(const WindowSet& windows, PrefixPins& pins) : windows_(windows), pins_(pins) {}
  CacheReset(const CacheReset&) = delete;
  CacheReset& operator=(const CacheReset&) = delete;

  // A step of BlockManager::StepReset. Returns the blocks that left the tree in it. It was the last
  // one if no reset is under way any more.
  uint64_t Step(OperationScope& op, uint32_t max_blocks);
  bool under_way() const { return reset_.has_value(); }

 private:
  // The last pin that it ends before it takes effect; then nothing.
  struct Reset {
    std::optional<PinId> pins_up_to;
  };

  const WindowSet& windows_;
  PrefixPins& pins_;
  std::optional<Reset> reset_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_CACHE_RESET_H_
