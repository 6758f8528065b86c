// A sequence's blocks in this window: from its match to its end.
#include <algorithm>

#include "manager/fault.h"
#include "manager/window_block_manager.h"
#include "pools/check.h"

namespace pagoda {

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
  key.extras = sequence.extras.OfBlock(size_t{index} * tokens_per_block().value(), token_count);
  return key;
}

// A sequence reads the block's bytes by its table from now on.
void WindowBlockManager::AddReader(const Sequence& sequence, BlockId id) {
  if (context_->copies->idle()) return;
  context_->copies->AddReader(options_.index, store_.slot(id), sequence.key);
}

// An entry of the sequence's table goes.
void WindowBlockManager::ReleaseEntry(const Sequence& sequence, uint32_t index) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const BlockId own = blocks.table[index].id;
  if (!context_->copies->idle()) {
    context_->copies->RemoveReader(options_.index, store_.slot(own), sequence.key);
  }
  const BlockId canonical = blocks.canonical[index];
  Release(own, sequence.tenant);
  if (canonical != kNoBlock) Release(canonical, sequence.tenant);
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
  for (uint32_t i = match.first; i < whole; ++i) Hold(match.blocks[i], sequence.tenant);
  if (tail == Tail::kCopy) Hold(match.source, sequence.tenant);
  if (tail == Tail::kTakeOver) {
    const BlockRetention retention = RetentionAt(match.source);
    if (retention != BlockRetention{} && !PAGODA_FAULT(RetentionDropped)) {
      blocks.taken_over = {whole, retention};
    }
    TakeOver(match.source);
  }
  // What matched of the commons is more than the tenant had.
  while (accounts_.AboveQuota(Tier::kPrimary, sequence.tenant)) MakeRoom(sequence.tenant);

  for (uint32_t i = match.first; i < whole; ++i) {
    const BlockId id = match.blocks[i];
    if (store_[id].tier() == Tier::kSecondary) {
      Onboard(id);
    } else if (!context_->copies->idle()) {
      context_->WaitFor(context_->copies->Arrival(options_.index, store_.slot(id)));
    }
    if (store_[id].in_tree()) policy(Tier::kPrimary, id).Touched(id);
    if (!sequence.retention().ranges.empty()) {
      const std::optional<BlockRetention> wish =
          RetentionOf(sequence.retention(), sequence.prompt_tokens, i * tokens_per_block().value());
      if (wish.has_value() && store_[id].in_tree()) SetBlockRetention(id, *wish);
    }
    blocks.table.push_back(store_.handle(id));
    AddReader(sequence, id);
  }
  if (whole > 0) blocks.tip = NodeRef::Block(match.blocks[whole - 1]);

  if (tail == Tail::kTakeOver) {
    blocks.table.push_back(store_.handle(match.source));
  } else if (tail == Tail::kCopy) {
    if (store_[match.source].in_tree()) {
      policy(store_[match.source].tier(), match.source).Touched(match.source);
    }
    blocks.table.push_back(store_.handle(CopyTail(match.source, match.source_tokens)));
    AddReader(sequence, blocks.table.back().id);
  }
  blocks.canonical.reserve(table_size);
  blocks.canonical.resize(blocks.table.size(), kNoBlock);
  Grow(sequence, table_size, match.tokens);
  if (tail == Tail::kCopy) LetGo(match.source, sequence.tenant);
}

// A cached leaf becomes its finder's private block; the sequence goes on where the match ends.
void WindowBlockManager::TakeOver(BlockId id) {
  Block& block = store_[id];
  PAGODA_CHECK(block.refs == 0 && block.tier() == Tier::kPrimary && !tree_.has_children(id),
               "rule 8: nobody holds a block that is taken over");
  const SlotRef slot = store_.slot(id);
  LeaveTree(id, RemovalReason::kTakenOver);
  EraseNode(id);
  ++counters_.taken_over_blocks;
  // A new life in the same slot, with the same tokens: what was released last is taken first.
  const SlotRef taken_slot{Tier::kPrimary, store_.TakeSlot(Tier::kPrimary)};
  const BlockId taken = store_.TakeId(BlockState::kPrivate);
  PAGODA_CHECK(taken == id && taken_slot == slot, "id and slot are taken back at once");
  store_.GiveSlot(taken, slot);
  accounts_.SetOwner(taken, context_->tenant);
  accounts_.Hold(taken, Tier::kPrimary, context_->tenant, 0);
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
      const BlockId copy = CopyTail(shared, static_cast<uint32_t>(computed));
      ReleaseEntry(sequence, static_cast<uint32_t>(blocks.table.size()) - 1);
      blocks.table.back() = store_.handle(copy);
      AddReader(sequence, copy);
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

// What the sequence's own retention says of an entry.
std::optional<BlockRetention> WindowBlockManager::WishFor(const Sequence& sequence,
                                                          uint32_t index) const {
  if (sequence.retention().empty()) return std::nullopt;
  return RetentionOf(sequence.retention(), sequence.prompt_tokens,
                     index * tokens_per_block().value());
}

BlockRetention WindowBlockManager::RetentionAt(BlockId id) const {
  const Block& block = store_[id];
  return {.priority = block.priority(),
          .duration = block.timed ? expiries_.duration(id) : absl::InfiniteDuration()};
}

// Of what is cached already: the sequence's own wish holds; what a block was kept at whose content
// this one has too holds where it is higher.
void WindowBlockManager::MergeRetention(BlockId id, const std::optional<BlockRetention>& wish,
                                        const std::optional<BlockRetention>& had) {
  if (wish.has_value()) {
    SetBlockRetention(id, *wish);
  } else if (had.has_value() && had->priority > store_[id].priority()) {
    SetBlockRetention(id, *had);
  }
}

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
  bool filled = false;
  if (store_[existing].state() == BlockState::kHole ||
      store_[existing].tier() == Tier::kSecondary) {
    // What a fork or a running copy has a part in cannot be given away.
    if (!IsPrivateTo(own) ||
        context_->copies->Arrival(options_.index, store_.slot(own)) != Ticket{}) {
      blocks.tree_epoch = SequenceBlocks::kNoTree;
      return false;
    }
    FillFrom(existing, own, sequence.tenant, blocks.root);
    filled = true;
  } else if (!accounts_.MayHold(existing, sequence.tenant, store_[existing].refs)) {
    // Its own copy and the commons' would be more than its quota.
    blocks.tree_epoch = SequenceBlocks::kNoTree;
    return false;
  }
  Hold(existing, sequence.tenant);
  blocks.canonical[index] = existing;
  ++counters_.merged_blocks;
  MergeRetention(existing, WishFor(sequence, index), blocks.RetentionTakenOver(index));
  if (filled) {
    const Prefixes prefixes = UnheldPrefixes(blocks.tip, key);
    for (const BlockId shorter : prefixes) {
      MergeRetention(existing, WishFor(sequence, index), RetentionAt(shorter));
    }
    RemovePrefixes(prefixes);
  }
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
  const std::optional<BlockRetention> wish = WishFor(sequence, index);
  std::optional<BlockRetention> kept = wish.has_value() ? wish : blocks.RetentionTakenOver(index);
  const bool has_siblings = tree_.has_children(blocks.tip);
  tree_.Insert(id, blocks.tip, key);
  if (accounts_.any()) {
    accounts_.SetOwner(id, options_.tenants->OwnerOf(tree_.key(blocks.root)));
  }
  Prefixes prefixes;
  if (has_siblings) prefixes = UnheldPrefixes(blocks.tip, key);
  for (const BlockId shorter : prefixes) {
    const Priority now = kept.has_value() ? kept->priority : kDefaultPriority;
    if (!wish.has_value() && store_[shorter].priority() > now) kept = RetentionAt(shorter);
  }
  if (kept.has_value()) block.set_priority(kept->priority);
  policy(Tier::kPrimary, id).Inserted(id, tree_.hash(id));
  RecordStored(id, blocks.root, key);
  if (kept.has_value()) SetBlockRetention(id, *kept);
  RemovePrefixes(prefixes);
}

// Cached tails with which a block of this content begins tell nothing more beside it. Those that
// somebody holds stay.
WindowBlockManager::Prefixes WindowBlockManager::UnheldPrefixes(NodeRef parent,
                                                                const BlockKey& key) const {
  if (PAGODA_FAULT(ShorterTailKept)) return {};
  Prefixes unheld = tree_.Prefixes(parent, key);
  const auto stays = [this](BlockId id) {
    return store_[id].state() != BlockState::kCached || store_[id].refs != 0;
  };
  unheld.erase(std::remove_if(unheld.begin(), unheld.end(), stays), unheld.end());
  return unheld;
}

void WindowBlockManager::RemovePrefixes(const Prefixes& prefixes) {
  for (const BlockId shorter : prefixes) {
    LeaveTree(shorter, RemovalReason::kTakenOver);
    EraseNode(shorter);
  }
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

// The bytes of `own`, which is the tenant's, become those of `canonical`, which has none in the
// primary tier.
void WindowBlockManager::FillFrom(BlockId canonical, BlockId own, TenantId tenant, NodeRef root) {
  Block& block = store_[canonical];
  Block& alias = store_[own];
  const SlotRef slot = store_.slot(own);
  PAGODA_CHECK(IsPrivateTo(own), "rule 10: a sequence gives what it alone has");
  alias.set_state(BlockState::kAlias);
  --held_[kPrimary];
  accounts_.LetGo(own, Tier::kPrimary, tenant, 0);
  if (block.state() == BlockState::kHole) {
    --holes_;
    block.set_state(BlockState::kCached);
    store_.GiveSlot(canonical, slot);
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

// The last block in part computed: cached with what it has. Where a block of the primary tier
// begins with that already, the sequence holds that one until it lets go of everything, which makes
// it as recent as the rest. What others write or read besides is not published in part.
void WindowBlockManager::PublishTail(Sequence& sequence) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t token_count = tokens_per_block().OffsetInBlock(sequence.computed_tokens);
  // After a failed copy a sequence can have more published than computed blocks.
  const uint32_t full_blocks = tokens_per_block().BlockForToken(sequence.computed_tokens);
  if (token_count == 0 || full_blocks != blocks.published) return;
  const BlockId own = blocks.table[blocks.published].id;
  if (blocks.borrows_tail && !IsPrivateTo(own)) return;
  const BlockKey key = KeyOf(sequence, own, blocks.published, token_count);
  const BlockId longer = FindLonger(blocks.tip, key);
  if (longer == kNoBlock) {
    PublishBlock(sequence, blocks, blocks.published, token_count);
    return;
  }
  // At its quota the tenant does not hold it, and it stays as it is.
  if (!accounts_.MayHold(longer, sequence.tenant, store_[longer].refs)) return;
  Hold(longer, sequence.tenant);
  blocks.canonical[blocks.published] = longer;
  ++counters_.merged_blocks;
  std::optional<BlockRetention> wish = WishFor(sequence, blocks.published);
  if (!wish.has_value()) wish = blocks.RetentionTakenOver(blocks.published);
  MergeRetention(longer, std::nullopt, wish);
}

// The block of the primary tier that begins with `key` and goes on, where that is the block that
// shares most with it.
BlockId WindowBlockManager::FindLonger(NodeRef parent, const BlockKey& key) const {
  if (!tree_.has_children(parent) || PAGODA_FAULT(TailStoredTwice)) return kNoBlock;
  const PrefixTree::Closest closest = tree_.FindClosest(parent, key);
  if (closest.tokens < key.tokens.size()) return kNoBlock;
  const Block& block = store_[closest.id];
  const bool goes_on = block.token_count > key.tokens.size();
  return goes_on && block.tier() == Tier::kPrimary ? closest.id : kNoBlock;
}

void WindowBlockManager::End(Sequence& sequence, ComputedTail tail) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  Publish(sequence);
  if (tail == ComputedTail::kPublish && !Detached(blocks) && !PAGODA_FAULT(TailNotPublished)) {
    PublishTail(sequence);
  }
  // Tail first: of one sequence's blocks the last ones are the oldest.
  for (auto i = static_cast<uint32_t>(blocks.table.size()); i-- > blocks.first;) {
    ReleaseEntry(sequence, i);
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
  if (detached)
    blocks.tree_epoch = SequenceBlocks::kNoTree;  // Its tip may go, and come back as another block.
  const auto passed = [&](uint32_t index) {
    const uint64_t last_token_end = (uint64_t{index} + 1) * tokens_per_block().value();
    return last_token_end + window().value() <= end && (detached || index + 1 < blocks.published);
  };
  for (; blocks.first < blocks.table.size() && passed(blocks.first); ++blocks.first) {
    ReleaseEntry(sequence, blocks.first);
    blocks.table[blocks.first] = {};
    blocks.canonical[blocks.first] = kNoBlock;
  }
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
