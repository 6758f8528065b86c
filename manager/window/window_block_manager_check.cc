// The invariants of WindowBlockManager, checked from scratch.
#include <iterator>
#include <vector>

#include "base/check.h"
#include "manager/window/window_block_manager.h"

namespace pagoda {

void WindowBlockManager::CheckSequence(const Sequence& sequence) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  PAGODA_CHECK(blocks.table.size() == tokens_per_block().BlocksFor(sequence.reserved_tokens) &&
                   blocks.canonical.size() == blocks.table.size(),
               "a sequence has entries for its reserved tokens");
  PAGODA_CHECK(blocks.first <= blocks.table.size() && (sliding() || blocks.first == 0),
               "only a sliding window passes blocks");
  const bool detached = Detached(blocks);
  for (uint32_t i = 0; i < blocks.table.size(); ++i) {
    const BlockHandle& handle = blocks.table[i];
    if (i < blocks.first) {
      PAGODA_CHECK(handle == BlockHandle{} && blocks.canonical[i] == kNoBlock,
                   "rule 9: blocks that the window has passed are released");
      continue;
    }
    PAGODA_CHECK(store_.handle(handle.id) == handle, "rule 10: a block table in use is stable");
    const Block& block = store_[handle.id];
    PAGODA_CHECK(block.tier() == Tier::kPrimary, "rule 3: a sequence's blocks do not move");
    PAGODA_CHECK(residency_.copies().KnowsReader(handle.id, sequence.key),
                 "a copy knows the tables that have its target");
    const BlockId canonical = blocks.canonical[i];
    PAGODA_CHECK(block.state() != BlockState::kAlias ||
                     (canonical != kNoBlock && store_.slot(canonical).slot == block.slot),
                 "an alias has its bytes in the canonical block's slot");
    if (detached || i >= blocks.published) continue;
    const BlockId node = canonical != kNoBlock ? canonical : handle.id;
    PAGODA_CHECK(store_[node].state() == BlockState::kCached, "a published block is in the tree");
    PAGODA_CHECK(i + 1 < blocks.published || blocks.tip == NodeRef::Block(node),
                 "the tip is the last published block");
  }
  PAGODA_CHECK(detached || blocks.published > 0 || blocks.tip == blocks.root,
               "without published blocks the tip is the root");
}

// The invariants of one block, and of the pins.
struct WindowBlockManager::Checker {
  const WindowBlockManager& window;

  void CheckPins() const;
  void CheckBlock(BlockId id, size_t num_holders) const;
  // REQUIRES: the block is in the tree.
  void CheckPlaceInTree(BlockId id) const;
};

void WindowBlockManager::CheckInvariants(const Holders& holders) const {
  residency_.CheckInvariants(holders);
  const Checker checker{*this};
  checker.CheckPins();
  uint32_t free_ids = 0, holes = 0, cached = 0;
  std::vector<uint32_t> children(store_.num_ids()), primary_children(store_.num_ids());
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    checker.CheckBlock(id, holders[i].size());
    if (block.state() == BlockState::kFree) ++free_ids;
    if (block.state() == BlockState::kHole) ++holes;
    if (block.state() == BlockState::kCached && !IsCutOff(id)) ++cached;
    if (!block.in_tree()) continue;
    checker.CheckPlaceInTree(id);
    const NodeRef parent = tree_.parent(id);
    if (parent.is_root()) continue;
    ++children[parent.block().value()];
    if (block.state() == BlockState::kCached && block.tier() == Tier::kPrimary) {
      ++primary_children[parent.block().value()];
    }
  }
  PAGODA_CHECK(holes == holes_, "the holes are counted");
  PAGODA_CHECK(cached == cached_blocks_, "the cached blocks are counted");
  PAGODA_CHECK(free_ids == store_.free_ids() && holes <= options_.max_holes,
               "rule 4: an id is free or in use");
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    if (!store_[id].in_tree()) continue;
    PAGODA_CHECK(tree_.has_children(id) == (children[i] != 0) &&
                     tree_.primary_children(id) == primary_children[i],
                 "a node counts its children");
  }
}

void WindowBlockManager::Checker::CheckPins() const {
  std::vector<uint32_t> tenant_pinned(window.tenant_pinned_.size());
  for (auto it = window.pins_.begin(); it != window.pins_.end(); ++it) {
    const bool first = it == window.pins_.begin() || std::prev(it)->block != it->block ||
                       std::prev(it)->tenant != it->tenant;
    if (first) ++tenant_pinned[it->tenant.value()];
  }
  PAGODA_CHECK(tenant_pinned == window.tenant_pinned_,
               "rule 15: a tenant's pinned blocks are counted");
}

void WindowBlockManager::Checker::CheckBlock(BlockId id, size_t num_holders) const {
  const Block& block = window.store_[id];
  const auto pin = window.FirstPin(id, kDefaultTenant);
  const bool is_pinned = pin != window.pins_.end() && pin->block == id;
  PAGODA_CHECK(!block.pinned || block.state() == BlockState::kCached,
               "rule 15: a pin ends before its prefix leaves the tree");
  PAGODA_CHECK((block.state() == BlockState::kRaw ? 1 : block.refs) == num_holders,
               "a block's references are its holders");
  PAGODA_CHECK(static_cast<bool>(block.pinned) == is_pinned &&
                   static_cast<bool>(block.timed) == window.expiries_.has_duration(id),
               "a block is marked if it has state beside it");
  PAGODA_CHECK(!OwnsSlot(block.state()) || block.refs > 0 || block.state() == BlockState::kCached,
               "a block that nothing holds is free, cached or a hole");
  switch (block.state()) {
    case BlockState::kFree:
      PAGODA_CHECK(block.refs == 0, "rule 4: nothing holds a free block");
      break;
    case BlockState::kAlias:
      PAGODA_CHECK(block.refs > 0, "an alias is held");
      break;
    case BlockState::kRaw:
    case BlockState::kPrivate:
      PAGODA_CHECK(block.tier() == Tier::kPrimary || block.deferred,
                   "a sequence writes in the primary tier");
      break;
    case BlockState::kHole:
      PAGODA_CHECK(window.sliding() && block.refs == 0 && window.tree_.has_children(id),
                   "a hole is in a sliding window, has children and no holder");
      break;
    case BlockState::kCached:
      break;
  }
}

void WindowBlockManager::Checker::CheckPlaceInTree(BlockId id) const {
  const Block& block = window.store_[id];
  const NodeRef parent = window.tree_.parent(id);
  PAGODA_CHECK(window.tree_.FindChild(parent, window.store_.key(id)) == id,
               "rule 12: a cached block is found by its content");
  PAGODA_CHECK(window.tree_.hash(id) == HashBlock(window.tree_.hash(parent), window.store_.key(id)),
               "rule 12: a block has the hash of its content");
  PAGODA_CHECK(window.tree_.end_token(id) == window.tree_.end_token(parent) + block.token_count,
               "a block ends as many tokens after its parent as it holds");
  PAGODA_CHECK(!window.IsCutOff(id) || (id.value() >= window.next_cut_off_ && !block.pinned),
               "a cut-off block is not pinned, and leaves later");
  if (parent.is_root()) return;
  const Block& above = window.store_[parent.block()];
  PAGODA_CHECK(above.tree == block.tree, "a tree is cut off as a whole");
  PAGODA_CHECK(above.in_tree() && above.token_count == window.tokens_per_block().value(),
               "rule 12: a block's parent is in the tree and no tail");
  if (window.sliding()) return;
  PAGODA_CHECK(above.state() == BlockState::kCached, "rule 13: a cached block's parent is cached");
  PAGODA_CHECK(block.refs == 0 || above.refs > 0, "rule 13: a held block's path is held");
  PAGODA_CHECK(above.tier() <= block.tier(), "rule 14: no block is nearer than its parent");
}

std::vector<TreeEntry> WindowBlockManager::DumpTree() const {
  std::vector<TreeEntry> entries;
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    if (block.state() != BlockState::kCached || IsCutOff(id)) continue;
    const NodeRef parent = tree_.parent(id);
    const BlockKey key = store_.key(id);
    entries.push_back({.id = id,
                       .hash = tree_.hash(id),
                       .parent = parent.is_root() ? kNoBlock : parent.block(),
                       .name_space = tree_.key(tree_.RootOf(id)),
                       .tokens = {key.tokens.begin(), key.tokens.end()},
                       .extras = {key.extras.begin(), key.extras.end()},
                       .tier = block.tier(),
                       .priority = block.priority(),
                       .lower = residency_.slots().LowerTiers(id)});
  }
  return entries;
}

}  // namespace pagoda
