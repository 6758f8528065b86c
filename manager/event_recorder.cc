#include "manager/event_recorder.h"

#include <optional>

namespace pagoda {

void EventRecorder::BeginOperation(absl::Time now) {
  now_ = now;
  operation_begin_ = events_.size();
  expected_stored_blocks_ = expected_stored_tokens_ = expected_removed_blocks_ = 0;
}

void EventRecorder::ExpectStored(size_t blocks, size_t tokens) {
  expected_stored_blocks_ = blocks;
  expected_stored_tokens_ = tokens;
}

template <class T>
T& EventRecorder::Append(WindowSize window, T what) {
  last_ = Revision{last_.value() + 1};
  events_.push_back({last_, now_, window, std::move(what)});
  return std::get<T>(events_.back().what);
}

void EventRecorder::PoolsCreated(WindowSize window, std::vector<uint32_t> blocks_per_tier) {
  if (record_ == RecordEvents::kNo) return;
  Append(window, CreatedEvent{.blocks_per_tier = std::move(blocks_per_tier), .blocks = {}});
}

void EventRecorder::BlocksCreated(WindowSize window, std::vector<BlockId> blocks) {
  if (record_ == RecordEvents::kNo) return;
  Append(window, CreatedEvent{.blocks_per_tier = {}, .blocks = std::move(blocks)});
}

void EventRecorder::BlocksReleased(WindowSize window, std::vector<BlockId> blocks) {
  if (record_ == RecordEvents::kNo) return;
  Append(window, RemovedEvent{.reason = RemovalReason::kReleased,
                              .scope = RemovedEvent::Scope::kBlocks,
                              .blocks = std::move(blocks),
                              .hashes = {}});
}

void EventRecorder::Stored(WindowSize window, const NamespaceKey& name_space, BlockId parent,
                           BlockHash parent_hash, StoredBlock block,
                           absl::Span<const TokenId> tokens) {
  if (record_ == RecordEvents::kNo) return;
  StoredEvent* stored = OpenStore(window, parent);
  if (stored == nullptr) {
    StoredEvent fresh;
    if (parent != kNoBlock) fresh.parent_hash = parent_hash;
    fresh.parent = parent;
    fresh.name_space = name_space;
    fresh.blocks.reserve(std::exchange(expected_stored_blocks_, 0));
    fresh.tokens.reserve(std::exchange(expected_stored_tokens_, 0));
    stored = &Append(window, std::move(fresh));
  }
  stored->blocks.push_back(block);
  stored->tokens.insert(stored->tokens.end(), tokens.begin(), tokens.end());
}

void EventRecorder::Removed(WindowSize window, RemovalReason reason, BlockId id, BlockHash hash) {
  if (record_ == RecordEvents::kNo) return;
  RemovedEvent* removed = OpenRemoval(window, reason);
  if (removed == nullptr) {
    removed = &Append(window, RemovedEvent{.reason = reason});
    const size_t expected = std::exchange(expected_removed_blocks_, 0);
    removed->blocks.reserve(expected);
    removed->hashes.reserve(expected);
  }
  removed->blocks.push_back(id);
  removed->hashes.push_back(hash);
}

void EventRecorder::WindowCleared(WindowSize window) {
  if (record_ == RecordEvents::kNo) return;
  Append(window,
         RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow});
}

std::vector<Event> EventRecorder::Take() {
  operation_begin_ = 0;
  return std::exchange(events_, {});
}

// The operation's removal that this one can join: no block was stored in the window since, so the
// order of a block's events stays.
RemovedEvent* EventRecorder::OpenRemoval(WindowSize window, RemovalReason reason) {
  for (size_t i = events_.size(); i-- > operation_begin_;) {
    if (events_[i].window != window) continue;
    auto* removed = std::get_if<RemovedEvent>(&events_[i].what);
    if (removed == nullptr) return nullptr;
    if (removed->reason == reason && removed->scope == RemovedEvent::Scope::kBlocks) return removed;
  }
  return nullptr;
}

// The operation's last event, if it stored the parent as its last block.
StoredEvent* EventRecorder::OpenStore(WindowSize window, BlockId parent) {
  if (events_.size() == operation_begin_ || events_.back().window != window) return nullptr;
  auto* stored = std::get_if<StoredEvent>(&events_.back().what);
  return stored != nullptr && stored->blocks.back().id == parent ? stored : nullptr;
}

}  // namespace pagoda
