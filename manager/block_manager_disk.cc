// The part of BlockManager that handles a tier on disk.
#include <optional>

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

}  // namespace pagoda
