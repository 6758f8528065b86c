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

// --- Operations: the parts run them ---

absl::StatusOr<Ticket> BlockManager::AllocateBlocks(SessionId session, WindowSize window,
                                                    absl::Span<BlockHandle> out, absl::Time now) {
  return parts().raw_blocks.AllocateBlocks(session, window, out, now);
}

absl::Status BlockManager::FreeBlocks(SessionId session, WindowSize window,
                                      absl::Span<const BlockRef> blocks, absl::Time now) {
  return parts().raw_blocks.FreeBlocks(session, window, blocks, now);
}

absl::Status BlockManager::FillBlocks(SessionId session, WindowSize window,
                                      absl::Span<const BlockFill> fills) {
  return parts().raw_blocks.FillBlocks(session, window, fills);
}

absl::StatusOr<std::vector<BlockMetadata>> BlockManager::DescribeBlocks(
    SessionId session, WindowSize window, absl::Span<const BlockRef> blocks) const {
  const absl::StatusOr<WindowBlockManager*> manager = parts().windows.Require(window);
  if (!manager.ok()) return manager.status();
  if (blocks.empty() || blocks.size() > kMaxBatchHandles) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat(blocks.size(), " blocks to describe; 1 to ", kMaxBatchHandles,
                                  " are possible"));
  }
  const TenantId tenant = parts().sessions.TenantOf(session);
  absl::StatusOr<WindowRawBlocks::Metadata> known =
      (*manager)->raw_blocks().DescribeRaw(tenant, session, blocks);
  if (!known.ok()) return known.status();
  const bool all_raw = std::all_of(known->begin(), known->end(),
                                   [](const auto& entry) { return entry.second.holders != 0; });
  if (!all_raw) {
    for (const SequenceId id : parts().sessions.Get(session).sequences) {
      (*manager)->raw_blocks().DescribeHeld(parts().sequences.Get({session, id}), &*known);
    }
  }
  for (const BlockRef& ref : blocks) {
    if (known->at(ref.id).holders == 0) return (*manager)->raw_blocks().ForeignBlock(tenant, ref);
  }
  for (auto& [id, metadata] : *known)
    (*manager)->raw_blocks().CompleteMetadata(tenant, id, &metadata);
  std::vector<BlockMetadata> described;
  described.reserve(blocks.size());
  for (const BlockRef& ref : blocks) described.push_back(known->at(ref.id));
  return described;
}

absl::StatusOr<SequenceAdded> BlockManager::AddSequence(SessionId session, SequenceId sequence,
                                                        const Prompt& prompt, absl::Time now) {
  return parts().sequences.AddSequence(session, sequence, prompt, now);
}

absl::StatusOr<BlockManager::Growth> BlockManager::ReserveTokens(SessionId session,
                                                                 SequenceId sequence,
                                                                 uint32_t count, absl::Time now) {
  return parts().sequences.ReserveTokens(session, sequence, count, now);
}

absl::StatusOr<uint32_t> BlockManager::CommitTokens(SessionId session, SequenceId sequence,
                                                    absl::Span<const TokenId> tokens,
                                                    uint32_t computed_tokens, absl::Time now,
                                                    uint32_t known_losses,
                                                    absl::Span<const ClientKey> keys) {
  return parts().sequences.CommitTokens(session, sequence, tokens, computed_tokens, now,
                                        known_losses, keys);
}

absl::StatusOr<BlockManager::Growth> BlockManager::AppendTokens(
    SessionId session, SequenceId sequence, absl::Span<const TokenId> tokens,
    uint32_t computed_tokens, absl::Time now, uint32_t known_losses,
    absl::Span<const ClientKey> keys) {
  OperationScope op = parts().runner.Begin(now);
  return parts().sequences.AppendTokens(op, session, sequence, tokens, computed_tokens,
                                        known_losses, keys);
}

absl::StatusOr<AppendedStep> BlockManager::AppendStep(SessionId session,
                                                      const pagoda::AppendStep& step,
                                                      absl::Time now) {
  // Expiries apply even if the call is refused.
  parts().runner.Begin(now);
  absl::StatusOr<AppendedStep> appended = parts().sequences.AppendStep(session, step, now);
  if (!appended.ok()) return appended;
  for (const AppendedStep::Failure& failure : appended->failed) {
    ++parts().operations.failed[{TenantOf(session), ReasonOf(failure.status)}];
  }
  return appended;
}

absl::StatusOr<SequenceForked> BlockManager::ForkSequence(SessionId session, SequenceId sequence,
                                                          SequenceId new_sequence, absl::Time now) {
  return parts().sequences.ForkSequence(session, sequence, new_sequence, now);
}

absl::StatusOr<BlockManager::Growth> BlockManager::TruncateSequence(SessionId session,
                                                                    SequenceId sequence,
                                                                    uint32_t token_count,
                                                                    absl::Time now) {
  return parts().sequences.TruncateSequence(session, sequence, token_count, now);
}

absl::Status BlockManager::FreeSequence(SessionId session, SequenceId sequence, absl::Time now) {
  return parts().sequences.FreeSequence(session, sequence, now);
}

absl::StatusOr<const Sequence*> BlockManager::FindSequence(SessionId session,
                                                           SequenceId sequence) const {
  return parts().sequences.FindSequence(session, sequence);
}

absl::StatusOr<SequenceKv> BlockManager::ReadSequence(SessionId session, SequenceId sequence,
                                                      uint32_t window_index, uint32_t first_block,
                                                      uint32_t max_blocks) const {
  return parts().sequences.ReadSequence(session, sequence, window_index, first_block, max_blocks);
}

Ticket BlockManager::ReadyOf(const Sequence& sequence) const {
  return parts().sequences.ReadyOf(sequence);
}

// --- Copies and time ---

void BlockManager::CompleteCopy(Ticket ticket, const absl::Status& status, absl::Time now) {
  OperationScope op = parts().runner.Begin(now);
  const CopyTracker::Completion completion = parts().copies.Complete(ticket, status);
  if (completion.lost.has_value()) {
    const CopyTracker::Lost& lost = *completion.lost;
    WindowBlockManager& window = *parts().windows[lost.window];
    if (window.cached().Owns(lost.block, lost.target)) {
      parts().sequences.Shorten(lost);
      if (window.cached().in_tree(lost.block.id)) window.cached().Lose(op, lost.block.id);
    } else {
      window.cached().LoseLowerCopy(lost.block, lost.target);
    }
  }
  if (completion.known) {
    for (const auto& window : parts().windows) {
      window->CopyEnded(op, ticket, status.ok() && !completion.lost.has_value());
    }
  }
  parts().runner.End(op);
}

uint32_t BlockManager::Maintain(absl::Time now, uint32_t max_blocks) {
  OperationScope op = parts().runner.Begin(now);
  uint32_t moved = 0;
  // Starts with the farthest tier, so that offloaded blocks find free slots.
  const std::vector<TierSpec>& tiers = parts().options.tiers;
  for (size_t t = tiers.size(); t-- > 0;) {
    const uint32_t permille = tiers[t].watermark_permille;
    if (permille == 0) continue;
    const auto tier = static_cast<Tier>(t);
    for (const auto& window : parts().windows) {
      moved += window->OffloadAhead(op, tier, Permille(window->capacity(tier), permille),
                                    max_blocks - moved);
    }
  }
  parts().OrderBackups(op);
  parts().runner.End(op);
  return moved;
}

std::vector<CopyOrder> BlockManager::TakeCopies() { return parts().copies.Take(); }

Ticket BlockManager::completed_ticket(Lane lane) const {
  return lane == Lane::kMemory ? parts().copies.completed() : parts().files.completed(lane);
}

Ticket BlockManager::last_ticket(Lane lane) const {
  return lane == Lane::kMemory ? parts().copies.last() : parts().files.last(lane);
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
  stats.recovered_blocks = parts().recovered_blocks;
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

std::vector<TenantUsage> BlockManager::TenantUses() const {
  std::vector<TenantUsage> list(parts().tenants.size());
  for (uint16_t i = 0; i < parts().tenants.size(); ++i) {
    const TenantId tenant{i};
    list[i].tenant = tenant;
    list[i].sequences = parts().accounts.sequences(tenant);
    list[i].max_sequences = parts().accounts.most_sequences(tenant);
    list[i].sequence_bytes = parts().accounts.bytes(tenant);
    list[i].max_sequence_bytes = parts().accounts.most_bytes(tenant);
    for (const auto& window : parts().windows) window->AddUses(TenantId{i}, &list[i].uses);
  }
  for (const SessionId id : parts().sessions.Ids())
    ++list[parts().sessions.Get(id).tenant.value()].sessions;
  return list;
}

// --- A warm restart ---

absl::StatusOr<uint64_t> BlockManager::Restore(absl::Span<const RecoveredWindow> windows,
                                               absl::Time now) {
  std::vector<WindowBlockManager*> targets;
  for (const RecoveredWindow& window : windows) {
    const absl::StatusOr<WindowBlockManager*> target = parts().windows.Require(window.window);
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
  OperationScope op = parts().runner.Begin(now);
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i]->restore().Restore(op, windows[i].blocks);
    for (const RecoveredBlock& block : windows[i].blocks) {
      parts().recovered_blocks += block.slot.slot == kNoSlot ? 0 : 1;
    }
  }
  parts().runner.End(op);
  return parts().recovered_blocks;
}

std::vector<std::byte> BlockManager::Learned(uint32_t window_index) const {
  PAGODA_CHECK(window_index < parts().policies.size(), "a window of the cache");
  const EvictionPolicy* const policy = parts().policies[window_index];
  return policy == nullptr ? std::vector<std::byte>() : policy->Learned();
}

absl::Status BlockManager::RestoreLearned(uint32_t window_index,
                                          absl::Span<const std::byte> learned) {
  PAGODA_CHECK(window_index < parts().policies.size(), "a window of the cache");
  EvictionPolicy* const policy = parts().policies[window_index];
  if (policy == nullptr) return MakeError(Reason::kInvalidArgument, "the window has no blocks");
  return policy->RestoreLearned(learned);
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
