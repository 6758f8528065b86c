// A sequence's blocks in this window, from its match to its end.
#include <algorithm>

#include "absl/base/attributes.h"
#include "base/check.h"
#include "manager/window/window_block_manager.h"

namespace pagoda {
namespace {

// Out of line, so that KeyOf needs few registers.
ABSL_ATTRIBUTE_NOINLINE void AddExtras(const SequenceExtras& extras, size_t begin, BlockKey* key,
                                       std::vector<TokenExtra>* scratch) {
  key->extras = extras.OfBlock(begin, key->tokens.size(), scratch);
}

}  // namespace

// A sequence publishes nothing any more after a reset, or after its tip was cut out of the tree.
bool WindowBlockManager::Detached(const SequenceBlocks& blocks) const {
  return blocks.tree_epoch != tree_.epoch() ||
         (!blocks.tip.is_root() && !store_[blocks.tip.block()].in_tree());
}

bool WindowBlockManager::IsPrivateTo(BlockId id) const {
  return store_[id].state() == BlockState::kPrivate && store_[id].refs == 1;
}

// The key of the sequence's block `id`, entry `index` of its table. Valid until the next call.
BlockKey WindowBlockManager::KeyOf(const Sequence& sequence, BlockId id, uint32_t index,
                                   uint32_t token_count) {
  if (sequence.keyed) [[unlikely]] {
    return store_.client_key(id).block_key();
  }
  BlockKey key{store_.tokens(id).first(token_count), {}};
  // A sequence with extras is charged for them.
  if (sequence.extras.bytes() != 0) [[unlikely]] {
    AddExtras(sequence.extras, size_t{index} * tokens_per_block().value(), &key, &key_extras_);
  }
  return key;
}

// Releases an entry of the sequence's table.
void WindowBlockManager::ReleaseEntry(OperationScope& op, const Sequence& sequence,
                                      uint32_t index) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const BlockId own = blocks.table[index].id;
  residency_.copies().RemoveReader(own, sequence.key);
  const BlockId canonical = blocks.canonical[index];
  Release(op, own, sequence.tenant);
  if (canonical != kNoBlock) Release(op, canonical, sequence.tenant);
}

// --- The beginning ---

void WindowBlockManager::Begin(OperationScope& op, Sequence& sequence,
                               const NamespaceKey& name_space, const Match& match, Tail tail,
                               uint32_t table_size) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const auto whole = static_cast<uint32_t>(match.blocks.size());
  blocks.tree_epoch = tree_.epoch();
  blocks.root = blocks.tip = tree_.AcquireRoot(name_space);
  blocks.first = match.first;
  blocks.published = whole;
  blocks.table.reserve(table_size);
  blocks.table.resize(match.first);
  CountMatch(op, sequence, match, tail, table_size - whole);
  // All matched blocks are held before the first block is taken, so none of them is a victim.
  for (uint32_t i = match.first; i < whole; ++i) Hold(op, match.blocks[i], sequence.tenant);
  if (tail == Tail::kCopy) Hold(op, match.source, sequence.tenant);
  if (tail == Tail::kTakeOver) {
    const BlockRetention retention = RetentionAt(match.source);
    const bool is_kept = retention != BlockRetention{} || !MayLower(match.source, sequence.tenant);
    if (is_kept) blocks.taken_over = {whole, retention};
    TakeOver(op, match.source);
  }
  // Holding matched blocks of the default tenant can exceed the tenant's quota.
  residency_.GiveUpAboveQuota(op, sequence.tenant);

  const bool is_use = !sequence.uncounted;  // Of the matched blocks.
  const bool has_wishes = !sequence.retention().ranges.empty();
  for (uint32_t i = match.first; i < whole; ++i) {
    const BlockId id = match.blocks[i];
    if (store_[id].tier() != Tier::kPrimary) {
      residency_.moves().Onboard(op, id);
    } else {
      residency_.copies().WaitToRead(op, id);
    }
    if (is_use && store_[id].in_tree()) residency_.Touch(op, id);
    if (has_wishes) {
      const std::optional<BlockRetention> wish =
          RetentionOf(sequence.retention(), sequence.prompt_tokens, i * tokens_per_block().value());
      if (wish.has_value() && store_[id].in_tree()) ApplyRetention(op, id, *wish, sequence.tenant);
    }
    blocks.table.push_back(store_.handle(id));
    residency_.copies().AddReader(id, sequence.key);
  }
  if (whole > 0) blocks.tip = NodeRef::Block(match.blocks[whole - 1]);

  if (tail == Tail::kTakeOver) {
    blocks.table.push_back(store_.handle(match.source));
  } else if (tail == Tail::kCopy) {
    if (is_use && store_[match.source].in_tree()) residency_.Touch(op, match.source);
    blocks.table.push_back(store_.handle(CopyTail(op, match.source, match.source_tokens)));
    residency_.copies().AddReader(blocks.table.back().id, sequence.key);
  }
  blocks.canonical.reserve(table_size);
  blocks.canonical.resize(blocks.table.size(), kNoBlock);
  Grow(op, sequence, table_size, match.tokens);
  if (tail == Tail::kCopy) EndHold(op, match.source, sequence.tenant);
}

// Makes a cached leaf the private block of a sequence, which continues at the end of the match.
void WindowBlockManager::TakeOver(OperationScope& op, BlockId id) {
  const Block& block = store_[id];
  PAGODA_CHECK(block.refs == 0 && block.tier() == Tier::kPrimary && !tree_.has_children(id),
               "rule 8: nothing holds a block that is taken over");
  LeaveTree(op, id, RemovalReason::kTakenOver, Remains::kSlot);
  ++counters_.taken_over_blocks;
  residency_.Renew(op, id);
}

// A fresh block that begins with the first tokens of `source`. REQUIRES: `source` is held.
BlockId WindowBlockManager::CopyTail(OperationScope& op, BlockId source, uint32_t num_tokens) {
  const BlockId target = residency_.Take(op, BlockState::kPrivate);
  CountAllocated(op, 1);
  // The ids of tokens that are named and not computed are copied too.
  std::copy(store_.tokens(source).begin(), store_.tokens(source).end(),
            store_.tokens(target).begin());
  if (num_tokens == 0) return target;  // A failed copy took the bytes that were to be copied.
  residency_.copies().CopyTokens(op, source, target, num_tokens);
  ++counters_.partial_copies;
  return target;
}

// --- Growing ---

bool WindowBlockManager::MustCopyTail(const Sequence& sequence) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  return blocks.borrows_tail && !IsPrivateTo(blocks.table.back().id);
}

uint32_t WindowBlockManager::BlocksToGrow(const Sequence& sequence, uint32_t table_size) const {
  return table_size - static_cast<uint32_t>(BlocksOf(sequence).table.size()) +
         (MustCopyTail(sequence) ? 1 : 0);
}

void WindowBlockManager::Grow(OperationScope& op, Sequence& sequence, uint32_t table_size,
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
  const uint32_t free = residency_.slots().free_slots(Tier::kPrimary);
  if (count > free) recorder().ExpectRemoved(count - free);
  CountAllocated(op, count);
  blocks.table.resize(table_size);
  blocks.canonical.resize(table_size, kNoBlock);
  Take(op, BlockState::kPrivate, absl::MakeSpan(blocks.table).last(count));
}

void WindowBlockManager::WriteTokens(Sequence& sequence, uint32_t position,
                                     absl::Span<const TokenId> tokens) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  while (!tokens.empty()) {
    const uint32_t index = tokens_per_block().BlockForToken(position);
    const uint32_t offset = tokens_per_block().OffsetInBlock(position);
    PAGODA_CHECK(index >= blocks.published, "rule 10: a published block is not written");
    const size_t count = std::min<size_t>(tokens.size(), tokens_per_block().value() - offset);
    CopyTokenIds(tokens.first(count), store_.tokens(blocks.table[index].id).data() + offset);
    tokens.remove_prefix(count);
    position += static_cast<uint32_t>(count);
  }
}

void WindowBlockManager::WriteKeys(Sequence& sequence, uint32_t position,
                                   absl::Span<const ClientKey> keys) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t first = tokens_per_block().BlockForToken(position);
  PAGODA_CHECK(keys.empty() || first >= blocks.published,
               "rule 10: a published block is not written");
  for (uint32_t i = 0; i < keys.size(); ++i) {
    store_.SetClientKey(blocks.table[first + i].id, keys[i]);
  }
}

void WindowBlockManager::ReadTokens(const Sequence& sequence, uint32_t begin, uint32_t end,
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

// --- Publishing ---

// The sequence's own retention for an entry.
std::optional<BlockRetention> WindowBlockManager::WishFor(const Sequence& sequence,
                                                          uint32_t index) const {
  if (sequence.own_retention == nullptr || sequence.retention().empty()) return std::nullopt;
  return RetentionOf(sequence.retention(), sequence.prompt_tokens,
                     index * tokens_per_block().value());
}

BlockRetention WindowBlockManager::RetentionAt(BlockId id) const {
  const Block& block = store_[id];
  return {.priority = block.priority(),
          .duration = block.timed ? expiries_.duration(id) : absl::InfiniteDuration()};
}

// Returns whether the wish counts.
bool WindowBlockManager::ApplyRetention(OperationScope& op, BlockId id, const BlockRetention& wish,
                                        TenantId tenant) {
  const bool counts = MayLower(id, tenant) || KeepsAtLeast(wish, RetentionAt(id));
  if (counts) SetBlockRetention(op, id, wish);
  return counts;
}

// Raises the block to a retention that a block with the same first content had.
void WindowBlockManager::RaiseRetention(OperationScope& op, BlockId id,
                                        const std::optional<BlockRetention>& had) {
  if (had.has_value() && had->priority > store_[id].priority()) SetBlockRetention(op, id, *had);
}

void WindowBlockManager::Publish(OperationScope& op, Sequence& sequence) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t full_blocks = tokens_per_block().BlockForToken(sequence.computed_tokens);
  if (full_blocks > blocks.published && !Detached(blocks)) {
    const uint32_t first = blocks.published;
    const size_t count = full_blocks - blocks.published;
    const size_t entries = sequence.keyed ? ClientKey::kWords : tokens_per_block().value();
    recorder().ExpectStored(count, count * entries);
    while (blocks.published < full_blocks) {
      const uint32_t index = blocks.published;
      if (!PublishBlock(op, sequence, blocks, index, tokens_per_block().value())) break;
      if (sliding() && tree_.branches(blocks.tip)) KeepBranch(blocks, index);
      const BlockId canonical = blocks.canonical[index];
      blocks.tip = NodeRef::Block(blocks.InTree(index));
      blocks.published = index + 1;
      if (canonical != kNoBlock || blocks.published == full_blocks) continue;
      // The new block has no children yet, so the rest of the content is new too.
      blocks.published = PublishChain(op, sequence, blocks, blocks.published, full_blocks);
      blocks.tip = NodeRef::Block(blocks.table[blocks.published - 1].id);
    }
    CountPublished(sequence, first, blocks.published);
  }
  if (sliding()) Slide(op, sequence);
}

// Rule 10. If the content is in the tree already, the block there is canonical. If that block has
// no bytes in the primary tier, it gets those of this sequence's block. Returns false if neither is
// possible: the sequence then continues without publishing.
bool WindowBlockManager::PublishBlock(OperationScope& op, const Sequence& sequence,
                                      SequenceBlocks& blocks, uint32_t index,
                                      uint32_t token_count) {
  const BlockId own = blocks.table[index].id;
  const BlockKey key = KeyOf(sequence, own, index, token_count);
  const BlockId existing = tree_.FindChild(blocks.tip, key);
  if (existing == kNoBlock) {
    InsertIntoTree(op, own, sequence, blocks, index, key);
    return true;
  }
  bool filled = false;
  if (store_[existing].state() == BlockState::kHole || store_[existing].tier() != Tier::kPrimary) {
    // A block that a fork shares or a running copy fills cannot be given away.
    if (!IsPrivateTo(own) || residency_.copies().IsArriving(own)) {
      blocks.tree_epoch = SequenceBlocks::kNoTree;
      return false;
    }
    FillFrom(op, existing, sequence, index);
    filled = true;
  } else if (!accounts().MayHold(existing, sequence.tenant, store_[existing].refs)) {
    // The tenant's own copy and the default tenant's would exceed its quota.
    blocks.tree_epoch = SequenceBlocks::kNoTree;
    return false;
  }
  if (reuse_distances_.Samples(tree_.hash(existing))) {
    NotePublished(sequence, blocks, index, existing);
  }
  Hold(op, existing, sequence.tenant);
  blocks.canonical[index] = existing;
  ++counters_.merged_blocks;
  // The sequence's own wish counts. A wish that may not lower the block is applied after earlier
  // retentions.
  const std::optional<BlockRetention> wish = WishFor(sequence, index);
  Prefixes prefixes;
  if (filled) prefixes = EvictablePrefixes(blocks.tip, key);
  if (!wish.has_value() || !MayLower(existing, sequence.tenant)) {
    RaiseRetention(op, existing, blocks.RetentionTakenOver(index));
    for (const BlockId shorter : prefixes) RaiseRetention(op, existing, RetentionAt(shorter));
  }
  if (wish.has_value()) ApplyRetention(op, existing, *wish, sequence.tenant);
  RemovePrefixes(op, prefixes);
  return true;
}

// For entry `index` of the sequence's table, with `token_count` tokens of content.
ContentFacts WindowBlockManager::FactsOf(const Sequence& sequence, uint32_t index,
                                         uint32_t token_count) const {
  const uint64_t end = uint64_t{index} * tokens_per_block().value() + token_count;
  return {index + 1, sequence.token_count,
          end <= sequence.prompt_tokens ? ContentOrigin::kPrompt : ContentOrigin::kReply};
}

// Inserts under the sequence's tip, which the sequence holds.
void WindowBlockManager::InsertIntoTree(OperationScope& op, BlockId id, const Sequence& sequence,
                                        SequenceBlocks& blocks, uint32_t index,
                                        const BlockKey& key) {
  Block& block = store_[id];
  if (key.has_extras()) store_.SetExtras(id, key.extras);
  block.set_state(BlockState::kCached);
  block.tree = tree_.tree_bit();
  block.set_priority(kDefaultPriority);
  block.uses = 0;
  block.token_count = store_.TokensOf(key);
  const bool has_siblings = tree_.has_children(blocks.tip);
  tree_.Insert(id, blocks.tip, key, FactsOf(sequence, index, block.token_count));
  residency_.Enter(
      op, id,
      accounts().any() ? options_.tenants->OwnerOf(tree_.key(blocks.root)) : kDefaultTenant);
  std::optional<BlockRetention> kept;
  Prefixes prefixes;
  // Few blocks have a retention to keep.
  if (has_siblings || sequence.own_retention != nullptr || blocks.taken_over.has_value()) {
    const std::optional<BlockRetention> wish = WishFor(sequence, index);
    const bool wish_holds = wish.has_value() && MayLower(id, sequence.tenant);
    kept = wish_holds ? wish : blocks.RetentionTakenOver(index);
    if (has_siblings) prefixes = EvictablePrefixes(blocks.tip, key);
    for (const BlockId shorter : prefixes) {
      const Priority now = kept.has_value() ? kept->priority : kDefaultPriority;
      if (!wish_holds && store_[shorter].priority() > now) kept = RetentionAt(shorter);
    }
    // A block that replaces tails of other sequences keeps at least their retention.
    const bool takes_place = kept.has_value() || !prefixes.empty();
    if (wish.has_value() && !wish_holds &&
        (!takes_place || KeepsAtLeast(*wish, kept.value_or(BlockRetention{})))) {
      kept = wish;
    }
    if (kept.has_value()) block.set_priority(kept->priority);
  }
  RecordStored(op, id, blocks.root, key);
  if (reuse_distances_.Samples(tree_.hash(id))) NotePublished(sequence, blocks, index, id);
  if (kept.has_value()) SetBlockRetention(op, id, *kept);
  if (!prefixes.empty()) RemovePrefixes(op, prefixes);
}

// The cached tails with which this content begins and that nothing holds. Beside the longer block
// they are no use.
WindowBlockManager::Prefixes WindowBlockManager::EvictablePrefixes(NodeRef parent,
                                                                   const BlockKey& key) const {
  Prefixes evictable = tree_.Prefixes(parent, key);
  const auto stays = [this](BlockId id) {
    return store_[id].state() != BlockState::kCached || store_[id].refs != 0;
  };
  evictable.erase(std::remove_if(evictable.begin(), evictable.end(), stays), evictable.end());
  return evictable;
}

void WindowBlockManager::RemovePrefixes(OperationScope& op, const Prefixes& prefixes) {
  for (const BlockId shorter : prefixes) {
    LeaveTree(op, shorter, RemovalReason::kTakenOver, Remains::kNothing);
  }
}

void WindowBlockManager::RecordStored(OperationScope& op, BlockId id, NodeRef root,
                                      const BlockKey& key) {
  ++cached_blocks_;
  if (options_.publish_min_uses == 0) Used(id);
  residency_.journal().NoteContent(id);
  if (reuse_intervals_.Samples(id)) {
    store_[id].followed = 1;
    reuse_intervals_.Stored(id, op.now);
  }
  const Block& block = store_[id];
  recorder().Stored(window(), tree_.key(root), tree_.Named(tree_.parent(id)),
                    {.id = id,
                     .hash = tree_.hash(id),
                     .token_count = block.token_count,
                     .tier = block.tier(),
                     .priority = block.priority()},
                    key, accounts().owner(id));
}

// Gives the bytes of the sequence's private block at entry `index` to `canonical`, which has none
// in the primary tier. A hole becomes a cached block again, with the facts of this sequence.
void WindowBlockManager::FillFrom(OperationScope& op, BlockId canonical, const Sequence& sequence,
                                  uint32_t index) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const BlockId own = blocks.table[index].id;
  PAGODA_CHECK(IsPrivateTo(own), "rule 10: a sequence gives away only its private blocks");
  const bool was_hole = store_[canonical].state() == BlockState::kHole;
  if (was_hole) {
    tree_.SetFacts(canonical, FactsOf(sequence, index, store_[canonical].token_count));
  }
  residency_.GiveSlotOf(op, own, sequence.tenant, canonical);
  if (!was_hole) return;
  --holes_;
  RecordStored(op, canonical, blocks.root, store_.key(canonical));
}

// Caches the last, partly computed block with its computed tokens. If a block of the primary tier
// already begins with them, the sequence holds that block until it ends, which makes it as recent
// as the rest. A tail that others read or write is not published.
void WindowBlockManager::PublishTail(OperationScope& op, Sequence& sequence) {
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
    PublishBlock(op, sequence, blocks, blocks.published, token_count);
    return;
  }
  // At its quota the tenant does not hold the longer block, which stays as it is.
  if (!accounts().MayHold(longer, sequence.tenant, store_[longer].refs)) return;
  Hold(op, longer, sequence.tenant);
  blocks.canonical[blocks.published] = longer;
  ++counters_.merged_blocks;
  const std::optional<BlockRetention> wish = WishFor(sequence, blocks.published);
  const bool wish_holds = wish.has_value() && MayLower(longer, sequence.tenant);
  RaiseRetention(op, longer, wish_holds ? wish : blocks.RetentionTakenOver(blocks.published));
  if (wish.has_value() && !wish_holds) ApplyRetention(op, longer, *wish, sequence.tenant);
}

// The primary block that begins with `key` and is longer, if it is the block that shares most with
// the key.
BlockId WindowBlockManager::FindLonger(NodeRef parent, const BlockKey& key) const {
  if (!tree_.has_children(parent)) return kNoBlock;
  const PrefixTree::Closest closest = tree_.FindClosest(parent, key);
  if (closest.tokens < key.tokens.size()) return kNoBlock;
  const Block& block = store_[closest.id];
  const bool goes_on = block.token_count > key.tokens.size();
  return goes_on && block.tier() == Tier::kPrimary ? closest.id : kNoBlock;
}

void WindowBlockManager::End(OperationScope& op, Sequence& sequence, ComputedTail tail) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  Publish(op, sequence);
  if (tail == ComputedTail::kPublish && !Detached(blocks)) PublishTail(op, sequence);
  ReleaseAll(op, sequence);
  tree_.ReleaseRoot(blocks.root);
  blocks = {};
}

// Rule 9. Keeps the last published block, which becomes the parent of the next one.
void WindowBlockManager::Slide(OperationScope& op, Sequence& sequence) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  const uint64_t end = uint64_t{sequence.computed_tokens} + 1;
  const bool detached = Detached(blocks);
  if (detached)
    // Its tip can leave and come back as another block.
    blocks.tree_epoch = SequenceBlocks::kNoTree;
  const auto passed = [&](uint32_t index) {
    const uint64_t last_token_end = (uint64_t{index} + 1) * tokens_per_block().value();
    return last_token_end + window().value() <= end && (detached || index + 1 < blocks.published);
  };
  // The last token of a prompt is not matched.
  const uint32_t prompt_end = sequence.prompt_tokens;
  const uint32_t first_of_prompt = FirstNeeded(prompt_end == 0 ? 0 : prompt_end - 1);
  // After one match the other request went on too. After several, others are likely to end there.
  const auto others_end_there = [&](uint32_t index) {
    const bool of_prompt =
        index >= first_of_prompt && index < tokens_per_block().BlocksFor(prompt_end);
    return of_prompt || store_[blocks.InTree(index)].uses >= 2;
  };
  for (; blocks.first < blocks.table.size() && passed(blocks.first); ++blocks.first) {
    if (!detached && !others_end_there(blocks.first)) passed_.Pass(blocks.InTree(blocks.first));
    ReleaseEntry(op, sequence, blocks.first);
    blocks.table[blocks.first] = {};
    blocks.canonical[blocks.first] = kNoBlock;
  }
}

// Other prompts leave the sequence's path before entry `index`. A match that ends there needs the
// window before it. Cost: amortised O(1) for each entry that is published.
void WindowBlockManager::KeepBranch(SequenceBlocks& blocks, uint32_t index) {
  uint32_t first = std::max(blocks.first, FirstNeeded(index * tokens_per_block().value()));
  if (blocks.branch <= index) first = std::max(first, blocks.branch);  // Kept before.
  for (uint32_t i = first; i < index; ++i) passed_.Keep(blocks.InTree(i));
  blocks.branch = index;
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
