#include "manager/warm_restart.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "manager/window/window_block_manager.h"

namespace pagoda {

absl::StatusOr<uint64_t> WarmRestart::Restore(absl::Span<const RecoveredWindow> windows,
                                              absl::Time now) {
  std::vector<WindowBlockManager*> targets;
  for (const RecoveredWindow& window : windows) {
    const absl::StatusOr<WindowBlockManager*> target = windows_.Require(window.window);
    if (!target.ok()) return target.status();
    if (std::find(targets.begin(), targets.end(), *target) != targets.end()) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("window ", WindowName(window.window), " is named twice"));
    }
    if (absl::Status status = (*target)->restore().CheckRecovered(window.blocks); !status.ok()) {
      return status;
    }
    targets.push_back(*target);
  }
  OperationScope op = runner_.Begin(now);
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i]->restore().Restore(op, windows[i].blocks);
    for (const RecoveredBlock& block : windows[i].blocks) {
      recovered_blocks_ += block.slot.slot == kNoSlot ? 0 : 1;
    }
  }
  runner_.End(op);
  return recovered_blocks_;
}

absl::StatusOr<uint64_t> WarmRestart::RestoreDisk(absl::Span<const RecoveredWindow> recovered,
                                                  absl::Time now) {
  OperationScope op = runner_.Begin(now);
  uint64_t copies = 0;
  std::vector<WindowBlockManager*> restored;
  for (const RecoveredWindow& window : recovered) {
    if (window.blocks.empty()) continue;
    const absl::StatusOr<WindowBlockManager*> target = windows_.Require(window.window);
    if (!target.ok()) return target.status();
    if (!(*target)->has_disk() ||
        std::find(restored.begin(), restored.end(), *target) != restored.end()) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("window ", WindowName(window.window),
                                    " has no tier on disk, or is named twice"));
    }
    restored.push_back(*target);
    const absl::StatusOr<uint64_t> of_window = (*target)->restore().RestoreDisk(op, window.blocks);
    if (!of_window.ok()) return of_window.status();
    copies += *of_window;
  }
  recovered_blocks_ += copies;
  runner_.End(op);
  return copies;
}

std::vector<std::byte> WarmRestart::Learned(uint32_t window_index) const {
  PAGODA_CHECK(window_index < policies_.size(), "a window of the cache");
  const EvictionPolicy* const policy = policies_[window_index];
  return policy == nullptr ? std::vector<std::byte>() : policy->Learned();
}

absl::Status WarmRestart::RestoreLearned(uint32_t window_index,
                                         absl::Span<const std::byte> learned) {
  PAGODA_CHECK(window_index < policies_.size(), "a window of the cache");
  EvictionPolicy* const policy = policies_[window_index];
  if (policy == nullptr) return MakeError(Reason::kInvalidArgument, "the window has no blocks");
  return policy->RestoreLearned(learned);
}

}  // namespace pagoda
