#include "manager/cache_reset.h"

#include <algorithm>
#include <limits>

namespace pagoda {

uint64_t CacheReset::Step(OperationScope& op, uint32_t max_blocks) {
  if (!reset_.has_value()) reset_ = Reset{.pins_up_to = pins_.last()};
  uint64_t removed = 0;
  uint64_t left = max_blocks;
  if (reset_->pins_up_to.has_value()) {
    const uint64_t ended = pins_.EndUpTo(op, *reset_->pins_up_to, left);
    left -= std::min(left, ended);
    if (left > 0) {
      // Ends pins that were made since the first step. This costs as much as making them did.
      pins_.EndUpTo(op, pins_.last(), std::numeric_limits<uint64_t>::max());
      for (const auto& window : windows_) removed += window->cached().CutOffTree();
      reset_->pins_up_to.reset();
    }
  }
  if (!reset_->pins_up_to.has_value()) {
    for (const auto& window : windows_)
      left -= window->cached().FreeCutOff(op, static_cast<uint32_t>(left));
    if (left > 0) reset_.reset();
  }
  return removed;
}

}  // namespace pagoda
