// How blocks leave the tree: evicted, cut out or lost; and the priorities that decide when.
#include <utility>
#include <vector>

#include "base/check.h"
#include "manager/window/window_block_manager.h"

namespace pagoda {

// --- Leaving ---

// A victim with children becomes a hole. If the window can have no more holes, the blocks below
// leave with it. The same happens under full attention if the victim has lost its own copy on disk
// and the blocks below still have theirs.
void WindowBlockManager::Evict(OperationScope& op, BlockId victim, RemovalReason reason) {
  if (!tree_.has_children(victim)) return LeaveTree(op, victim, reason, Remains::kNothing);
  PAGODA_CHECK(sliding() || has_disk(), "rule 13: nothing cached becomes unreachable");
  if (!sliding() || holes_ == options_.max_holes) {
    CutSubtree(op, victim, reason);
    return;
  }
  LeaveTree(op, victim, reason, Remains::kHole);
}

// If a reset is at this block, the reset goes on at its parent.
void WindowBlockManager::EraseFromTree(BlockId id) {
  if (id == cut_off_) [[unlikely]] {
    const NodeRef parent = tree_.parent(id);
    cut_off_ = parent.is_root() ? kNoBlock : parent.block();
  }
  tree_.Erase(id);
  if (sliding()) passed_.Forget(id);
}

// The only way out of the tree. The order of the effects is always the same: the event, the clock,
// the residency, the node, the holes above. REQUIRES: the block is cached, and no pin holds it. For
// kNothing and kHole nothing holds it. For kNothing and kSlot it has no children.
void WindowBlockManager::LeaveTree(OperationScope& op, BlockId id, RemovalReason reason,
                                   Remains remains) {
  Block& block = store_[id];
  PAGODA_CHECK(block.state() == BlockState::kCached, "what leaves the tree was cached");
  const Tier tier = block.tier();
  RecordRemoval(op, id, reason);
  // Few blocks are timed. An unconditional write of the bit would delay the count's read of the
  // priority, which lies in the same word.
  if (block.timed) {
    expiries_.Forget(id);
    block.timed = 0;
  }
  // A larger cache would still have what was evicted, and nothing else.
  const bool evicted = reason == RemovalReason::kEvicted || reason == RemovalReason::kDisplaced;
  if (!evicted && !IsCutOff(id)) reuse_distances_.Removed(tree_.hash(id));
  residency_.Leave(
      op, id,
      remains == Remains::kSlot ? TierResidency::SlotAfter::kKept : TierResidency::SlotAfter::kFree,
      reason);
  if (remains == Remains::kHole) {
    block.set_state(BlockState::kHole);
    ++holes_;
    return;
  }
  const NodeRef parent = tree_.parent(id);
  EraseFromTree(id);
  if (remains == Remains::kSlot) {
    block.set_state(BlockState::kPrivate);
    if (block.refs != 0) recorder().BlockTaken(window(), id, accounts().owner(id));
  } else {
    residency_.Forget(id);
  }
  if (sliding()) return EraseHoles(parent);
  residency_.candidates().ChildLeft(op, parent, tier);
}

// A child of `node` left. Erases the node if it is now a hole without children, then the holes
// above it in the same way.
void WindowBlockManager::EraseHoles(NodeRef node) {
  while (!node.is_root() && store_[node.block()].state() == BlockState::kHole &&
         !tree_.has_children(node)) {
    const BlockId hole = node.block();
    node = tree_.parent(hole);
    EraseFromTree(hole);
    residency_.Forget(hole);
    --holes_;
  }
}

// Takes a block and all blocks below it out of the tree. Held blocks become private, the others
// become free. Returns how many cached blocks left.
uint64_t WindowBlockManager::CutSubtree(OperationScope& op, BlockId top, RemovalReason reason) {
  std::vector<BlockId> nodes = {top};  // Parents before children.
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const BlockId child : tree_.Children(NodeRef::Block(nodes[i]))) nodes.push_back(child);
  }
  if (pinned_blocks() != 0) {
    for (const BlockId id : nodes) EndPinsOf(op, id, reason);
  }
  uint64_t left = 0;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!store_[nodes[i]].in_tree()) continue;  // A hole that left with its last child.
    CutLeaf(op, nodes[i], reason);
    ++left;
  }
  return left;
}

bool WindowBlockManager::Owns(BlockRef block, SlotRef slot) const {
  return store_[block.id].generation == block.generation && residency_.slots().IsIn(block.id, slot);
}

void WindowBlockManager::Lose(OperationScope& op, BlockId id) {
  if (!residency_.moves().LoseNearest(op, id)) CutSubtree(op, id, RemovalReason::kLost);
}

void WindowBlockManager::LoseLowerCopy(BlockRef block, SlotRef slot) {
  if (store_[block.id].generation != block.generation) return;
  if (residency_.slots().IsDuplicate(block.id, slot)) {
    residency_.moves().LoseDuplicate(block.id, slot);
  }
}

// --- Priorities ---

void WindowBlockManager::SetPriority(OperationScope& op, BlockId id, Priority priority) {
  const Priority old = store_[id].priority();
  if (old == priority) return;
  if (!IsCutOff(id)) {
    recorder().PriorityChanged(window(), tree_.Named(id), {old, priority}, accounts().owner(id));
  }
  residency_.SetPriority(op, id, priority);
}

void WindowBlockManager::SetBlockRetention(OperationScope& op, BlockId id,
                                           const BlockRetention& retention) {
  SetPriority(op, id, retention.priority);
  Block& block = store_[id];
  // A block at the default priority has nothing to fall to.
  const bool timed =
      retention.duration != absl::InfiniteDuration() && retention.priority != kDefaultPriority;
  if (block.timed || timed) {
    expiries_.SetDuration(id, timed ? retention.duration : absl::InfiniteDuration());
  }
  block.timed = timed;
  if (timed && block.refs == 0) StartClock(op, id);
}

void WindowBlockManager::StartClock(OperationScope& op, BlockId id) {
  expiries_.Start(id, op.now);
  services_.deadlines->EndsAt(expiries_.next());
}

void WindowBlockManager::Expire(OperationScope& op) {
  for (const BlockId id : expiries_.TakeExpired(op.now, kMaxEndsByTime)) {
    store_[id].timed = 0;
    ++counters_.expired_priorities;
    SetPriority(op, id, kDefaultPriority);
  }
  services_.deadlines->EndsAt(expiries_.next());
  if (has_disk()) residency_.fetches().ExpireFetches(op);
}

}  // namespace pagoda
