// The part of BlockManager that handles a tier on disk.
#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/block_manager_parts.h"

namespace pagoda {
namespace {

// How many waiting blocks one call considers for a backup in each window.
constexpr uint32_t kBackupsPerCall = 64;

}  // namespace

void BlockManager::Parts::OrderBackups(OperationScope& op) {
  // Each call begins with another window, because all windows share the write budget.
  const size_t first = next_backups++ % windows.size();
  for (size_t i = 0; i < windows.size(); ++i) {
    windows[(first + i) % windows.size()]->OrderBackups(op, kBackupsPerCall);
  }
}

FileCommands BlockManager::TakeFileCommands() { return parts().files.Take(); }

void BlockManager::CompleteFile(Lane lane, Ticket ticket, const absl::Status& status,
                                absl::Time now) {
  const std::optional<uint32_t> window = parts().files.Report(lane, ticket);
  if (!window.has_value()) return;
  OperationScope op = parts().runner.Begin(now);
  if (lane == Lane::kFetch) {
    parts().windows[*window]->FetchEnded(op, ticket, status);
  } else {
    parts().windows[*window]->BackupEnded(op, ticket, status);
    parts().OrderBackups(op);
  }
  parts().runner.End(op);
}

absl::StatusOr<uint64_t> BlockManager::RestoreDisk(absl::Span<const RecoveredWindow> recovered,
                                                   absl::Time now) {
  OperationScope op = parts().runner.Begin(now);
  uint64_t copies = 0;
  std::vector<WindowBlockManager*> restored;
  for (const RecoveredWindow& window : recovered) {
    if (window.blocks.empty()) continue;
    const absl::StatusOr<WindowBlockManager*> target = parts().windows.Require(window.window);
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
  parts().recovered_blocks += copies;
  parts().runner.End(op);
  return copies;
}

}  // namespace pagoda
