#include "manager/event_recorder.h"

#include <algorithm>
#include <utility>

namespace pagoda {

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

std::vector<Event> EventRecorder::Take() {
  operation_begin_ = last_;
  CloseLast();
  if (!events_.empty()) last_taken_ = events_.size();
  return std::exchange(events_, {});
}

template <class T>
T& EventRecorder::Append(WindowSize window, TenantId tenant, T what) {
  CloseLast();
  last_ = Revision{last_.value() + 1};
  if (events_.empty()) events_.reserve(last_taken_);
  events_.push_back({last_, now_, window, tenant, std::move(what)});
  return std::get<T>(events_.back().what);
}

EventRecorder::OpenWindow& EventRecorder::Open(WindowSize window) {
  for (OpenWindow& open : windows_) {
    if (open.window == window) return open;
  }
  return windows_.emplace_back(OpenWindow{.window = window});
}

// --- Raw blocks ---

void EventRecorder::PoolsCreated(WindowSize window, std::vector<uint32_t> blocks_per_tier) {
  if (record_ == RecordEvents::kNo) return;
  Append(window, kCommons,
         CreatedEvent{.blocks_per_tier = std::move(blocks_per_tier), .blocks = {}});
}

void EventRecorder::BlocksCreated(WindowSize window, std::vector<BlockId> blocks, TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  Append(window, tenant, CreatedEvent{.blocks_per_tier = {}, .blocks = std::move(blocks)});
}

void EventRecorder::BlocksReleased(WindowSize window, std::vector<BlockId> blocks,
                                   TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  Append(window, tenant,
         RemovedEvent{.reason = RemovalReason::kReleased,
                      .scope = RemovedEvent::Scope::kBlocks,
                      .blocks = std::move(blocks),
                      .hashes = {}});
}

// --- The tree ---

StoredEvent* EventRecorder::AppendStore(WindowSize window, const NamespaceKey& name_space,
                                        BlockId parent, BlockHash parent_hash, TenantId tenant) {
  StoredEvent fresh;
  if (parent != kNoBlock) fresh.parent_hash = parent_hash;
  fresh.parent = parent;
  fresh.name_space = name_space;
  fresh.blocks.reserve(std::exchange(expected_stored_blocks_, 0));
  fresh.tokens.reserve(std::exchange(expected_stored_tokens_, 0));
  last_stored_ = &Append(window, tenant, std::move(fresh));
  Open(window).barrier = last_;
  return last_stored_;
}

// To be called before the block's tokens are added. The event has extras once one of its blocks
// has any that says something.
void EventRecorder::AppendExtras(const BlockKey& key, StoredEvent& stored) {
  const bool says_something =
      std::any_of(key.extras.begin(), key.extras.end(),
                  [](const TokenExtra& extra) { return !(extra == TokenExtra{}); });
  if (!says_something && stored.extras.empty()) return;
  stored.extras.resize(stored.tokens.size());
  stored.extras.insert(stored.extras.end(), key.extras.begin(), key.extras.end());
  stored.extras.resize(stored.tokens.size() + key.tokens.size());
}

void EventRecorder::TierChanged(WindowSize window, BlockId id, BlockHash hash, Change<Tier> change,
                                TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  UpdatedEvent* updated = OpenUpdate(window, id);
  if (updated == nullptr || updated->tier.has_value())
    updated = &AppendUpdate(window, id, hash, tenant);
  updated->tier = change;
}

void EventRecorder::PriorityChanged(WindowSize window, BlockId id, BlockHash hash,
                                    Change<Priority> change, TenantId tenant) {
  if (record_ == RecordEvents::kNo) return;
  UpdatedEvent* updated = OpenUpdate(window, id);
  if (updated == nullptr || updated->priority.has_value()) {
    updated = &AppendUpdate(window, id, hash, tenant);
  }
  updated->priority = change;
}

// The operation's last event, if it is a change of this block.
UpdatedEvent* EventRecorder::OpenUpdate(WindowSize window, BlockId id) {
  if (!IsOpen(last_) || events_.back().window != window) return nullptr;
  auto* updated = std::get_if<UpdatedEvent>(&events_.back().what);
  return updated != nullptr && updated->id == id ? updated : nullptr;
}

UpdatedEvent& EventRecorder::AppendUpdate(WindowSize window, BlockId id, BlockHash hash,
                                          TenantId tenant) {
  UpdatedEvent& updated = Append(window, tenant, UpdatedEvent{.id = id, .hash = hash});
  OpenWindow& open = Open(window);
  if (!IsOpen(open.last_update)) open.updates.clear();
  open.updates[id] = open.last_update = last_;
  return updated;
}

RemovedEvent* EventRecorder::FindRemoval(WindowSize window, RemovalReason reason, BlockId id,
                                         TenantId tenant) {
  OpenWindow& open = Open(window);
  if (RemovedEvent* earlier = OpenRemoval(open, reason, id, tenant); earlier != nullptr)
    return earlier;
  last_removed_ = &Append(window, tenant, RemovedEvent{.reason = reason});
  const size_t expected = std::exchange(expected_removed_blocks_, 0);
  last_removed_->blocks.reserve(expected);
  last_removed_->hashes.reserve(expected);
  open.removals[static_cast<size_t>(reason)] = last_;
  if (window == kFullAttention) open.barrier = last_;
  return last_removed_;
}

// The operation's removal that one of `id` can join.
RemovedEvent* EventRecorder::OpenRemoval(const OpenWindow& open, RemovalReason reason, BlockId id,
                                         TenantId tenant) {
  const Revision earlier = open.removals[static_cast<size_t>(reason)];
  if (!IsOpen(earlier) || earlier < open.barrier || At(earlier).tenant != tenant) return nullptr;
  if (open.last_update > earlier) {
    const auto update = open.updates.find(id);
    if (update != open.updates.end() && update->second > earlier) return nullptr;
  }
  return &std::get<RemovedEvent>(At(earlier).what);
}

void EventRecorder::WindowCleared(WindowSize window) {
  if (record_ == RecordEvents::kNo) return;
  Append(window, kCommons,
         RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow});
  Open(window).barrier = last_;
}

}  // namespace pagoda
