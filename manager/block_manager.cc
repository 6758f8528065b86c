#include "manager/block_manager.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "manager/block_manager_parts.h"
#include "manager/window/window_raw_blocks.h"

namespace pagoda {

// --- Time ---

uint32_t BlockManager::Maintain(absl::Time now, uint32_t max_blocks) {
  OperationScope op = parts().runner.Begin(now);
  uint32_t moved = 0;
  // Starts with the farthest tier, so that offloaded blocks find free slots.
  const std::vector<TierSpec>& tiers = parts().options.tiers;
  for (size_t t = tiers.size(); t-- > 0;) {
    const uint32_t permille = tiers[t].watermark_permille;
    if (permille == 0) continue;
    const Tier tier(t);
    for (const auto& window : parts().windows) {
      moved += window->OffloadAhead(op, tier, Permille(window->capacity(tier), permille),
                                    max_blocks - moved);
    }
  }
  parts().OrderBackups(op);
  parts().runner.End(op);
  return moved;
}

std::vector<SlotChange> BlockManager::TakeSlotChanges() {
  return std::exchange(parts().slot_changes, {});
}

bool BlockManager::HasExpired(absl::Time now) const { return parts().deadlines.next <= now; }

// --- A reset ---

uint64_t BlockManager::ResetPrefixCache(absl::Time now) {
  constexpr auto kAll = std::numeric_limits<uint32_t>::max();
  while (resetting()) StepReset(kAll, now);  // One that is under way.
  uint64_t removed = 0;
  for (ResetStep step; !step.done; removed += step.removed_blocks) step = StepReset(kAll, now);
  return removed;
}

BlockManager::ResetStep BlockManager::StepReset(uint32_t max_blocks, absl::Time now) {
  OperationScope op = parts().runner.Begin(now);
  const uint64_t removed = parts().reset.Step(op, max_blocks);
  parts().runner.End(op);
  return {.removed_blocks = removed, .done = !resetting()};
}

bool BlockManager::resetting() const { return parts().reset.under_way(); }

// --- Operators ---

Epoch BlockManager::epoch() const { return parts().options.epoch; }

ManagerStats BlockManager::Stats() const {
  ManagerStats stats;
  for (const auto& window : parts().windows) stats.windows.push_back(window->Stats());
  stats.sessions = parts().sessions.size();
  stats.sequences = parts().sequences.size();
  stats.pins = parts().pins.size();
  stats.copies_in_flight = parts().copies.in_flight();
  stats.recovered_blocks = parts().restart.recovered_blocks();
  stats.operations = parts().operations;
  parts().endings.AddStats(&stats);
  return stats;
}

// --- Tenants ---

const TenantTable& BlockManager::tenants() const { return parts().tenants; }

TenantId BlockManager::TenantOf(SessionId session) const {
  return parts().sessions.TenantOf(session);
}

absl::StatusOr<NamespaceKey> BlockManager::Confine(SessionId session,
                                                   const NamespaceKey& asked) const {
  return parts().tenants.Confine(TenantOf(session), asked);
}

// --- Events ---

EventBatch BlockManager::TakeEvents() { return parts().recorder.Take(); }

Revision BlockManager::revision() const { return parts().recorder.last(); }

void BlockManager::RemovePools(absl::Time now) {
  OperationScope op = parts().runner.Begin(now);
  for (const auto& window : parts().windows) parts().recorder.PoolsRemoved(window->window());
  parts().recorder.Stop();
  parts().runner.End(op);
}

SnapshotPiece BlockManager::ReadSnapshot(const SnapshotPosition& from, size_t max_blocks,
                                         size_t max_tokens, absl::Time now) const {
  SnapshotPiece piece{.revision = parts().recorder.last(), .end = from};
  auto manager = std::find_if(parts().windows.begin(), parts().windows.end(),
                              [&](const auto& window) { return window->window() >= from.window; });
  PAGODA_CHECK(!from.done && manager != parts().windows.end(),
               "an unfinished snapshot continues in a window");
  const BlockId begin = (*manager)->window() == from.window ? from.next : BlockId{0};
  const BlockId end = (*manager)->scans().ReadSnapshot(
      begin, max_blocks, max_tokens, parts().options.lifecycle_events, now, &piece.events);
  if (end.value() < (*manager)->num_ids()) {
    piece.end = {.window = (*manager)->window(), .next = end};
  } else if (++manager != parts().windows.end()) {
    piece.end = {.window = (*manager)->window(), .next = BlockId{0}};
  } else {
    piece.end.done = true;
  }
  return piece;
}

// --- For tests ---

void BlockManager::CheckInvariants() const { parts().CheckInvariants(); }

std::vector<TreeEntry> BlockManager::DumpTree(WindowSize window) const {
  const WindowBlockManager* const found = parts().windows.Find(window);
  return found == nullptr ? std::vector<TreeEntry>{} : found->scans().DumpTree();
}

std::vector<BlockId> BlockManager::DumpAllocated(WindowSize window) const {
  const WindowBlockManager* const found = parts().windows.Find(window);
  return found == nullptr ? std::vector<BlockId>{} : found->scans().DumpAllocated();
}

bool BlockManager::IsCutOff(WindowSize window, BlockId id) const {
  const WindowBlockManager* const found = parts().windows.Find(window);
  return found != nullptr && id.value() < found->num_ids() && found->cached().IsCutOff(id);
}

}  // namespace pagoda
