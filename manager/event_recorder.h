// Turns what the core does into events, one operation at a time.
#ifndef PAGODA_MANAGER_EVENT_RECORDER_H_
#define PAGODA_MANAGER_EVENT_RECORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "events/event.h"
#include "events/event_batch.h"
#include "manager/lifecycle_events.h"
#include "manager/record_events.h"
#include "pools/types.h"

namespace pagoda {

// Numbers the events and joins those of one operation:
// * a run of stored blocks in which each is the child of the one before, nothing else between;
// * removals of one window, reason and tenant: a removal joins the earlier event unless something
// was
//   recorded between that has to come first. That is a stored block, a change of the removed block
//   itself, and under full attention a removal for another reason, which may be its child's;
// * the tier and the priority of one block, nothing else between;
// * blocks of one window and tenant that begin a life outside the tree, as long as none was removed
//   since the event; and those that end one, as long as none has begun one since.
// None grows beyond the bounds in events/event.h: what is more goes on in a further event.
// So a tree that applies them one by one sees no block before its parent under full attention, no
// child in a nearer tier, and every block's own events in the order in which they happened.
// Thread-compatible.
class EventRecorder {
 public:
  explicit EventRecorder(RecordEvents record = RecordEvents::kYes,
                         LifecycleEvents lifecycle = LifecycleEvents::kRaw)
      : record_(record),
        records_lifecycle_(record == RecordEvents::kYes && lifecycle == LifecycleEvents::kAll) {}
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  // What follows belongs to a new operation at `now`.
  void BeginOperation(absl::Time now);

  void PoolsCreated(WindowSize window, absl::Span<const uint32_t> blocks_per_tier);
  // With the pools go all blocks of the window.
  void PoolsRemoved(WindowSize window);
  void BlocksCreated(WindowSize window, absl::Span<const BlockId> blocks,
                     TenantId tenant = kDefaultTenant);
  void BlocksReleased(WindowSize window, absl::Span<const BlockId> blocks,
                      TenantId tenant = kDefaultTenant);
  // A block begins a life outside the tree: taken, or held while it left the tree. Recorded with
  // LifecycleEvents::kAll alone.
  void BlockTaken(WindowSize window, BlockId id, TenantId tenant) {
    if (records_lifecycle_) [[unlikely]] {
      AppendTaken(window, id, tenant);
    }
  }
  // Such a life ends without the tree: the id is free. Likewise.
  void BlockFreed(WindowSize window, BlockId id, TenantId tenant) {
    if (records_lifecycle_) [[unlikely]] {
      AppendFreed(window, id, tenant);
    }
  }
  // `parent` is kNoBlock below the namespace's root, and `parent_hash` means nothing then.
  void Stored(WindowSize window, const NamespaceKey& name_space, BlockId parent,
              BlockHash parent_hash, const StoredBlock& block, const BlockKey& key,
              TenantId tenant = kDefaultTenant) {
    if (record_ == RecordEvents::kNo) return;
    StoredEvent* stored = OpenStore(window, parent);
    if (stored == nullptr) stored = AppendStore(window, name_space, parent, parent_hash, tenant);
    stored->blocks.push_back(block);
    if (key.has_extras() || !stored->extras.empty()) AppendExtras(key, *stored);
    stored->tokens.insert(stored->tokens.end(), key.tokens.begin(), key.tokens.end());
  }
  // A cached block's nearest tier or its copies in farther ones changed, or its priority. A block
  // that goes down does so after its children, and one that comes up before them, under full
  // attention.
  void CopiesChanged(WindowSize window, BlockId id, BlockHash hash, Change<Tier> tier,
                     Change<TierSet> lower, TenantId tenant = kDefaultTenant);
  void PriorityChanged(WindowSize window, BlockId id, BlockHash hash, Change<Priority> change,
                       TenantId tenant = kDefaultTenant);
  // A pin of `tenant` ended; the block is the last of its prefix, and still cached.
  void PinEnded(WindowSize window, BlockId id, BlockHash hash, const EndedPin& pin,
                TenantId tenant = kDefaultTenant);
  void Removed(WindowSize window, RemovalReason reason, BlockId id, BlockHash hash,
               TenantId tenant = kDefaultTenant) {
    if (record_ == RecordEvents::kNo) return;
    RemovedEvent* removed = LastRemoval(window, reason, tenant);
    if (removed == nullptr) removed = FindRemoval(window, reason, id, tenant);
    removed->blocks.push_back(id);
    removed->hashes.push_back(hash);
  }
  void WindowCleared(WindowSize window);
  // Nothing is recorded any more. What is recorded can be taken still.
  void Stop() {
    record_ = RecordEvents::kNo;
    records_lifecycle_ = false;
  }

  // How much the next Stored or Removed event will hold in the end, where the caller knows: it then
  // takes its memory at once.
  void ExpectStored(size_t blocks, size_t tokens);
  void ExpectRemoved(size_t blocks) { expected_removed_blocks_ = blocks; }

  // The revision of the last event.
  Revision last() const { return last_; }
  // The events since the last Take.
  EventBatch Take();

 private:
  static constexpr size_t kNumReasons = static_cast<size_t>(RemovalReason::kLost) + 1;

  // What later removals of the window have to heed. Revisions of earlier operations say nothing.
  struct OpenWindow {
    WindowSize window;
    Revision barrier;                                 // They cannot join an event before this.
    std::array<Revision, kNumReasons> removals = {};  // The last event of each reason.
    absl::flat_hash_map<BlockId, Revision> updates;   // The last one of each block.
    Revision last_update;
    Revision last_removal;  // The last event that began with a removal, for whatever reason.
    Revision last_taken;    // Those of lives outside the tree.
    Revision last_freed;
  };

  template <class T>
  T& Append(WindowSize window, TenantId tenant);
  OpenWindow& Open(WindowSize window);
  Event& At(Revision revision) { return batch_[batch_.size() - 1 - Age(revision)]; }
  // How many events came after `revision`.
  size_t Age(Revision revision) const { return last_.value() - revision.value(); }
  bool IsOpen(Revision revision) const { return revision > operation_begin_; }

  // The operation's last event, if it stored the parent as its last block.
  StoredEvent* OpenStore(WindowSize window, BlockId parent) {
    return last_stored_ != nullptr && batch_.back().window == window &&
                   last_stored_->blocks.back().id == parent &&
                   last_stored_->blocks.size() < kMaxStoredBlocks &&
                   last_stored_->tokens.size() < kMaxStoredTokens
               ? last_stored_
               : nullptr;
  }
  // The operation's last event, if it is such a removal.
  RemovedEvent* LastRemoval(WindowSize window, RemovalReason reason, TenantId tenant) {
    return last_removed_ != nullptr && batch_.back().window == window &&
                   batch_.back().tenant == tenant && last_removed_->reason == reason &&
                   last_removed_->blocks.size() < kMaxListedBlocks
               ? last_removed_
               : nullptr;
  }
  StoredEvent* AppendStore(WindowSize window, const NamespaceKey& name_space, BlockId parent,
                           BlockHash parent_hash, TenantId tenant);
  static void AppendExtras(const BlockKey& key, StoredEvent& stored);
  // The event that a removal of `id` goes to: an earlier one or a new one.
  RemovedEvent* FindRemoval(WindowSize window, RemovalReason reason, BlockId id, TenantId tenant);
  RemovedEvent* OpenRemoval(const OpenWindow& open, RemovalReason reason, BlockId id,
                            TenantId tenant);
  UpdatedEvent* OpenUpdate(WindowSize window, BlockId id);
  UpdatedEvent& AppendUpdate(WindowSize window, BlockId id, BlockHash hash, TenantId tenant);
  void AppendTaken(WindowSize window, BlockId id, TenantId tenant);
  void AppendFreed(WindowSize window, BlockId id, TenantId tenant);
  // Whether a life of the tenant's may join an event that came after `bound`.
  bool MayJoin(Revision event, Revision bound, TenantId tenant) {
    return IsOpen(event) && event > bound && At(event).tenant == tenant;
  }
  void CloseLast() {
    last_stored_ = nullptr;
    last_removed_ = nullptr;
  }

  RecordEvents record_;
  bool records_lifecycle_;
  EventBatch batch_;
  // What the last two batches used: the next one may need as much as the smaller did.
  std::array<size_t, 2> used_bytes_ = {};
  // The operation's last event, where blocks are stored or removed one after another; else null.
  StoredEvent* last_stored_ = nullptr;
  RemovedEvent* last_removed_ = nullptr;
  std::vector<OpenWindow> windows_;
  Revision operation_begin_;  // The last event before the operation, or before the last Take.
  absl::Time now_ = absl::UnixEpoch();
  size_t expected_stored_blocks_ = 0;
  size_t expected_stored_tokens_ = 0;
  size_t expected_removed_blocks_ = 0;
  Revision last_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EVENT_RECORDER_H_
