// A sequence's blocks in this window: from its match to its end.
#include <algorithm>
#include <limits>

#include "manager/fault.h"
#include "manager/window_block_manager.h"
#include "pools/check.h"

namespace pagoda {
namespace {

// No tree has this epoch.
constexpr uint64_t kNoTree = std::numeric_limits<uint64_t>::max();

}  // namespace

// After a reset, or when its tip was cut out of the tree, a sequence publishes nothing any more.
bool WindowBlockManager::Detached(const SequenceBlocks& blocks) const {
  return blocks.tree_epoch != tree_epoch_ ||
         (!blocks.tip.is_root() && !store_[blocks.tip.block()].in_tree());
}

bool WindowBlockManager::IsPrivateTo(BlockId id) const {
  return store_[id].state() == BlockState::kPrivate && store_[id].refs == 1;
}

// The key of the sequence's block `id`, entry `index` of its table.
BlockKey WindowBlockManager::KeyOf(const Sequence& sequence, BlockId id, uint32_t index,
                                   uint32_t token_count) const {
  BlockKey key{store_.tokens(id).first(token_count), {}};
  const size_t begin = size_t{index} * tokens_per_block().value();
  if (begin < sequence.extras.size()) {
    // Beyond the prompt no token has an extra: the sequence's are padded to whole blocks.
    key.extras = absl::MakeConstSpan(sequence.extras).subspan(begin, token_count);
  }
  return key;
}

// --- The beginning ---

void WindowBlockManager::Begin(Sequence& sequence, const NamespaceKey& name_space,
                               const Match& match, Tail tail, uint32_t table_size) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const auto whole = static_cast<uint32_t>(match.blocks.size());
  blocks.tree_epoch = tree_epoch_;
  blocks.root = blocks.tip = tree_.AcquireRoot(name_space);
  blocks.first = match.first;
  blocks.published = whole;
  blocks.table.reserve(table_size);
  blocks.table.resize(match.first);
  for (uint32_t i = match.first; i < whole; ++i) NoteMatched(match.blocks[i]);
  if (tail != Tail::kNone) NoteMatched(match.source);
  // All are held before the first block is taken: none of them is a victim.
  for (uint32_t i = match.first; i < whole; ++i) Hold(match.blocks[i]);
  if (tail == Tail::kCopy) Hold(match.source);
  if (tail == Tail::kTakeOver) TakeOver(match.source);

  for (uint32_t i = match.first; i < whole; ++i) {
    const BlockId id = match.blocks[i];
    if (store_[id].tier() == Tier::kSecondary) {
      Onboard(id);
    } else if (!context_->copies->idle()) {
      context_->WaitFor(context_->copies->Arrival(options_.index, store_.slot(id)));
    }
    if (store_[id].in_tree()) policy(Tier::kPrimary, id).Touched(id);
    if (!sequence.retention.ranges.empty()) {
      const std::optional<BlockRetention> wish =
          RetentionOf(sequence.retention, sequence.prompt_tokens, i * tokens_per_block().value());
      if (wish.has_value() && store_[id].in_tree()) SetBlockRetention(id, *wish);
    }
    blocks.table.push_back(store_.handle(id));
  }
  if (whole > 0) blocks.tip = NodeRef::Block(match.blocks[whole - 1]);

  if (tail == Tail::kTakeOver) {
    blocks.table.push_back(store_.handle(match.source));
  } else if (tail == Tail::kCopy) {
    if (store_[match.source].in_tree()) {
      policy(store_[match.source].tier(), match.source).Touched(match.source);
    }
    blocks.table.push_back(store_.handle(CopyTail(match.source, match.source_tokens)));
  }
  blocks.canonical.reserve(table_size);
  blocks.canonical.resize(blocks.table.size(), kNoBlock);
  Grow(sequence, table_size, match.tokens);
  if (tail == Tail::kCopy) LetGo(match.source);
}

// A cached leaf becomes its finder's private block; the sequence goes on where the match ends.
void WindowBlockManager::TakeOver(BlockId id) {
  Block& block = store_[id];
  PAGODA_CHECK(block.refs == 0 && block.tier() == Tier::kPrimary && !tree_.has_children(id),
               "rule 8: nobody holds a block that is taken over");
  const SlotRef slot = store_.slot(id);
  LeaveTree(id, RemovalReason::kTakenOver);
  EraseNode(id);
  // A new life in the same slot, with the same tokens: what was released last is taken first.
  const SlotRef taken_slot{Tier::kPrimary, store_.TakeSlot(Tier::kPrimary)};
  const BlockId taken = store_.TakeId(BlockState::kPrivate);
  PAGODA_CHECK(taken == id && taken_slot == slot, "id and slot are taken back at once");
  store_.GiveSlot(taken, slot);
  accounts_.Charge(taken, Tier::kPrimary, context_->tenant);
  ++held_[kPrimary];
}

// A fresh block whose first tokens are those of `source`, which is held.
BlockId WindowBlockManager::CopyTail(BlockId source, uint32_t num_tokens) {
  const BlockId target = TakeBlock(BlockState::kPrivate);
  CountAllocated(1);
  const uint32_t copied =
      num_tokens - (PAGODA_FAULT(PartialCopyTooShort) && num_tokens > 1 ? 1 : 0);
  // The ids of tokens that are named and not computed go along.
  std::copy(store_.tokens(source).begin(), store_.tokens(source).end(),
            store_.tokens(target).begin());
  if (num_tokens == 0) return target;  // A failed copy took what there was to copy.
  context_->WaitFor(context_->copies->Order(options_.index, store_.slot(source),
                                            store_.slot(target), store_.handle(target).ref(),
                                            copied));
  ++counters_.partial_copies;
  return target;
}

// Copies may still read of the block what its sequence will overwrite.
void WindowBlockManager::WaitToWrite(BlockId id) {
  if (context_->copies->idle()) return;
  context_->WaitFor(context_->copies->LastTouch(options_.index, store_.slot(id)));
}

// --- Growing ---

bool WindowBlockManager::MustCopyTail(const Sequence& sequence) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  if (PAGODA_FAULT(BorrowedTailWritten)) return false;
  return blocks.borrows_tail && !IsPrivateTo(blocks.table.back().id);
}

uint32_t WindowBlockManager::BlocksToGrow(const Sequence& sequence, uint32_t table_size) const {
  return table_size - static_cast<uint32_t>(BlocksOf(sequence).table.size()) +
         (MustCopyTail(sequence) ? 1 : 0);
}

void WindowBlockManager::Grow(Sequence& sequence, uint32_t table_size, uint32_t computed_tokens) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  if (blocks.borrows_tail) {
    if (MustCopyTail(sequence)) {
      const BlockId shared = blocks.table.back().id;
      const size_t begin = (blocks.table.size() - 1) * tokens_per_block().value();
      const size_t computed = computed_tokens - std::min<size_t>(computed_tokens, begin);
      blocks.table.back() = store_.handle(CopyTail(shared, static_cast<uint32_t>(computed)));
      Release(shared);
    } else {
      // It had fewer tokens than those who copied it, perhaps, and will write behind its own.
      WaitToWrite(blocks.table.back().id);
    }
    blocks.borrows_tail = false;
  }
  const auto count = table_size - static_cast<uint32_t>(blocks.table.size());
  const uint32_t free = store_.free_slots(Tier::kPrimary);
  if (count > free) recorder().ExpectRemoved(count - free);
  CountAllocated(count);
  for (uint32_t i = 0; i < count; ++i) {
    blocks.table.push_back(store_.handle(TakeBlock(BlockState::kPrivate)));
    blocks.canonical.push_back(kNoBlock);
  }
}

void WindowBlockManager::WriteTokens(Sequence& sequence, uint32_t position,
                                     absl::Span<const TokenId> tokens) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  while (!tokens.empty()) {
    const uint32_t index = tokens_per_block().BlockForToken(position);
    const uint32_t offset = tokens_per_block().OffsetInBlock(position);
    PAGODA_CHECK(index >= blocks.published, "rule 10: a published block is not written");
    const size_t count = std::min<size_t>(tokens.size(), tokens_per_block().value() - offset);
    std::copy_n(tokens.begin(), count, store_.tokens(blocks.table[index].id).begin() + offset);
    tokens.remove_prefix(count);
    position += static_cast<uint32_t>(count);
  }
}

void WindowBlockManager::ReadTokens(const Sequence& sequence, uint32_t begin, uint32_t end,
                                    std::vector<TokenId>* out) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  for (uint32_t i = begin; i < end; ++i) {
    const BlockId id = blocks.table[tokens_per_block().BlockForToken(i)].id;
    out->push_back(store_.tokens(id)[tokens_per_block().OffsetInBlock(i)]);
  }
}

// --- Publishing ---

void WindowBlockManager::Publish(Sequence& sequence) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t full_blocks = tokens_per_block().BlockForToken(sequence.computed_tokens);
  if (full_blocks > blocks.published && !Detached(blocks)) {
    const size_t count = full_blocks - blocks.published;
    recorder().ExpectStored(count, count * tokens_per_block().value());
    while (blocks.published < full_blocks) {
      const uint32_t index = blocks.published;
      if (!PublishBlock(sequence, blocks, index, tokens_per_block().value())) break;
      const BlockId canonical = blocks.canonical[index];
      blocks.tip = NodeRef::Block(canonical != kNoBlock ? canonical : blocks.table[index].id);
      blocks.published = index + 1;
    }
  }
  if (sliding()) Slide(sequence);
}

// Rule 10. Of content that is there already, the block in the tree is canonical; where that has no
// bytes in the primary tier, it gets this sequence's. False where it cannot: then the sequence goes
// on without publishing.
bool WindowBlockManager::PublishBlock(const Sequence& sequence, SequenceBlocks& blocks,
                                      uint32_t index, uint32_t token_count) {
  const BlockId own = blocks.table[index].id;
  const BlockKey key = KeyOf(sequence, own, index, token_count);
  const BlockId existing = tree_.FindChild(blocks.tip, key);
  if (existing == kNoBlock) {
    InsertIntoTree(own, sequence, blocks, index, key);
    return true;
  }
  if (store_[existing].state() == BlockState::kHole ||
      store_[existing].tier() == Tier::kSecondary) {
    // What a fork or a running copy has a part in cannot be given away.
    if (!IsPrivateTo(own) ||
        context_->copies->Arrival(options_.index, store_.slot(own)) != Ticket{}) {
      blocks.tree_epoch = kNoTree;
      return false;
    }
    FillFrom(existing, own, blocks.root);
  }
  Hold(existing);
  blocks.canonical[index] = existing;
  ++counters_.merged_blocks;
  const std::optional<BlockRetention> wish =
      RetentionOf(sequence.retention, sequence.prompt_tokens, index * tokens_per_block().value());
  if (wish.has_value()) SetBlockRetention(existing, *wish);
  return true;
}

// Under the sequence's tip, which it holds.
void WindowBlockManager::InsertIntoTree(BlockId id, const Sequence& sequence,
                                        const SequenceBlocks& blocks, uint32_t index,
                                        const BlockKey& key) {
  Block& block = store_[id];
  block.token_count = static_cast<uint32_t>(key.tokens.size());
  if (key.has_extras()) store_.SetExtras(id, key.extras);
  block.set_state(BlockState::kCached);
  block.set_priority(kDefaultPriority);
  std::optional<BlockRetention> wish;
  if (!sequence.retention.empty()) {
    wish =
        RetentionOf(sequence.retention, sequence.prompt_tokens, index * tokens_per_block().value());
    if (wish.has_value()) block.set_priority(wish->priority);
  }
  tree_.Insert(id, blocks.tip, key);
  if (accounts_.any()) {
    accounts_.Discharge(id, Tier::kPrimary);
    accounts_.Charge(id, Tier::kPrimary, options_.tenants->OwnerOf(tree_.key(blocks.root)));
  }
  policy(Tier::kPrimary, id).Inserted(id, tree_.hash(id));
  RecordStored(id, blocks.root, key);
  if (wish.has_value()) SetBlockRetention(id, *wish);
}

void WindowBlockManager::RecordStored(BlockId id, NodeRef root, const BlockKey& key) {
  NoteContent(id);
  if (lives_.Samples(id)) {
    store_[id].followed = 1;
    lives_.Stored(id, context_->now);
  }
  if (PAGODA_FAULT(SkipStoredEvent)) return;
  const NodeRef parent = tree_.parent(id);
  const Block& block = store_[id];
  recorder().Stored(window(), tree_.key(root), parent.is_root() ? kNoBlock : parent.block(),
                    tree_.hash(parent),
                    {.id = id,
                     .hash = tree_.hash(id),
                     .token_count = block.token_count,
                     .tier = block.tier(),
                     .priority = block.priority()},
                    key, accounts_.owner(id));
}

// The bytes of `own` become those of `canonical`, which has none in the primary tier.
void WindowBlockManager::FillFrom(BlockId canonical, BlockId own, NodeRef root) {
  Block& block = store_[canonical];
  Block& alias = store_[own];
  const SlotRef slot = store_.slot(own);
  PAGODA_CHECK(IsPrivateTo(own), "rule 10: a sequence gives what it alone has");
  alias.set_state(BlockState::kAlias);
  --held_[kPrimary];
  accounts_.Discharge(own, Tier::kPrimary);
  if (block.state() == BlockState::kHole) {
    --holes_;
    block.set_state(BlockState::kCached);
    store_.GiveSlot(canonical, slot);
    accounts_.Charge(canonical, Tier::kPrimary);
    tree_.CountPrimaryChild(canonical);
    policy(Tier::kPrimary, canonical).Inserted(canonical, tree_.hash(canonical));
    block.set_priority(kDefaultPriority);
    RecordStored(canonical, root, store_.key(canonical));
    // As if somebody had held it: Hold takes it out of the candidates again.
    CountUnheld(canonical, Tier::kPrimary, +1);
    policy(Tier::kPrimary, canonical).Released(canonical, block.priority());
    return;
  }
  const bool unheld = block.refs == 0;
  if (unheld && IsCandidate(canonical)) policy(Tier::kSecondary, canonical).Withdrawn(canonical);
  if (block.drains) CountDrained(canonical, -1);
  ChangeTier(canonical, slot);
  if (block.drains) CountDrained(canonical, +1);
  if (unheld) {
    CountUnheld(canonical, Tier::kSecondary, -1);
    CountUnheld(canonical, Tier::kPrimary, +1);
    if (IsCandidate(canonical)) {
      policy(Tier::kPrimary, canonical).Released(canonical, block.priority());
    }
  } else {
    --held_[kSecondary];
    ++held_[kPrimary];
    if (block.pinned) {
      --pinned_[kSecondary];
      ++pinned_[kPrimary];
    }
  }
}

// The last block in part computed: cached with what it has. Where the tree has that already, the
// sequence holds the canonical one until it lets go of everything, which makes it as recent as the
// rest. What others write or read besides is not published in part.
void WindowBlockManager::PublishTail(Sequence& sequence) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t token_count = tokens_per_block().OffsetInBlock(sequence.computed_tokens);
  // After a failed copy a sequence can have more published than computed blocks.
  const uint32_t full_blocks = tokens_per_block().BlockForToken(sequence.computed_tokens);
  if (token_count == 0 || full_blocks != blocks.published) return;
  const BlockId own = blocks.table[blocks.published].id;
  if (blocks.borrows_tail && !IsPrivateTo(own)) return;
  PublishBlock(sequence, blocks, blocks.published, token_count);
}

void WindowBlockManager::End(Sequence& sequence, ComputedTail tail) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  Publish(sequence);
  if (tail == ComputedTail::kPublish && !Detached(blocks) && !PAGODA_FAULT(TailNotPublished)) {
    PublishTail(sequence);
  }
  // Tail first: of one sequence's blocks the last ones are the oldest.
  for (size_t i = blocks.table.size(); i-- > blocks.first;) {
    Release(blocks.table[i].id);
    if (blocks.canonical[i] != kNoBlock) Release(blocks.canonical[i]);
  }
  tree_.ReleaseRoot(blocks.root);
  blocks = {};
}

// Rule 9, but for the last published block, under which the next one will hang.
void WindowBlockManager::Slide(Sequence& sequence) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint64_t end = uint64_t{sequence.computed_tokens} + 1 +
                       (PAGODA_FAULT(SlideTooEarly) ? 1 : 0) - (PAGODA_FAULT(SlideTooLate) ? 1 : 0);
  const bool detached = Detached(blocks);
  if (detached) blocks.tree_epoch = kNoTree;  // Its tip may go, and come back as another block.
  const auto passed = [&](uint32_t index) {
    const uint64_t last_token_end = (uint64_t{index} + 1) * tokens_per_block().value();
    return last_token_end + window().value() <= end && (detached || index + 1 < blocks.published);
  };
  for (; blocks.first < blocks.table.size() && passed(blocks.first); ++blocks.first) {
    Release(blocks.table[blocks.first].id);
    blocks.table[blocks.first] = {};
    BlockId& canonical = blocks.canonical[blocks.first];
    if (canonical != kNoBlock) Release(canonical);
    canonical = kNoBlock;
  }
}

// --- Forks and cuts ---

void WindowBlockManager::Fork(const Sequence& parent, Sequence& child) {
  const SequenceBlocks& from = BlocksOf(parent);
  SequenceBlocks& to = BlocksOf(child);
  const uint32_t shared = tokens_per_block().BlocksFor(parent.computed_tokens);
  to = from;
  to.table.resize(shared);
  to.canonical.resize(shared);
  to.borrows_tail = tokens_per_block().OffsetInBlock(parent.computed_tokens) != 0;
  if (to.published > tokens_per_block().BlockForToken(parent.computed_tokens)) {
    to.published = tokens_per_block().BlockForToken(parent.computed_tokens);
    to.tree_epoch = kNoTree;  // A failed copy took the end of the parent's path.
  }
  tree_.AcquireRoot(tree_.key(from.root));
  for (uint32_t i = to.first; i < shared; ++i) {
    PAGODA_CHECK(store_[to.table[i].id].refs > 0, "a running sequence holds its blocks");
    if (PAGODA_FAULT(ForkWithoutHolding)) continue;
    ++store_[to.table[i].id].refs;
    if (to.canonical[i] != kNoBlock) ++store_[to.canonical[i]].refs;
  }
}

bool WindowBlockManager::CanTruncate(const Sequence& sequence, uint32_t tokens) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  if (blocks.first == 0) return true;
  const uint32_t whole = tokens_per_block().BlockForToken(tokens);
  const uint64_t reach = uint64_t{window().value()} - 1;
  uint32_t needed = tokens_per_block().BlockForToken(tokens > reach ? tokens - reach : 0);
  if (whole > 0) needed = std::min(needed, whole - 1);
  return needed >= blocks.first;
}

bool WindowBlockManager::MustCopyCut(const Sequence& sequence, uint32_t tokens) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t index = tokens_per_block().BlockForToken(tokens);
  if (tokens_per_block().OffsetInBlock(tokens) == 0 || index >= blocks.table.size()) return false;
  // What others read of the block lies before their own computed tokens.
  if (tokens >= std::max(sequence.computed_tokens, sequence.forked_tokens) &&
      index >= blocks.published) {
    return false;
  }
  if (blocks.borrows_tail && index + 1 == blocks.table.size()) return false;  // Copied by Grow.
  if (PAGODA_FAULT(SharedCutWritten)) return false;
  const BlockId id = blocks.table[index].id;
  const Block& block = store_[id];
  if (block.state() == BlockState::kCached) return block.refs > 1 || tree_.has_children(id);
  return !IsPrivateTo(id);
}

uint32_t WindowBlockManager::Truncate(Sequence& sequence, uint32_t tokens) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t index = tokens_per_block().BlockForToken(tokens);
  const uint32_t offset = tokens_per_block().OffsetInBlock(tokens);
  const auto size = static_cast<uint32_t>(blocks.table.size());
  const uint32_t keep = std::min(size, tokens_per_block().BlocksFor(tokens));
  const bool cuts = offset != 0 && index < size;
  const bool copies = MustCopyCut(sequence, tokens);
  const bool detached = Detached(blocks);
  if (detached) blocks.tree_epoch = kNoTree;
  // The tip moves up while the path is still held.
  for (; blocks.published > index; --blocks.published) {
    if (!detached) blocks.tip = tree_.parent(blocks.tip.block());
  }
  if (size > keep) blocks.borrows_tail = false;
  if (copies) {
    const BlockId shared = blocks.table[index].id;
    const BlockId canonical = blocks.canonical[index];
    blocks.table[index] = store_.handle(CopyTail(shared, offset));
    blocks.canonical[index] = kNoBlock;
    blocks.borrows_tail = false;
    Release(shared);
    if (canonical != kNoBlock) Release(canonical);
  } else if (cuts) {
    const BlockId own = blocks.table[index].id;
    if (blocks.canonical[index] != kNoBlock) {
      Release(blocks.canonical[index]);
      blocks.canonical[index] = kNoBlock;
    }
    if (tokens < sequence.computed_tokens) WaitToWrite(own);
    Block& block = store_[own];
    if (block.state() == BlockState::kCached && !blocks.borrows_tail) {
      // Only this sequence has it, and it goes on in it.
      recorder().Removed(window(), RemovalReason::kTruncated, own, tree_.hash(own),
                         accounts_.owner(own));
      CountRemoval(own, RemovalReason::kTruncated);
      policy(Tier::kPrimary, own).Removed(own, tree_.hash(own));
      NoteNothing(store_.slot(own));
      if (block.timed) expiries_.Forget(own);
      block.timed = 0;
      tree_.Erase(own);
      block.set_state(BlockState::kPrivate);
      store_.SetExtras(own, {});
    }
  }
  for (size_t i = size; i-- > keep;) {
    Release(blocks.table[i].id);
    if (blocks.canonical[i] != kNoBlock) Release(blocks.canonical[i]);
  }
  blocks.table.resize(keep);
  blocks.canonical.resize(keep);
  return copies ? index : keep;
}

std::optional<uint32_t> WindowBlockManager::FindEntry(const Sequence& sequence,
                                                      BlockId block) const {
  const std::vector<BlockHandle>& table = BlocksOf(sequence).table;
  for (uint32_t i = BlocksOf(sequence).first; i < table.size(); ++i) {
    if (table[i].id == block) return i;
  }
  return std::nullopt;
}

}  // namespace pagoda
