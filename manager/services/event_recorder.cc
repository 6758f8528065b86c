#include "manager/services/event_recorder.h"

#include <algorithm>
#include <utility>

namespace pagoda {
namespace {

// The next event's part of the expected size; the rest is left for the events behind it.
size_t TakeExpected(size_t& expected, size_t most) {
  const size_t taken = std::min(expected, most);
  expected -= taken;
  return taken;
}

}  // namespace

void EventRecorder::BeginOperation(absl::Time now) {
  now_ = now;
  operation_begin_ = last_;
  CloseLast();
  expected_stored_blocks_ = expected_stored_tokens_ = expected_removed_blocks_ = 0;
}

void EventRecorder::ExpectStored(size_t blocks, size_t tokens) {
  expected_stored_blocks_ = blocks;
  expected_stored_tokens_ = tokens;
}

EventBatch EventRecorder::Take() {
  operation_begin_ = last_;
  CloseLast();
  if (!batch_.empty()) used_bytes_ = {used_bytes_[1], batch_.used_bytes()};
  return std::exchange(batch_, EventBatch(std::min(used_bytes_[0], used_bytes_[1])));
}

template <class T>
T& EventRecorder::Append(WindowSize window, TenantId tenant) {
  CloseLast();
  last_ = Revision{last_.value() + 1};
  return batch_.Add<T>(last_, now_, window, tenant);
}

EventRecorder::OpenWindow& EventRecorder::Open(WindowSize window) {
  for (OpenWindow& open : windows_) {
    if (open.window == window) return open;
  }
  return windows_.emplace_back(OpenWindow{.window = window});
}

// --- Raw blocks ---

void EventRecorder::PoolsCreated(WindowSize window, absl::Span<const uint32_t> blocks_per_tier) {
  if (record_ == RecordEvents::kNo) return;
  auto& created = Append<CreatedEvent>(window, kDefaultTenant);
  created.blocks_per_tier.assign(blocks_per_tier.begin(), blocks_per_tier.end());
}

void EventRecorder::BlocksCreated(WindowSize window, absl::Span<const BlockId> blocks,
                                  TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  for (; !blocks.empty(); blocks.remove_prefix(std::min(blocks.size(), kMaxListedBlocks))) {
    const absl::Span<const BlockId> told = blocks.first(std::min(blocks.size(), kMaxListedBlocks));
    Append<CreatedEvent>(window, tenant).blocks.assign(told.begin(), told.end());
  }
}

void EventRecorder::BlocksReleased(WindowSize window, absl::Span<const BlockId> blocks,
                                   TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  for (; !blocks.empty(); blocks.remove_prefix(std::min(blocks.size(), kMaxListedBlocks))) {
    const absl::Span<const BlockId> told = blocks.first(std::min(blocks.size(), kMaxListedBlocks));
    auto& removed = Append<RemovedEvent>(window, tenant);
    removed.reason = RemovalReason::kReleased;
    removed.blocks.assign(told.begin(), told.end());
  }
}

void EventRecorder::PoolsRemoved(WindowSize window) {
  if (record_ == RecordEvents::kNo) return;
  auto& removed = Append<RemovedEvent>(window, kDefaultTenant);
  removed.reason = RemovalReason::kReleased;
  removed.scope = RemovedEvent::Scope::kPools;
  OpenWindow& open = Open(window);
  open.barrier = open.last_removal = last_;
}

// --- Blocks outside the tree ---

// A block that was removed in this operation and is taken again must be reported in that order. So
// it joins no event from before a removal. A removal can still join an event from before this one:
// it is of a block that was in the tree, and no block of this event was.
void EventRecorder::AppendTaken(WindowSize window, BlockId id, TenantId tenant) {
  OpenWindow& open = Open(window);
  if (MayJoin(open.last_taken, open.last_removal, tenant)) {
    auto& blocks = std::get<CreatedEvent>(At(open.last_taken).what).blocks;
    if (blocks.size() < kMaxListedBlocks) return blocks.push_back(id);
  }
  Append<CreatedEvent>(window, tenant).blocks.push_back(id);
  open.last_taken = last_;
}

// In the same way, a freed block joins no event from before one that took a block, perhaps itself.
void EventRecorder::AppendFreed(WindowSize window, BlockId id, TenantId tenant) {
  OpenWindow& open = Open(window);
  if (MayJoin(open.last_freed, open.last_taken, tenant)) {
    auto& blocks = std::get<RemovedEvent>(At(open.last_freed).what).blocks;
    if (blocks.size() < kMaxListedBlocks) return blocks.push_back(id);
  }
  auto& removed = Append<RemovedEvent>(window, tenant);
  removed.reason = RemovalReason::kReleased;
  removed.blocks.push_back(id);
  open.last_freed = open.last_removal = last_;
}

// --- The tree ---

StoredEvent* EventRecorder::AppendStore(WindowSize window, const NamespaceKey& name_space,
                                        const TreeBlock& parent, TenantId tenant) {
  auto& fresh = Append<StoredEvent>(window, tenant);
  if (parent.id != kNoBlock) fresh.parent_hash = parent.hash;
  fresh.parent = parent.id;
  fresh.first_token = parent.end_token;
  batch_.SetNamespace(name_space, fresh);
  fresh.blocks.reserve(TakeExpected(expected_stored_blocks_, kMaxStoredBlocks));
  fresh.tokens.reserve(TakeExpected(expected_stored_tokens_, kMaxStoredTokens));
  Open(window).barrier = last_;
  return last_stored_ = &fresh;
}

EventRecorder::StoredRun EventRecorder::StoreRun(WindowSize window, const NamespaceKey& name_space,
                                                 const TreeBlock& parent, size_t count,
                                                 size_t block_tokens, TenantId tenant) {
  StoredEvent* stored = OpenStore(window, parent.id);
  if (stored == nullptr) stored = AppendStore(window, name_space, parent, tenant);
  const size_t blocks = stored->blocks.size(), tokens = stored->tokens.size();
  // A block can begin while the event has fewer than kMaxStoredTokens tokens.
  const size_t fit = (kMaxStoredTokens - tokens + block_tokens - 1) / block_tokens;
  count = std::min({count, fit, kMaxStoredBlocks - blocks});
  stored->blocks.resize(blocks + count);
  stored->tokens.resize(tokens + count * block_tokens);
  if (!stored->extras.empty()) stored->extras.resize(stored->tokens.size());
  return {.blocks = absl::MakeSpan(stored->blocks).subspan(blocks),
          .tokens = absl::MakeSpan(stored->tokens).subspan(tokens)};
}

// REQUIRES: the block's tokens are not added yet. The event has extras once one of its blocks has
// any that is not empty.
void EventRecorder::AppendExtras(const BlockKey& key, StoredEvent& stored) {
  const bool says_something =
      std::any_of(key.extras.begin(), key.extras.end(),
                  [](const TokenExtra& extra) { return !(extra == TokenExtra{}); });
  if (!says_something && stored.extras.empty()) return;
  stored.extras.resize(stored.tokens.size());
  stored.extras.insert(stored.extras.end(), key.extras.begin(), key.extras.end());
  stored.extras.resize(stored.tokens.size() + key.tokens.size());
}

void EventRecorder::CopiesChanged(WindowSize window, const TreeBlock& block, Change<Tier> tier,
                                  Change<TierSet> lower, TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  UpdatedEvent* updated = OpenUpdate(window, block.id);
  if (updated == nullptr || updated->tier.has_value() || updated->lower.has_value()) {
    updated = &AppendUpdate(window, block, tenant);
  }
  if (tier.old_value != tier.new_value) updated->tier = tier;
  if (lower.old_value != lower.new_value) updated->lower = lower;
}

void EventRecorder::PriorityChanged(WindowSize window, const TreeBlock& block,
                                    Change<Priority> change, TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  UpdatedEvent* updated = OpenUpdate(window, block.id);
  if (updated == nullptr || updated->priority.has_value()) {
    updated = &AppendUpdate(window, block, tenant);
  }
  updated->priority = change;
}

void EventRecorder::PinEnded(WindowSize window, BlockId id, BlockHash hash, const EndedPin& pin,
                             TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  AppendUpdate(window, {.id = id, .hash = hash}, tenant).ended_pin = pin;
}

// The operation's last event, if it is a change of this block's tier or priority.
UpdatedEvent* EventRecorder::OpenUpdate(WindowSize window, BlockId id) {
  if (!IsOpen(last_) || batch_.back().window != window) return nullptr;
  auto* updated = std::get_if<UpdatedEvent>(&batch_[batch_.size() - 1].what);
  return updated != nullptr && updated->id == id && !updated->ended_pin.has_value() ? updated
                                                                                    : nullptr;
}

UpdatedEvent& EventRecorder::AppendUpdate(WindowSize window, const TreeBlock& block,
                                          TenantId tenant) {
  auto& updated = Append<UpdatedEvent>(window, tenant);
  updated.id = block.id;
  updated.hash = block.hash;
  updated.end_token = block.end_token;
  OpenWindow& open = Open(window);
  if (!IsOpen(open.last_update)) open.updates.clear();
  open.updates[block.id] = open.last_update = last_;
  return updated;
}

RemovedEvent* EventRecorder::FindRemoval(WindowSize window, RemovalReason reason, BlockId id,
                                         TenantId tenant) {
  OpenWindow& open = Open(window);
  if (RemovedEvent* earlier = OpenRemoval(open, reason, id, tenant); earlier != nullptr)
    return earlier;
  last_removed_ = &Append<RemovedEvent>(window, tenant);
  last_removed_->reason = reason;
  const size_t expected = TakeExpected(expected_removed_blocks_, kMaxListedBlocks);
  last_removed_->blocks.reserve(expected);
  last_removed_->hashes.reserve(expected);
  last_removed_->end_tokens.reserve(expected);
  open.removals[static_cast<size_t>(reason)] = open.last_removal = last_;
  if (window == kFullAttention) open.barrier = last_;
  return last_removed_;
}

// The operation's removal that a removal of `id` can join.
RemovedEvent* EventRecorder::OpenRemoval(const OpenWindow& open, RemovalReason reason, BlockId id,
                                         TenantId tenant) {
  const Revision earlier = open.removals[static_cast<size_t>(reason)];
  if (!IsOpen(earlier) || earlier < open.barrier || At(earlier).tenant != tenant) return nullptr;
  if (open.last_update > earlier) {
    const auto update = open.updates.find(id);
    if (update != open.updates.end() && update->second > earlier) return nullptr;
  }
  auto& removed = std::get<RemovedEvent>(At(earlier).what);
  return removed.blocks.size() < kMaxListedBlocks ? &removed : nullptr;
}

void EventRecorder::WindowCleared(WindowSize window) {
  if (record_ == RecordEvents::kNo) return;
  auto& removed = Append<RemovedEvent>(window, kDefaultTenant);
  removed.reason = RemovalReason::kCleared;
  removed.scope = RemovedEvent::Scope::kWindow;
  OpenWindow& open = Open(window);
  open.barrier = open.last_removal = last_;
}

}  // namespace pagoda
