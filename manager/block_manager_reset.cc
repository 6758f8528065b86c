// The part of BlockManager that empties the cache, a few blocks at a time.
#include <algorithm>
#include <limits>

#include "manager/block_manager.h"

namespace pagoda {

uint64_t BlockManager::ResetPrefixCache(absl::Time now) {
  constexpr auto kAll = std::numeric_limits<uint32_t>::max();
  while (resetting()) StepReset(kAll, now);  // One that began before.
  uint64_t removed = 0;
  for (ResetStep step; !step.done; removed += step.removed_blocks) step = StepReset(kAll, now);
  return removed;
}

BlockManager::ResetStep BlockManager::StepReset(uint32_t max_blocks, absl::Time now) {
  OperationScope op = BeginOperation(now);
  if (!reset_.has_value()) reset_ = Reset{.pins_up_to = pins_.last()};
  ResetStep step;
  uint64_t left = max_blocks;
  if (reset_->pins_up_to.has_value()) {
    const uint64_t ended = EndPinsUpTo(op, *reset_->pins_up_to, left);
    left -= std::min(left, ended);
    if (left > 0) {
      // Pins that were made since the first step cost what making them did in that time.
      EndPinsUpTo(op, pins_.last(), std::numeric_limits<uint64_t>::max());
      for (const auto& window : windows_) step.removed_blocks += window->CutOffTree();
      reset_->pins_up_to.reset();
    }
  }
  if (!reset_->pins_up_to.has_value()) {
    for (const auto& window : windows_) left -= window->FreeCutOff(op, static_cast<uint32_t>(left));
    step.done = left > 0;
    if (step.done) reset_.reset();
  }
  EndOperation(op);
  return step;
}

uint64_t BlockManager::EndPinsUpTo(OperationScope& op, PinId last, uint64_t max_blocks) {
  uint64_t blocks = 0;
  while (blocks < max_blocks && !pins_.empty() && pins_.begin()->first <= last) {
    blocks += pins_.begin()->second.info.blocks;
    EndPin(op, pins_.begin()->first, PinEnd::kPrefixLeft, RemovalReason::kCleared);
  }
  return blocks;
}

bool BlockManager::IsCutOff(WindowSize window, BlockId id) const {
  const absl::StatusOr<WindowBlockManager*> manager = RequireWindow(window);
  return manager.ok() && id.value() < (*manager)->num_ids() && (*manager)->IsCutOff(id);
}

}  // namespace pagoda
