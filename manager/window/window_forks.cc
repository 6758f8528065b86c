// The part of WindowBlockManager that forks and truncates sequences.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "manager/window/window_block_manager.h"

namespace pagoda {
namespace {

// A table that shrank keeps memory for twice its entries and this many more.
constexpr size_t kSpareEntries = 64;

}  // namespace

void WindowBlockManager::Fork(const Sequence& parent, Sequence& child) {
  const SequenceBlocks& from = BlocksOf(parent);
  SequenceBlocks& to = BlocksOf(child);
  const uint32_t shared = tokens_per_block().BlocksFor(parent.computed_tokens);
  to = {.first = from.first,
        .published = from.published,
        .branch = from.branch,
        .root = from.root,
        .tip = from.tip,
        .tree_epoch = from.tree_epoch,
        .followed = from.followed};
  to.taken_over = from.taken_over;
  // Reserves only for the shared entries, whatever the parent's table has reserved.
  to.table.assign(from.table.begin(), from.table.begin() + shared);
  to.canonical.assign(from.canonical.begin(), from.canonical.begin() + shared);
  to.borrows_tail = tokens_per_block().OffsetInBlock(parent.computed_tokens) != 0;
  if (to.taken_over.has_value() && to.taken_over->index >= shared) to.taken_over.reset();
  if (to.published > tokens_per_block().BlockForToken(parent.computed_tokens)) {
    to.published = tokens_per_block().BlockForToken(parent.computed_tokens);
    to.tree_epoch = SequenceBlocks::kNoTree;  // A failed copy took the end of the parent's path.
  }
  tree_.ShareRoot(from.root);
  for (uint32_t i = to.first; i < shared; ++i) {
    PAGODA_CHECK(store_[to.table[i].id].refs > 0, "a running sequence holds its blocks");
    residency_.copies().AddReader(to.table[i].id, child.key);
    residency_.HoldAgain(to.table[i].id, child.tenant);
    if (to.canonical[i] != kNoBlock) residency_.HoldAgain(to.canonical[i], child.tenant);
  }
}

bool WindowBlockManager::CanTruncate(const Sequence& sequence, uint32_t tokens) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  return blocks.first == 0 || FirstNeeded(tokens) >= blocks.first;
}

bool WindowBlockManager::MustCopyCut(const Sequence& sequence, uint32_t tokens) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t index = tokens_per_block().BlockForToken(tokens);
  if (tokens_per_block().OffsetInBlock(tokens) == 0 || index >= blocks.table.size()) return false;
  // Others read only tokens of the block before their own computed_tokens.
  if (tokens >= std::max(sequence.computed_tokens, sequence.forked_tokens) &&
      index >= blocks.published) {
    return false;
  }
  if (blocks.borrows_tail && index + 1 == blocks.table.size()) return false;  // Copied by Grow.
  const BlockId id = blocks.table[index].id;
  const Block& block = store_[id];
  // A cut-off block can have any number of blocks below it.
  if (IsCutOff(id)) return true;
  if (block.state() == BlockState::kCached) return block.refs > 1 || tree_.has_children(id);
  return !IsPrivateTo(id);
}

uint32_t WindowBlockManager::Truncate(OperationScope& op, Sequence& sequence, uint32_t tokens) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t index = tokens_per_block().BlockForToken(tokens);
  const uint32_t offset = tokens_per_block().OffsetInBlock(tokens);
  const auto size = static_cast<uint32_t>(blocks.table.size());
  const uint32_t keep = std::min(size, tokens_per_block().BlocksFor(tokens));
  const bool cuts = offset != 0 && index < size;
  const bool copies = MustCopyCut(sequence, tokens);
  const bool detached = Detached(blocks);
  if (detached) blocks.tree_epoch = SequenceBlocks::kNoTree;
  // The tip moves up while the path is still held.
  for (; blocks.published > index; --blocks.published) {
    if (!detached) blocks.tip = tree_.parent(blocks.tip.block());
  }
  if (size > keep) blocks.borrows_tail = false;
  if (copies) {
    const BlockId copy = CopyTail(op, blocks.table[index].id, offset);
    ReleaseEntry(op, sequence, index);
    blocks.table[index] = store_.handle(copy);
    blocks.canonical[index] = kNoBlock;
    blocks.borrows_tail = false;
    residency_.copies().AddReader(copy, sequence.key);
  } else if (cuts) {
    const BlockId own = blocks.table[index].id;
    if (blocks.canonical[index] != kNoBlock) {
      Release(op, blocks.canonical[index], sequence.tenant);
      blocks.canonical[index] = kNoBlock;
    }
    if (tokens < sequence.computed_tokens) residency_.copies().WaitToWrite(op, own);
    if (store_[own].state() == BlockState::kCached && !blocks.borrows_tail) {
      // Only this sequence has the block, and continues in it.
      LeaveTree(op, own, RemovalReason::kTruncated, Remains::kSlot);
      store_.SetExtras(own, {});
    }
  }
  for (uint32_t i = size; i-- > keep;) ReleaseEntry(op, sequence, i);
  if (blocks.taken_over.has_value() && blocks.taken_over->index >= keep) blocks.taken_over.reset();
  blocks.table.resize(keep);
  blocks.canonical.resize(keep);
  // A sequence is charged for its present entries.
  if (blocks.table.capacity() > 2 * size_t{keep} + kSpareEntries) {
    blocks.table.shrink_to_fit();
    blocks.canonical.shrink_to_fit();
  }
  return copies ? index : keep;
}

}  // namespace pagoda
