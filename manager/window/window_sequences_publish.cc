// How the blocks of a running sequence enter the prefix tree, and what a sliding window releases.
#include "manager/window/window_sequences.h"

#include <algorithm>

#include "absl/base/attributes.h"
#include "base/check.h"
#include "manager/tiers/tier_residency_runs.h"

namespace pagoda {
namespace {

// Out of line, so that KeyOf needs few registers.
ABSL_ATTRIBUTE_NOINLINE void AddExtras(const SequenceExtras& extras, size_t begin, BlockKey* key,
                                       std::vector<TokenExtra>* scratch) {
  key->extras = extras.OfBlock(begin, key->tokens.size(), scratch);
}

}  // namespace

// The key of the sequence's block `id`, entry `index` of its table. Valid until the next call.
BlockKey WindowSequences::KeyOf(const Sequence& sequence, BlockId id, uint32_t index,
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

// The sequence's own retention for an entry.
std::optional<BlockRetention> WindowSequences::WishFor(const Sequence& sequence,
                                                       uint32_t index) const {
  if (sequence.own_retention == nullptr || sequence.retention().empty()) return std::nullopt;
  return RetentionOf(sequence.retention(), sequence.prompt_tokens,
                     index * tokens_per_block().value());
}

// For entry `index` of the sequence's table, with `token_count` tokens of content.
ContentFacts WindowSequences::FactsOf(const Sequence& sequence, uint32_t index,
                                      uint32_t token_count) const {
  const uint64_t end = uint64_t{index} * tokens_per_block().value() + token_count;
  return {index + 1, sequence.token_count,
          end <= sequence.prompt_tokens ? ContentOrigin::kPrompt : ContentOrigin::kReply};
}

void WindowSequences::Publish(OperationScope& op, Sequence& sequence) {
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
    counts_.CountPublished(sequence, first, blocks.published);
  }
  if (sliding()) Slide(op, sequence);
}

// Rule 10. If the content is in the tree already, the block there is canonical. If that block has
// no bytes in the primary tier, it gets those of this sequence's block. Returns false if neither is
// possible: the sequence then continues without publishing.
bool WindowSequences::PublishBlock(OperationScope& op, const Sequence& sequence,
                                   SequenceBlocks& blocks, uint32_t index, uint32_t token_count) {
  const BlockId own = blocks.table[index].id;
  const BlockKey key = KeyOf(sequence, own, index, token_count);
  const BlockId existing = tree_.FindChild(blocks.tip, key);
  if (existing == kNoBlock) {
    InsertIntoTree(op, own, sequence, blocks, index, key);
    return true;
  }
  bool filled = false;
  if (store_[existing].state() == BlockState::kHole || store_[existing].tier() != kPrimaryTier) {
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
  counts_.Published(sequence, blocks, index, existing);
  holds_.Hold(op, existing, sequence.tenant);
  blocks.canonical[index] = existing;
  ++counts_.counters().merged_blocks;
  // The sequence's own wish counts. A wish that may not lower the block is applied after earlier
  // retentions.
  const std::optional<BlockRetention> wish = WishFor(sequence, index);
  CachedBlocks::Prefixes prefixes;
  if (filled) prefixes = cached_.EvictablePrefixes(blocks.tip, key);
  if (!wish.has_value() || !holds_.MayLower(existing, sequence.tenant)) {
    holds_.RaiseRetention(op, existing, blocks.RetentionTakenOver(index));
    for (const BlockId shorter : prefixes)
      holds_.RaiseRetention(op, existing, holds_.RetentionAt(shorter));
  }
  if (wish.has_value()) holds_.ApplyRetention(op, existing, *wish, sequence.tenant);
  cached_.RemovePrefixes(op, prefixes);
  return true;
}

// Publishes entries [first, end) of the sequence's table below the sequence's tip, which has no
// children. Returns the end of what it published: `first` if the sequence has more than tokens.
uint32_t WindowSequences::PublishChain(OperationScope& op, const Sequence& sequence,
                                       SequenceBlocks& blocks, uint32_t first, uint32_t end) {
  const bool plain = !sequence.keyed && sequence.extras.bytes() == 0 &&
                     sequence.own_retention == nullptr && !blocks.taken_over.has_value() &&
                     options_.publish_min_uses != 0;
  if (!plain) return first;
  const NamespaceKey& name_space = tree_.key(blocks.root);
  const TenantId owner = accounts().any() ? options_.tenants->OwnerOf(name_space) : kDefaultTenant;
  const uint32_t size = tokens_per_block().value();
  const uint32_t prompt_end = tokens_per_block().BlockForToken(sequence.prompt_tokens);
  BlockFacts facts{.time = op.now, .tenant = owner, .content = FactsOf(sequence, first, size)};
  BlockId tip = blocks.tip.block();
  while (first < end) {
    EventRecorder::StoredRun run;
    uint32_t run_end = end;
    if (recorder().records()) {
      run = recorder().StoreRun(window(), name_space, tree_.Named(tip), end - first, size, owner);
      run_end = first + static_cast<uint32_t>(run.blocks.size());
    }
    for (uint32_t i = 0; first < run_end; ++first, ++i) {
      const BlockId id = blocks.table[first].id;
      Block& block = store_[id];
      block.set_state(BlockState::kCached);
      block.tree = tree_.tree_bit();
      block.set_priority(kDefaultPriority);
      block.uses = 0;
      block.token_count = size;
      const absl::Span<const TokenId> tokens = store_.tokens(id);
      // The facts change with the depth's logarithm, and where the prompt ends.
      if ((first & (first + 1)) == 0 || first == prompt_end) {
        facts.content = FactsOf(sequence, first, size);
      }
      tree_.Extend(id, tip, {tokens, {}}, facts.content);
      facts.slot = block.slot;
      facts.block = id;
      facts.hash = tree_.hash(id);
      residency_.EnterTree(facts);
      residency_.journal().NoteContent(id);
      counts_.Stored(op, id);
      counts_.Published(sequence, blocks, first, id);
      tip = id;
      if (run.blocks.empty()) continue;
      run.blocks[i] = {.id = id, .hash = facts.hash, .token_count = size};
      CopyTokenIds(tokens, run.tokens.data() + size_t{i} * size);
    }
  }
  return end;
}

// Inserts under the sequence's tip, which the sequence holds.
void WindowSequences::InsertIntoTree(OperationScope& op, BlockId id, const Sequence& sequence,
                                     SequenceBlocks& blocks, uint32_t index, const BlockKey& key) {
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
  CachedBlocks::Prefixes prefixes;
  // Few blocks have a retention to keep.
  if (has_siblings || sequence.own_retention != nullptr || blocks.taken_over.has_value()) {
    const std::optional<BlockRetention> wish = WishFor(sequence, index);
    const bool wish_holds = wish.has_value() && holds_.MayLower(id, sequence.tenant);
    kept = wish_holds ? wish : blocks.RetentionTakenOver(index);
    if (has_siblings) prefixes = cached_.EvictablePrefixes(blocks.tip, key);
    for (const BlockId shorter : prefixes) {
      const Priority now = kept.has_value() ? kept->priority : kDefaultPriority;
      if (!wish_holds && store_[shorter].priority() > now) kept = holds_.RetentionAt(shorter);
    }
    // A block that replaces tails of other sequences keeps at least their retention.
    const bool takes_place = kept.has_value() || !prefixes.empty();
    if (wish.has_value() && !wish_holds &&
        (!takes_place || KeepsAtLeast(*wish, kept.value_or(BlockRetention{})))) {
      kept = wish;
    }
    if (kept.has_value()) block.set_priority(kept->priority);
  }
  cached_.RecordStored(op, id, blocks.root, key);
  counts_.Published(sequence, blocks, index, id);
  if (kept.has_value()) holds_.SetRetention(op, id, *kept);
  if (!prefixes.empty()) cached_.RemovePrefixes(op, prefixes);
}

// Gives the bytes of the sequence's private block at entry `index` to `canonical`, which has none
// in the primary tier. A hole becomes a cached block again, with the facts of this sequence.
void WindowSequences::FillFrom(OperationScope& op, BlockId canonical, const Sequence& sequence,
                               uint32_t index) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const BlockId own = blocks.table[index].id;
  PAGODA_CHECK(IsPrivateTo(own), "rule 10: a sequence gives away only its private blocks");
  const bool was_hole = store_[canonical].state() == BlockState::kHole;
  if (was_hole) {
    tree_.SetFacts(canonical, FactsOf(sequence, index, store_[canonical].token_count));
  }
  residency_.GiveSlotOf(op, own, sequence.tenant, canonical);
  if (was_hole) cached_.FillHole(op, canonical, blocks.root);
}

// Caches the last, partly computed block with its computed tokens. If a block of the primary tier
// already begins with them, the sequence holds that block until it ends, which makes it as recent
// as the rest. A tail that others read or write is not published.
void WindowSequences::PublishTail(OperationScope& op, Sequence& sequence) {
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
  holds_.Hold(op, longer, sequence.tenant);
  blocks.canonical[blocks.published] = longer;
  ++counts_.counters().merged_blocks;
  const std::optional<BlockRetention> wish = WishFor(sequence, blocks.published);
  const bool wish_holds = wish.has_value() && holds_.MayLower(longer, sequence.tenant);
  holds_.RaiseRetention(op, longer,
                        wish_holds ? wish : blocks.RetentionTakenOver(blocks.published));
  if (wish.has_value() && !wish_holds) holds_.ApplyRetention(op, longer, *wish, sequence.tenant);
}

// The primary block that begins with `key` and is longer, if it is the block that shares most with
// the key.
BlockId WindowSequences::FindLonger(NodeRef parent, const BlockKey& key) const {
  if (!tree_.has_children(parent)) return kNoBlock;
  const PrefixTree::Closest closest = tree_.FindClosest(parent, key);
  if (closest.tokens < key.tokens.size()) return kNoBlock;
  const Block& block = store_[closest.id];
  const bool goes_on = block.token_count > key.tokens.size();
  return goes_on && block.tier() == kPrimaryTier ? closest.id : kNoBlock;
}

// Rule 9. Keeps the last published block, which becomes the parent of the next one.
void WindowSequences::Slide(OperationScope& op, Sequence& sequence) {
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
  const uint32_t first_of_prompt = options_.FirstNeeded(prompt_end == 0 ? 0 : prompt_end - 1);
  // After one match the other request went on too. After several, others are likely to end there.
  const auto others_end_there = [&](uint32_t index) {
    const bool of_prompt =
        index >= first_of_prompt && index < tokens_per_block().BlocksFor(prompt_end);
    return of_prompt || store_[blocks.InTree(index)].uses >= 2;
  };
  for (; blocks.first < blocks.table.size() && passed(blocks.first); ++blocks.first) {
    if (!detached && !others_end_there(blocks.first))
      holds_.passed().Pass(blocks.InTree(blocks.first));
    ReleaseEntry(op, sequence, blocks.first);
    blocks.table[blocks.first] = {};
    blocks.canonical[blocks.first] = kNoBlock;
  }
}

// Other prompts leave the sequence's path before entry `index`. A match that ends there needs the
// window before it. Cost: amortised O(1) for each entry that is published.
void WindowSequences::KeepBranch(SequenceBlocks& blocks, uint32_t index) {
  uint32_t first = std::max(blocks.first, options_.FirstNeeded(index * tokens_per_block().value()));
  if (blocks.branch <= index) first = std::max(first, blocks.branch);  // Kept before.
  for (uint32_t i = first; i < index; ++i) holds_.passed().Keep(blocks.InTree(i));
  blocks.branch = index;
}

}  // namespace pagoda
