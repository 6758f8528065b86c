// What one window counts of its blocks: counters for operators, and samples for advice.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_COUNTS_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "manager/advice/reuse_distances.h"
#include "manager/advice/reuse_intervals.h"
#include "manager/api/stats.h"
#include "manager/services/operation_scope.h"
#include "manager/tree/sequence.h"
#include "manager/window/prefix_match.h"
#include "manager/window/window_part.h"
#include "pools/types.h"

namespace pagoda {

// Changes no block, except for Block::followed. Thread-compatible.
//
// Invariants
// 1. cached_blocks() is the number of cached blocks that no reset has cut off.
// 2. A block is followed only while it is in the tree. ReuseIntervals knows each followed block.
// 3. A count of a tenant is in its TenantCounters alone, and the sums over tenants are made when
// they are read. Without tenants, removals are counted in default_tenant_removed_.
class WindowCounts final : private WindowPart {
 public:
  explicit WindowCounts(const WindowFloor& floor);

  // Counters that belong to no tenant. The part in which it happens raises them.
  WindowCounters& counters() { return counters_; }
  uint32_t cached_blocks() const { return cached_blocks_; }
  void AddStats(WindowStats* stats) const;

  // --- Blocks ---

  void Allocated(const OperationScope& op, size_t blocks) {
    tenant_counters_[op.tenant.value()].allocated_blocks += blocks;
  }
  // The block is cached now.
  void Stored(const OperationScope& op, BlockId id) {
    ++cached_blocks_;
    if (!reuse_intervals_.Samples(id)) return;
    store_[id].followed = 1;
    reuse_intervals_.Stored(id, op.now);
  }
  // The block leaves the tree, and is not cut off. Called before its tier or owner changes.
  void Removed(const OperationScope& op, BlockId id, RemovalReason reason) {
    --cached_blocks_;
    // A larger cache would still have what was evicted, and nothing else.
    const bool evicted = reason == RemovalReason::kEvicted || reason == RemovalReason::kDisplaced;
    if (!evicted) reuse_distances_.Removed(tree_.hash(id));
    CountRemoval(op, id, reason);
  }
  // A cut-off block leaves the tree. It counts as cleared by the reset, whatever removes it now.
  void Cleared(const OperationScope& op, BlockId id) {
    CountRemoval(op, id, RemovalReason::kCleared);
  }
  // An evicted block leaves the primary tier and the tree. REQUIRES: the block is not followed, the
  // cache has no tenants, and no block is cut off.
  void EvictedPrimary() {
    --cached_blocks_;
    ++default_tenant_removed_[kPrimaryTier.value()][static_cast<size_t>(RemovalReason::kEvicted)];
  }
  // A reset has cut off all blocks.
  void CutOff() {
    cached_blocks_ = 0;
    reuse_distances_.Clear();
  }
  // The first holder holds the block.
  void Held(BlockId id) { reuse_distances_.Held(tree_.hash(id)); }
  // The last holder released a cached block.
  void Released(const OperationScope& op, BlockId id) {
    if (store_[id].followed) reuse_intervals_.Released(id, op.now);
    ReleasedUnfollowed(id, tree_.hash(id));
  }
  // The same, for a block that is not followed.
  void ReleasedUnfollowed(BlockId id, BlockHash hash) {
    if (reuse_distances_.Samples(hash) && !tree_.IsCutOff(id)) reuse_distances_.Released(hash);
  }
  // A block of an earlier run is cached, and nothing holds it. Found() follows once all blocks of
  // that run are there.
  void Recovered(const OperationScope& op, BlockId id) {
    if (store_[id].followed) reuse_intervals_.Released(id, op.now);
  }
  void Found(BlockId id) { reuse_distances_.Found(tree_.hash(id)); }

  // --- Sequences ---

  // Counts all that the match of a sequence's prompt counts for. Called before the match is held,
  // and before the sequence takes `fresh` blocks.
  void CountMatch(OperationScope& op, Sequence& sequence, const PrefixMatch& match, MatchTail tail,
                  uint32_t fresh);
  // Counts blocks [first, end) of the sequence, which it computed.
  void CountPublished(const Sequence& sequence, uint32_t first, uint32_t end);
  // The sequence has published entry `index`. `id` is the block in the tree.
  void Published(const Sequence& sequence, SequenceBlocks& blocks, uint32_t index, BlockId id) {
    if (reuse_distances_.Samples(tree_.hash(id))) NotePublished(sequence, blocks, index, id);
  }

 private:
  void CountRemoval(const OperationScope& op, BlockId id, RemovalReason reason) {
    const Block& block = store_[id];
    RemovalCounts& counts = accounts().any()
                                ? tenant_counters_[accounts().owner(id).value()].removed_blocks
                                : default_tenant_removed_;
    ++counts[block.tier_value][static_cast<size_t>(reason)];
    if (block.followed) UnfollowRemoved(op, id, reason);
  }
  // Called before the block is held.
  void NoteMatched(OperationScope& op, BlockId id) {
    const Block& block = store_[id];
    if (block.followed && block.refs == 0) reuse_intervals_.Matched(id, block.tier(), op.now);
  }
  void CountLookup(OperationScope& op, uint32_t lookup_tokens, const PrefixMatch& match);
  void NotePublished(const Sequence& sequence, SequenceBlocks& blocks, uint32_t index, BlockId id);
  void UnfollowRemoved(const OperationScope& op, BlockId id, RemovalReason reason);

  uint32_t cached_blocks_ = 0;
  WindowCounters counters_;
  std::vector<TenantCounters> tenant_counters_;  // By TenantId.
  RemovalCounts default_tenant_removed_ = {};
  ReuseIntervals reuse_intervals_;
  ReuseDistances reuse_distances_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_COUNTS_H_
