#include "manager/window/window_sequences.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "manager/tiers/tier_residency_runs.h"

namespace pagoda {
namespace {

// A table that shrank keeps memory for twice its entries and this many more.
constexpr size_t kSpareEntries = 64;

}  // namespace

WindowSequences::WindowSequences(const WindowFloor& floor, WindowCounts& counts, BlockHolds& holds,
                                 CachedBlocks& cached)
    : WindowPart(floor), counts_(counts), holds_(holds), cached_(cached) {}

// A sequence publishes nothing any more after a reset, or after its tip was cut out of the tree.
bool WindowSequences::Detached(const SequenceBlocks& blocks) const {
  return blocks.tree_epoch != tree_.epoch() ||
         (!blocks.tip.is_root() && !store_[blocks.tip.block()].in_tree());
}

bool WindowSequences::IsPrivateTo(BlockId id) const {
  return store_[id].state() == BlockState::kPrivate && store_[id].refs == 1;
}

// --- The beginning ---

void WindowSequences::Begin(OperationScope& op, Sequence& sequence, const NamespaceKey& name_space,
                            const PrefixMatch& match, MatchTail tail, uint32_t table_size) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const auto whole = static_cast<uint32_t>(match.blocks.size());
  blocks.tree_epoch = tree_.epoch();
  blocks.root = blocks.tip = tree_.AcquireRoot(name_space);
  blocks.first = match.first;
  blocks.published = whole;
  blocks.table.reserve(table_size);
  blocks.table.resize(match.first);
  counts_.CountMatch(op, sequence, match, tail, table_size - whole);
  // All matched blocks are held before the first block is taken, so none of them is a victim.
  for (uint32_t i = match.first; i < whole; ++i) holds_.Hold(op, match.blocks[i], sequence.tenant);
  if (tail == MatchTail::kCopy) holds_.Hold(op, match.source, sequence.tenant);
  if (tail == MatchTail::kTakeOver) {
    const BlockRetention retention = holds_.RetentionAt(match.source);
    const bool is_kept =
        retention != BlockRetention{} || !holds_.MayLower(match.source, sequence.tenant);
    if (is_kept) blocks.taken_over = {whole, retention};
    TakeOver(op, match.source);
  }
  // Holding matched blocks of the default tenant can exceed the tenant's quota.
  residency_.GiveUpAboveQuota(op, sequence.tenant);

  const bool is_use = !sequence.uncounted;  // Whether the matched blocks count as used.
  const bool has_wishes = !sequence.retention().ranges.empty();
  for (uint32_t i = match.first; i < whole; ++i) {
    const BlockId id = match.blocks[i];
    if (store_[id].tier() != kPrimaryTier) {
      residency_.moves().Onboard(op, id);
    } else {
      residency_.copies().WaitToRead(op, id);
    }
    if (is_use && store_[id].in_tree()) residency_.Touch(op, id);
    if (has_wishes) {
      const std::optional<BlockRetention> wish =
          RetentionOf(sequence.retention(), sequence.prompt_tokens, i * tokens_per_block().value());
      if (wish.has_value() && store_[id].in_tree())
        holds_.ApplyRetention(op, id, *wish, sequence.tenant);
    }
    blocks.table.push_back(store_.handle(id));
    residency_.copies().AddReader(id, sequence.key);
  }
  if (whole > 0) blocks.tip = NodeRef::Block(match.blocks[whole - 1]);

  if (tail == MatchTail::kTakeOver) {
    blocks.table.push_back(store_.handle(match.source));
  } else if (tail == MatchTail::kCopy) {
    if (is_use && store_[match.source].in_tree()) residency_.Touch(op, match.source);
    blocks.table.push_back(store_.handle(CopyTail(op, match.source, match.source_tokens)));
    residency_.copies().AddReader(blocks.table.back().id, sequence.key);
  }
  blocks.canonical.reserve(table_size);
  blocks.canonical.resize(blocks.table.size(), kNoBlock);
  Grow(op, sequence, table_size, match.tokens);
  if (tail == MatchTail::kCopy) holds_.EndHold(op, match.source, sequence.tenant);
}

// Makes a cached leaf the private block of a sequence, which continues at the end of the match.
void WindowSequences::TakeOver(OperationScope& op, BlockId id) {
  const Block& block = store_[id];
  PAGODA_CHECK(block.refs == 0 && block.tier() == kPrimaryTier && !tree_.has_children(id),
               "rule 8: nothing holds a block that is taken over");
  cached_.LeaveTree(op, id, RemovalReason::kTakenOver, CachedBlocks::Remains::kSlot);
  ++counts_.counters().taken_over_blocks;
  residency_.Renew(op, id);
}

// A fresh block that begins with the first tokens of `source`. REQUIRES: `source` is held.
BlockId WindowSequences::CopyTail(OperationScope& op, BlockId source, uint32_t num_tokens) {
  const BlockId target = residency_.Take(op, BlockState::kPrivate);
  counts_.Allocated(op, 1);
  // The ids of tokens that are named and not computed are copied too.
  std::copy(store_.tokens(source).begin(), store_.tokens(source).end(),
            store_.tokens(target).begin());
  if (num_tokens == 0) return target;  // A failed copy took the bytes that were to be copied.
  residency_.copies().CopyTokens(op, source, target, num_tokens);
  ++counts_.counters().partial_copies;
  return target;
}

// --- Growing ---

bool WindowSequences::MustCopyTail(const Sequence& sequence) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  return blocks.borrows_tail && !IsPrivateTo(blocks.table.back().id);
}

uint32_t WindowSequences::BlocksToGrow(const Sequence& sequence, uint32_t table_size) const {
  return table_size - static_cast<uint32_t>(BlocksOf(sequence).table.size()) +
         (MustCopyTail(sequence) ? 1 : 0);
}

void WindowSequences::Grow(OperationScope& op, Sequence& sequence, uint32_t table_size,
                           uint32_t computed_tokens) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  if (blocks.borrows_tail) {
    if (MustCopyTail(sequence)) {
      const BlockId shared = blocks.table.back().id;
      const size_t begin = (blocks.table.size() - 1) * tokens_per_block().value();
      const size_t computed = computed_tokens - std::min<size_t>(computed_tokens, begin);
      const BlockId copy = CopyTail(op, shared, static_cast<uint32_t>(computed));
      ReleaseEntry(op, sequence, static_cast<uint32_t>(blocks.table.size()) - 1);
      blocks.table.back() = store_.handle(copy);
      residency_.copies().AddReader(copy, sequence.key);
    } else {
      // A running copy of the tail can still read tokens behind this sequence's own, where the
      // sequence will write.
      residency_.copies().WaitToWrite(op, blocks.table.back().id);
    }
    blocks.borrows_tail = false;
  }
  const auto count = table_size - static_cast<uint32_t>(blocks.table.size());
  const uint32_t free = residency_.slots().free_slots(kPrimaryTier);
  if (count > free) recorder().ExpectRemoved(count - free);
  counts_.Allocated(op, count);
  blocks.table.resize(table_size);
  blocks.canonical.resize(table_size, kNoBlock);
  cached_.Take(op, BlockState::kPrivate, absl::MakeSpan(blocks.table).last(count));
}

void WindowSequences::WriteKeys(Sequence& sequence, uint32_t position,
                                absl::Span<const ClientKey> keys) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t first = tokens_per_block().BlockForToken(position);
  PAGODA_CHECK(keys.empty() || first >= blocks.published,
               "rule 10: a published block is not written");
  for (uint32_t i = 0; i < keys.size(); ++i) {
    store_.SetClientKey(blocks.table[first + i].id, keys[i]);
  }
}

void WindowSequences::ReadTokens(const Sequence& sequence, uint32_t begin, uint32_t end,
                                 SequenceContent* out) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t step = sequence.keyed ? tokens_per_block().value() : 1;
  for (uint32_t i = begin; i < end; i += step) {
    const BlockId id = blocks.table[tokens_per_block().BlockForToken(i)].id;
    if (sequence.keyed) {
      out->keys.push_back(store_.client_key(id));
    } else {
      out->tokens.push_back(store_.tokens(id)[tokens_per_block().OffsetInBlock(i)]);
    }
  }
}

// --- Releasing ---

// Releases an entry of the sequence's table.
void WindowSequences::ReleaseEntry(OperationScope& op, const Sequence& sequence, uint32_t index) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const BlockId own = blocks.table[index].id;
  residency_.copies().RemoveReader(own, sequence.key);
  const BlockId canonical = blocks.canonical[index];
  holds_.Release(op, own, sequence.tenant);
  if (canonical != kNoBlock) holds_.Release(op, canonical, sequence.tenant);
}

// Releases the sequence's blocks, tail first: the last blocks of a sequence become the oldest.
void WindowSequences::ReleaseAll(OperationScope& op, const Sequence& sequence) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  if (sliding()) {
    for (uint32_t i = blocks.first; i < blocks.table.size(); ++i)
      holds_.passed().Stop(blocks.InTree(i));
  }
  const bool reads_copies = !residency_.copies().idle();
  const bool has_parents = op.deferring == nullptr && residency_.CanEndHoldsOfParents();
  for (auto i = static_cast<uint32_t>(blocks.table.size()); i-- > blocks.first;) {
    if (reads_copies) {
      ReleaseEntry(op, sequence, i);
      continue;
    }
    const BlockId own = blocks.table[i].id;
    const Block& block = store_[own];
    const bool nobody_follows = has_parents && !block.timed && !block.followed;
    if (!nobody_follows || !residency_.EndHoldOfParent(own, sequence.tenant)) {
      holds_.Release(op, own, sequence.tenant);
    } else {
      counts_.ReleasedUnfollowed(own, tree_.hash(own));
    }
    if (blocks.canonical[i] != kNoBlock) holds_.Release(op, blocks.canonical[i], sequence.tenant);
  }
}

void WindowSequences::End(OperationScope& op, Sequence& sequence, ComputedTail tail) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  Publish(op, sequence);
  if (tail == ComputedTail::kPublish && !Detached(blocks)) PublishTail(op, sequence);
  ReleaseAll(op, sequence);
  tree_.ReleaseRoot(blocks.root);
  blocks = {};
}

void WindowSequences::HoldWritable(const Sequence& sequence, Session& session) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  // A sequence computes published blocks again if a failed copy took their bytes.
  const uint32_t computed = tokens_per_block().BlockForToken(sequence.computed_tokens);
  uint32_t end = static_cast<uint32_t>(blocks.table.size());
  if (MustCopyTail(sequence)) --end;  // Another sequence's tail.
  for (uint32_t i = std::max(blocks.first, std::min(blocks.published, computed)); i < end; ++i) {
    const BlockId id = blocks.table[i].id;
    if (store_[id].state() == BlockState::kPrivate)
      holds_.HoldUntilStep(id, sequence.tenant, session);
  }
}

// --- Forks and truncations ---

void WindowSequences::Fork(const Sequence& parent, Sequence& child) {
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

bool WindowSequences::CanTruncate(const Sequence& sequence, uint32_t tokens) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  return blocks.first == 0 || options_.FirstNeeded(tokens) >= blocks.first;
}

bool WindowSequences::MustCopyCut(const Sequence& sequence, uint32_t tokens) const {
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
  if (cached_.IsCutOff(id)) return true;
  if (block.state() == BlockState::kCached) return block.refs > 1 || tree_.has_children(id);
  return !IsPrivateTo(id);
}

uint32_t WindowSequences::Truncate(OperationScope& op, Sequence& sequence, uint32_t tokens) {
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
      holds_.Release(op, blocks.canonical[index], sequence.tenant);
      blocks.canonical[index] = kNoBlock;
    }
    if (tokens < sequence.computed_tokens) residency_.copies().WaitToWrite(op, own);
    if (store_[own].state() == BlockState::kCached && !blocks.borrows_tail) {
      // Only this sequence has the block, and continues in it.
      cached_.LeaveTree(op, own, RemovalReason::kTruncated, CachedBlocks::Remains::kSlot);
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

std::optional<uint32_t> WindowSequences::FindEntry(const Sequence& sequence, BlockId block) const {
  const std::vector<BlockHandle>& table = BlocksOf(sequence).table;
  for (uint32_t i = BlocksOf(sequence).first; i < table.size(); ++i) {
    if (table[i].id == block) return i;
  }
  return std::nullopt;
}

void WindowSequences::CheckSequence(const Sequence& sequence) const {
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
    PAGODA_CHECK(block.tier() == kPrimaryTier, "rule 3: a sequence's blocks do not move");
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

}  // namespace pagoda
