// Turns the core's changes into events, one operation at a time.
#ifndef PAGODA_MANAGER_SERVICES_EVENT_RECORDER_H_
#define PAGODA_MANAGER_SERVICES_EVENT_RECORDER_H_

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
#include "manager/words/lifecycle_events.h"
#include "manager/words/record_events.h"
#include "pools/types.h"

namespace pagoda {

// Numbers the events and joins those of one operation:
// * A run of stored blocks, each the child of the one before, with nothing between.
// * Removals of one window, reason and tenant. A removal joins the earlier event unless something
//   was recorded between that must come first: a stored block, a change of the removed block
//   itself, or under full attention a removal for another reason, which can be its child's.
// * Changes of the tier and the priority of one block, with nothing between.
// * Blocks of one window and tenant that are taken outside the tree, as long as none was freed
//   since the event. Blocks that are freed, as long as none was taken since.
// No event grows beyond the bounds in events/event.h: the rest goes into a further event.
//
// So a tree that applies the events one by one sees no block before its parent under full
// attention, no child in a nearer tier, and every block's own events in their order.
// Thread-compatible.
class EventRecorder {
 public:
  explicit EventRecorder(RecordEvents record = RecordEvents::kYes,
                         LifecycleEvents lifecycle = LifecycleEvents::kRaw)
      : record_(record),
        records_lifecycle_(record == RecordEvents::kYes && lifecycle == LifecycleEvents::kAll) {}
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  // The following calls belong to a new operation at `now`.
  void BeginOperation(absl::Time now);

  void PoolsCreated(WindowSize window, absl::Span<const uint32_t> blocks_per_tier);
  // The window's pools are removed, with all of its blocks.
  void PoolsRemoved(WindowSize window);
  void BlocksCreated(WindowSize window, absl::Span<const BlockId> blocks,
                     TenantId tenant = kDefaultTenant);
  void BlocksReleased(WindowSize window, absl::Span<const BlockId> blocks,
                      TenantId tenant = kDefaultTenant);
  // A block is now taken outside the tree: allocated, or held while it left the tree. Recorded with
  // LifecycleEvents::kAll only.
  void BlockTaken(WindowSize window, BlockId id, TenantId tenant) {
    if (records_lifecycle_) [[unlikely]] {
      AppendTaken(window, id, tenant);
    }
  }
  // A block outside the tree is free now. Recorded with LifecycleEvents::kAll only.
  void BlockFreed(WindowSize window, BlockId id, TenantId tenant) {
    if (records_lifecycle_) [[unlikely]] {
      AppendFreed(window, id, tenant);
    }
  }
  // `parent`: TreeBlock{} below the namespace's root.
  void Stored(WindowSize window, const NamespaceKey& name_space, const TreeBlock& parent,
              const StoredBlock& block, const BlockKey& key, TenantId tenant = kDefaultTenant) {
    if (record_ == RecordEvents::kNo) return;
    StoredEvent* stored = OpenStore(window, parent.id);
    if (stored == nullptr) stored = AppendStore(window, name_space, parent, tenant);
    stored->blocks.push_back(block);
    if (key.has_extras() || !stored->extras.empty()) AppendExtras(key, *stored);
    stored->tokens.insert(stored->tokens.end(), key.tokens.begin(), key.tokens.end());
  }
  // A part of an event, for the caller to fill in whole.
  struct StoredRun {
    absl::Span<StoredBlock> blocks;
    absl::Span<TokenId> tokens;
  };
  // Records a chain of whole blocks of `block_tokens` tokens without extras, as Stored() does for
  // each of them. The first block is a child of `parent`. The part that is returned takes at least
  // one block and at most `count`. It is valid until the next call. REQUIRES: records().
  StoredRun StoreRun(WindowSize window, const NamespaceKey& name_space, const TreeBlock& parent,
                     size_t count, size_t block_tokens, TenantId tenant);
  bool records() const { return record_ == RecordEvents::kYes; }
  // A cached block's nearest tier, its copies in farther tiers, or its priority changed. Under full
  // attention a block is offloaded after its children and onboarded before them.
  void CopiesChanged(WindowSize window, const TreeBlock& block, Change<Tier> tier,
                     Change<TierSet> lower, TenantId tenant = kDefaultTenant);
  void PriorityChanged(WindowSize window, const TreeBlock& block, Change<Priority> change,
                       TenantId tenant = kDefaultTenant);
  // A pin of `tenant` ended. The block is the last of its prefix, and still cached.
  void PinEnded(WindowSize window, BlockId id, BlockHash hash, const EndedPin& pin,
                TenantId tenant = kDefaultTenant);
  void Removed(WindowSize window, RemovalReason reason, const TreeBlock& block,
               TenantId tenant = kDefaultTenant) {
    if (record_ == RecordEvents::kNo) return;
    RemovedEvent* removed = LastRemoval(window, reason, tenant);
    if (removed == nullptr) removed = FindRemoval(window, reason, block.id, tenant);
    removed->blocks.push_back(block.id);
    removed->hashes.push_back(block.hash);
    removed->end_tokens.push_back(block.end_token);
  }
  void WindowCleared(WindowSize window);
  // Records nothing from now on. Recorded events can still be taken.
  void Stop() {
    record_ = RecordEvents::kNo;
    records_lifecycle_ = false;
  }

  // The final size of the next Stored or Removed event, if the caller knows it. The event then
  // takes its memory at once.
  void ExpectStored(size_t blocks, size_t tokens);
  void ExpectRemoved(size_t blocks) { expected_removed_blocks_ = blocks; }

  // The revision of the last event.
  Revision last() const { return last_; }
  // The events since the last Take.
  EventBatch Take();

 private:
  static constexpr size_t kNumReasons = static_cast<size_t>(RemovalReason::kLost) + 1;

  // Limits on what later removals of the window can join. Revisions of earlier operations have no
  // effect.
  struct OpenWindow {
    WindowSize window;
    Revision barrier;                                 // They cannot join an event before it.
    std::array<Revision, kNumReasons> removals = {};  // The last event of each reason.
    absl::flat_hash_map<BlockId, Revision> updates;   // The last update of each block.
    Revision last_update;
    Revision last_removal;  // The last event that began with a removal, for any reason.
    Revision last_taken;    // The last event about blocks taken outside the tree.
    Revision last_freed;
  };

  template <class T>
  T& Append(WindowSize window, TenantId tenant);
  OpenWindow& Open(WindowSize window);
  Event& At(Revision revision) { return batch_[batch_.size() - 1 - Age(revision)]; }
  // How many events came after `revision`.
  size_t Age(Revision revision) const { return last_.value() - revision.value(); }
  bool IsOpen(Revision revision) const { return revision > operation_begin_; }

  // The operation's last event, if its last stored block is the parent.
  StoredEvent* OpenStore(WindowSize window, BlockId parent) {
    return last_stored_ != nullptr && batch_.back().window == window &&
                   last_stored_->blocks.back().id == parent &&
                   last_stored_->blocks.size() < kMaxStoredBlocks &&
                   last_stored_->tokens.size() < kMaxStoredTokens
               ? last_stored_
               : nullptr;
  }
  // The operation's last event, if it is a removal of this kind.
  RemovedEvent* LastRemoval(WindowSize window, RemovalReason reason, TenantId tenant) {
    return last_removed_ != nullptr && batch_.back().window == window &&
                   batch_.back().tenant == tenant && last_removed_->reason == reason &&
                   last_removed_->blocks.size() < kMaxListedBlocks
               ? last_removed_
               : nullptr;
  }
  StoredEvent* AppendStore(WindowSize window, const NamespaceKey& name_space,
                           const TreeBlock& parent, TenantId tenant);
  static void AppendExtras(const BlockKey& key, StoredEvent& stored);
  // The event that a removal of `id` joins: an earlier one or a new one.
  RemovedEvent* FindRemoval(WindowSize window, RemovalReason reason, BlockId id, TenantId tenant);
  RemovedEvent* OpenRemoval(const OpenWindow& open, RemovalReason reason, BlockId id,
                            TenantId tenant);
  UpdatedEvent* OpenUpdate(WindowSize window, BlockId id);
  UpdatedEvent& AppendUpdate(WindowSize window, const TreeBlock& block, TenantId tenant);
  void AppendTaken(WindowSize window, BlockId id, TenantId tenant);
  void AppendFreed(WindowSize window, BlockId id, TenantId tenant);
  // Whether a block of the tenant can join the event, which must come after `bound`.
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
  // The sizes of the last two batches. The next one reserves the smaller of the two.
  std::array<size_t, 2> used_bytes_ = {};
  // The operation's last event while blocks are stored or removed one after another; else null.
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

#endif  // PAGODA_MANAGER_SERVICES_EVENT_RECORDER_H_
