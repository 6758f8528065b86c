// The part of BlockManager that deals with carriers.
#include <optional>
#include <vector>

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

void BlockManager::Parts::EndCopy(OperationScope& op, WindowBlockManager& window, Ticket ticket,
                                  const absl::Status& status) {
  const std::optional<CopyTracker::Lost> lost = copies.Complete(ticket, status);
  if (lost.has_value()) {
    if (window.cached().Owns(lost->block, lost->target)) {
      sequences.Shorten(*lost);
      if (window.cached().in_tree(lost->block.id)) window.cached().Lose(op, lost->block.id);
    } else {
      window.cached().LoseLowerCopy(lost->block, lost->target);
    }
  }
  window.CopyEnded(op, ticket, status.ok() && !lost.has_value());
}

std::vector<Order> BlockManager::TakeOrders() { return parts().lanes.Take(); }

void BlockManager::Complete(Lane lane, Ticket ticket, const absl::Status& status, absl::Time now) {
  const std::optional<uint32_t> window_index = parts().lanes.Report(lane, ticket);
  if (!window_index.has_value()) return;
  OperationScope op = parts().runner.Begin(now);
  WindowBlockManager& window = *parts().windows[*window_index];
  switch (lane) {
    case Lane::kMemory:
      parts().EndCopy(op, window, ticket, status);
      break;
    case Lane::kFetch:
      window.FetchEnded(op, ticket, status);
      break;
    case Lane::kBackup:
      window.BackupEnded(op, ticket, status);
      parts().OrderBackups(op);
      break;
  }
  parts().runner.End(op);
}

Ticket BlockManager::completed_ticket(Lane lane) const { return parts().lanes.completed(lane); }

Ticket BlockManager::last_ticket(Lane lane) const { return parts().lanes.last(lane); }

}  // namespace pagoda
