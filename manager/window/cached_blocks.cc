#include "manager/window/cached_blocks.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "manager/tiers/tier_residency_runs.h"

namespace pagoda {
namespace {

// Whether the block can be evicted without a look at anything but its slot, its node and its
// policy.
bool LeavesNothingBehind(const Block& block) {
  return block.state() == BlockState::kCached && !block.timed && !block.beside && !block.followed;
}

}  // namespace

CachedBlocks::CachedBlocks(const WindowFloor& floor, WindowCounts& counts, BlockHolds& holds,
                           WindowPins& pins, PublishablePrefixes& publishable)
    : WindowPart(floor),
      counts_(counts),
      holds_(holds),
      pins_(pins),
      publishable_(publishable),
      next_cut_off_(store_.num_ids()) {}

// --- Fresh blocks ---

void CachedBlocks::Take(OperationScope& op, BlockState state, absl::Span<BlockHandle> out) {
  const bool can_reuse = residency_.CanReuse() && !has_cut_off();
  while (!out.empty()) {
    if (can_reuse && residency_.slots().free_slots(kPrimaryTier) == 0) {
      out.remove_prefix(ReuseVictims(op, state, out));
      if (out.empty()) return;
    }
    out.front() = store_.handle(residency_.Take(op, state));
    out.remove_prefix(1);
  }
}

// Takes the ids and slots of victims that end a chain, until it meets another kind of victim.
// Returns how many it took.
size_t CachedBlocks::ReuseVictims(OperationScope& op, BlockState state,
                                  absl::Span<BlockHandle> out) {
  BlockId victim = residency_.FirstVictim();
  size_t taken = 0;
  for (; taken < out.size() && victim != kNoBlock; ++taken) {
    if (!LeavesNothingBehind(store_[victim]) || !tree_.EndsChain(victim)) break;
    counts_.EvictedPrimary();
    recorder().Removed(window(), RemovalReason::kEvicted, tree_.Named(victim));
    const BlockId next = residency_.Reuse(op, victim, state);
    out[taken] = store_.handle(victim);
    // The request writes the tokens when it has all its blocks.
    __builtin_prefetch(store_.tokens(victim).data(), 1);
    victim = next;
  }
  return taken;
}

// --- Entering ---

void CachedBlocks::RecordStored(OperationScope& op, BlockId id, NodeRef root, const BlockKey& key) {
  counts_.Stored(op, id);
  publishable_.Stored(id);
  residency_.journal().NoteContent(id);
  const Block& block = store_[id];
  recorder().Stored(window(), tree_.key(root), tree_.Named(tree_.parent(id)),
                    {.id = id,
                     .hash = tree_.hash(id),
                     .token_count = block.token_count,
                     .tier = block.tier(),
                     .priority = block.priority()},
                    key, accounts().owner(id));
}

void CachedBlocks::FillHole(OperationScope& op, BlockId id, NodeRef root) {
  --holes_;
  RecordStored(op, id, root, store_.key(id));
}

CachedBlocks::Prefixes CachedBlocks::EvictablePrefixes(NodeRef parent, const BlockKey& key) const {
  Prefixes evictable = tree_.Prefixes(parent, key);
  const auto stays = [this](BlockId id) {
    return store_[id].state() != BlockState::kCached || store_[id].refs != 0;
  };
  evictable.erase(std::remove_if(evictable.begin(), evictable.end(), stays), evictable.end());
  return evictable;
}

void CachedBlocks::RemovePrefixes(OperationScope& op, const Prefixes& prefixes) {
  for (const BlockId shorter : prefixes) {
    LeaveTree(op, shorter, RemovalReason::kTakenOver, Remains::kNothing);
  }
}

// --- Leaving ---

void CachedBlocks::LeaveTree(OperationScope& op, BlockId id, RemovalReason reason,
                             Remains remains) {
  Block& block = store_[id];
  PAGODA_CHECK(block.state() == BlockState::kCached, "what leaves the tree was cached");
  const Tier tier = block.tier();
  // Before the block's tier or owner changes.
  if (IsCutOff(id)) {
    counts_.Cleared(op, id);
  } else {
    counts_.Removed(op, id, reason);
    recorder().Removed(window(), reason, tree_.Named(id), accounts().owner(id));
  }
  holds_.ForgetClock(id);
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

// If a reset is at this block, the reset goes on at its parent.
void CachedBlocks::EraseFromTree(BlockId id) {
  if (id == cut_off_) [[unlikely]] {
    const NodeRef parent = tree_.parent(id);
    cut_off_ = parent.is_root() ? kNoBlock : parent.block();
  }
  tree_.Erase(id);
  if (sliding()) holds_.passed().Forget(id);
}

// A child of `node` left. Erases the node if it is now a hole without children, then the holes
// above it in the same way.
void CachedBlocks::EraseHoles(NodeRef node) {
  while (!node.is_root() && store_[node.block()].state() == BlockState::kHole &&
         !tree_.has_children(node)) {
    const BlockId hole = node.block();
    node = tree_.parent(hole);
    EraseFromTree(hole);
    residency_.Forget(hole);
    --holes_;
  }
}

uint64_t CachedBlocks::CutSubtree(OperationScope& op, BlockId top, RemovalReason reason) {
  std::vector<BlockId> nodes = {top};  // Parents before children.
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const BlockId child : tree_.Children(NodeRef::Block(nodes[i]))) nodes.push_back(child);
  }
  if (pins_.pinned_blocks() != 0) {
    for (const BlockId id : nodes) pins_.EndPinsOf(op, id, reason);
  }
  uint64_t left = 0;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!store_[nodes[i]].in_tree()) continue;  // A hole that left with its last child.
    CutLeaf(op, nodes[i], reason);
    ++left;
  }
  return left;
}

void CachedBlocks::Evict(OperationScope& op, BlockId victim, RemovalReason reason) {
  if (!tree_.has_children(victim)) return LeaveTree(op, victim, reason, Remains::kNothing);
  PAGODA_CHECK(sliding() || residency_.slots().has_disk(),
               "rule 13: nothing cached becomes unreachable");
  if (!sliding() || holes_ == options_.max_holes) {
    CutSubtree(op, victim, reason);
    return;
  }
  LeaveTree(op, victim, reason, Remains::kHole);
}

void CachedBlocks::Lose(OperationScope& op, BlockId id) {
  if (!residency_.moves().LoseNearest(op, id)) CutSubtree(op, id, RemovalReason::kLost);
}

bool CachedBlocks::Owns(BlockRef block, SlotRef slot) const {
  return store_[block.id].generation == block.generation && residency_.slots().IsIn(block.id, slot);
}

void CachedBlocks::LoseLowerCopy(BlockRef block, SlotRef slot) {
  if (store_[block.id].generation != block.generation) return;
  if (residency_.slots().IsDuplicate(block.id, slot)) {
    residency_.moves().LoseDuplicate(block.id, slot);
  }
}

// --- A reset ---

uint64_t CachedBlocks::CutOffTree() {
  PAGODA_CHECK(!has_cut_off() && pins_.pinned_blocks() == 0,
               "a reset begins after the one before it, and after the pins");
  residency_.backups().OrderErase(Order::Kind::kEraseAll);
  const uint64_t left = counts_.cached_blocks();
  if (left == 0) return 0;
  tree_.CutOff();
  counts_.CutOff();
  next_cut_off_ = 0;
  recorder().WindowCleared(window());
  return left;
}

// Walks from an id down to a leaf below it, and up again as the blocks leave. Keeps its place in a
// path of any length.
uint32_t CachedBlocks::FreeCutOff(OperationScope& op, uint32_t max_blocks) {
  uint32_t looked = 0;
  for (; looked < max_blocks && has_cut_off(); ++looked) {
    if (cut_off_ == kNoBlock) {
      const BlockId id{next_cut_off_};
      if (!IsCutOff(id)) {
        ++next_cut_off_;
        continue;
      }
      cut_off_ = id;
    }
    if (tree_.has_children(cut_off_)) {
      cut_off_ = tree_.AnyChild(cut_off_);
    } else {
      CutLeaf(op, cut_off_, RemovalReason::kCleared);
    }
  }
  return looked;
}

// --- For tests ---

void CachedBlocks::CheckInvariants() const {
  uint32_t holes = 0, cached = 0;
  std::vector<uint32_t> children(store_.num_ids()), primary_children(store_.num_ids());
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    if (block.state() == BlockState::kHole) ++holes;
    if (block.state() == BlockState::kCached && !IsCutOff(id)) ++cached;
    if (!block.in_tree()) continue;
    CheckPlaceInTree(id);
    const NodeRef parent = tree_.parent(id);
    if (parent.is_root()) continue;
    ++children[parent.block().value()];
    if (block.state() == BlockState::kCached && block.tier() == kPrimaryTier) {
      ++primary_children[parent.block().value()];
    }
  }
  PAGODA_CHECK(holes == holes_ && holes <= options_.max_holes, "the holes are counted");
  PAGODA_CHECK(cached == counts_.cached_blocks(), "the cached blocks are counted");
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    if (!store_[id].in_tree()) continue;
    PAGODA_CHECK(tree_.has_children(id) == (children[i] != 0) &&
                     tree_.primary_children(id) == primary_children[i],
                 "a node counts its children");
  }
}

void CachedBlocks::CheckPlaceInTree(BlockId id) const {
  const Block& block = store_[id];
  const NodeRef parent = tree_.parent(id);
  PAGODA_CHECK(tree_.FindChild(parent, store_.key(id)) == id,
               "rule 12: a cached block is found by its content");
  PAGODA_CHECK(tree_.hash(id) == HashBlock(tree_.hash(parent), store_.key(id)),
               "rule 12: a block has the hash of its content");
  PAGODA_CHECK(tree_.end_token(id) == tree_.end_token(parent) + block.token_count,
               "a block ends as many tokens after its parent as it holds");
  PAGODA_CHECK(!IsCutOff(id) || (id.value() >= next_cut_off_ && !block.pinned),
               "a cut-off block is not pinned, and leaves later");
  if (parent.is_root()) return;
  const Block& above = store_[parent.block()];
  PAGODA_CHECK(above.tree == block.tree, "a tree is cut off as a whole");
  PAGODA_CHECK(above.in_tree() && above.token_count == tokens_per_block().value(),
               "rule 12: a block's parent is in the tree and no tail");
  if (sliding()) return;
  PAGODA_CHECK(above.state() == BlockState::kCached, "rule 13: a cached block's parent is cached");
  PAGODA_CHECK(block.refs == 0 || above.refs > 0, "rule 13: a held block's path is held");
  PAGODA_CHECK(above.tier() <= block.tier(), "rule 14: no block is nearer than its parent");
}

}  // namespace pagoda
