#include "manager/window_block_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "manager/lru_policy.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {

WindowBlockManager::WindowBlockManager(Options options, EventRecorder* recorder)
    : options_(options),
      recorder_(recorder),
      store_(options.primary_blocks, options.tokens_per_block.value()),
      tree_(&store_),
      policy_(std::make_unique<LruPolicy>(options.primary_blocks)),
      seen_(options.primary_blocks) {}

// --- Holding and letting go ---

BlockId WindowBlockManager::TakeBlock(BlockState state) {
  if (store_.free_count() == 0) Evict(policy_->Victim());
  ++counters_.allocated_blocks;
  ++held_;
  return store_.Take(state);
}

void WindowBlockManager::Evict(BlockId id) {
  PAGODA_CHECK(id != kNoBlock, "rule 6: room was checked before it is taken");
  RemoveFromTree(id, RemovalReason::kEvicted);
  store_.Release(id);
  ++counters_.evicted_blocks;
}

// Takes an unheld leaf out of the tree; its parent may become a candidate.
void WindowBlockManager::RemoveFromTree(BlockId id, RemovalReason reason) {
  recorder_->Removed(window(), reason, id, tree_.hash(id));
  policy_->Withdrawn(id);
  --cached_unheld_;
  const NodeRef parent = tree_.parent(id);
  tree_.Erase(id);
  if (parent.is_root()) return;
  const BlockId above = parent.block();
  if (store_[above].refs == 0 && tree_.num_children(above) == 0) policy_->Unparked(above);
}

void WindowBlockManager::Hold(BlockId id) {
  Block& block = store_[id];
  if (block.refs++ != 0) return;
  PAGODA_CHECK(block.state == BlockState::kCached, "what nobody holds is free or cached");
  ++held_;
  --cached_unheld_;
  if (tree_.num_children(id) == 0) policy_->Withdrawn(id);
}

void WindowBlockManager::LetGo(BlockId id) {
  Block& block = store_[id];
  PAGODA_CHECK(block.refs > 0, "a block is let go by its holders");
  if (--block.refs != 0) return;
  --held_;
  if (block.state == BlockState::kCached) {
    ++cached_unheld_;
    if (tree_.num_children(id) == 0) policy_->Released(id);
  } else {
    store_.Release(id);
    ++counters_.freed_blocks;
  }
}

// --- Prefixes ---

WindowBlockManager::Match WindowBlockManager::FindPrefix(const NamespaceKey& name_space,
                                                         absl::Span<const TokenId> tokens,
                                                         uint32_t limit) const {
  Match match;
  const std::optional<NodeRef> root = tree_.FindRoot(name_space);
  if (!root.has_value()) return match;
  const uint32_t block_tokens = tokens_per_block().value();
  NodeRef node = *root;
  absl::Span<const TokenId> rest = tokens.first(std::min<size_t>(limit, tokens.size()));
  while (rest.size() >= block_tokens) {
    const BlockId child = tree_.FindChild(node, rest.first(block_tokens));
    if (child == kNoBlock) break;
    match.blocks.push_back(child);
    match.tokens += block_tokens;
    node = NodeRef::Block(child);
    rest.remove_prefix(block_tokens);
  }
  match.tail = tree_.FindTail(node, rest);
  if (match.tail != kNoBlock) match.tokens += store_[match.tail].token_count;
  return match;
}

uint32_t WindowBlockManager::UnheldIn(const Match& match) const {
  const auto unheld = [this](BlockId id) { return store_[id].refs == 0; };
  return static_cast<uint32_t>(std::count_if(match.blocks.begin(), match.blocks.end(), unheld)) +
         (match.tail != kNoBlock && unheld(match.tail) ? 1 : 0);
}

// --- Sequences ---

void WindowBlockManager::Begin(SequenceBlocks& blocks, const NamespaceKey& name_space,
                               const Match& match) {
  blocks.tree_epoch = tree_epoch_;
  blocks.root = blocks.tip = tree_.AcquireRoot(name_space);
  for (const BlockId id : match.blocks) {
    Hold(id);
    blocks.table.push_back(store_.handle(id));
    blocks.tip = NodeRef::Block(id);
  }
  blocks.published = static_cast<uint32_t>(match.blocks.size());
  if (match.tail != kNoBlock) {
    TakeOver(match.tail);
    blocks.table.push_back(store_.handle(match.tail));
  }
  blocks.canonical.resize(blocks.table.size(), kNoBlock);
}

// A tail that a sequence matched whole becomes its private block; the sequence goes on where the
// tail ends.
void WindowBlockManager::TakeOver(BlockId id) {
  PAGODA_CHECK(store_[id].refs == 0, "rule 8: nobody holds a block that is taken over");
  RemoveFromTree(id, RemovalReason::kTakenOver);
  Block& block = store_[id];
  block.generation = Generation{block.generation.value() + 1};
  block.state = BlockState::kPrivate;
  block.refs = 1;
  ++held_;
}

void WindowBlockManager::Grow(SequenceBlocks& blocks, uint32_t count) {
  if (count > store_.free_count()) recorder_->ExpectRemoved(count - store_.free_count());
  for (uint32_t i = 0; i < count; ++i) {
    blocks.table.push_back(store_.handle(TakeBlock(BlockState::kPrivate)));
    blocks.canonical.push_back(kNoBlock);
  }
}

void WindowBlockManager::WriteTokens(SequenceBlocks& blocks, uint32_t position,
                                     absl::Span<const TokenId> tokens) {
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

void WindowBlockManager::Publish(SequenceBlocks& blocks, uint32_t computed_tokens) {
  const uint32_t full_blocks = tokens_per_block().BlockForToken(computed_tokens);
  if (full_blocks <= blocks.published || Detached(blocks)) return;
  const size_t count = full_blocks - blocks.published;
  recorder_->ExpectStored(count, count * tokens_per_block().value());
  while (blocks.published < full_blocks) PublishBlock(blocks, blocks.published);
}

void WindowBlockManager::PublishBlock(SequenceBlocks& blocks, uint32_t index) {
  const BlockId own = blocks.table[index].id;
  const BlockId existing = tree_.FindChild(blocks.tip, store_.tokens(own));
  if (existing == kNoBlock) {
    InsertIntoTree(own, blocks, tokens_per_block().value());
    blocks.tip = NodeRef::Block(own);
  } else {
    Hold(existing);
    blocks.canonical[index] = existing;
    blocks.tip = NodeRef::Block(existing);
  }
  blocks.published = index + 1;
}

// Under the sequence's tip, which it holds.
void WindowBlockManager::InsertIntoTree(BlockId id, const SequenceBlocks& blocks,
                                        uint32_t token_count) {
  Block& block = store_[id];
  block.token_count = static_cast<uint16_t>(token_count);
  block.state = BlockState::kCached;
  tree_.Insert(id, blocks.tip);
  recorder_->Stored(
      window(), tree_.key(blocks.root), blocks.tip.is_root() ? kNoBlock : blocks.tip.block(),
      tree_.hash(blocks.tip),
      {.id = id, .hash = tree_.hash(id), .token_count = token_count, .tier = block.tier},
      store_.content(id));
}

// The last block in part computed: cached with what it has. Where the tree has that already, the
// sequence holds the canonical one until it lets go of everything, which makes it as recent as the
// rest.
void WindowBlockManager::PublishTail(SequenceBlocks& blocks, uint32_t computed_tokens) {
  const uint32_t token_count = tokens_per_block().OffsetInBlock(computed_tokens);
  if (token_count == 0) return;
  const BlockId own = blocks.table[blocks.published].id;
  const BlockId existing = tree_.FindChild(blocks.tip, store_.tokens(own).first(token_count));
  if (existing == kNoBlock) {
    InsertIntoTree(own, blocks, token_count);
  } else {
    Hold(existing);
    blocks.canonical[blocks.published] = existing;
  }
}

void WindowBlockManager::End(SequenceBlocks& blocks, uint32_t computed_tokens) {
  if (!Detached(blocks)) {
    Publish(blocks, computed_tokens);
    PublishTail(blocks, computed_tokens);
  }
  // Tail first: of one sequence's blocks the last ones are the oldest.
  for (size_t i = blocks.table.size(); i-- > 0;) {
    LetGo(blocks.table[i].id);
    if (blocks.canonical[i] != kNoBlock) LetGo(blocks.canonical[i]);
  }
  tree_.ReleaseRoot(blocks.root);
  blocks = {};
}

// --- Raw blocks ---

void WindowBlockManager::TakeRaw(SessionId owner, absl::Span<BlockHandle> out) {
  for (BlockHandle& handle : out) {
    const BlockId id = TakeBlock(BlockState::kRaw);
    store_[id].owner = owner;
    handle = store_.handle(id);
  }
}

absl::Status WindowBlockManager::CheckRaw(SessionId owner, absl::Span<const BlockRef> blocks) {
  absl::Status status;
  size_t seen = 0;
  for (; seen < blocks.size(); ++seen) {
    status = CheckOneRaw(owner, blocks[seen]);
    if (!status.ok()) break;
    seen_[blocks[seen].id.value()] = true;
  }
  for (size_t i = 0; i < seen; ++i) seen_[blocks[i].id.value()] = false;
  return status;
}

absl::Status WindowBlockManager::CheckOneRaw(SessionId owner, const BlockRef& ref) const {
  const auto error = [&](Reason reason, std::string_view what) {
    return MakeError(reason,
                     absl::StrCat("block ", ref.id.value(), " (generation ", ref.generation.value(),
                                  ") of window ", WindowName(window()), " ", std::string(what)));
  };
  if (ref.id.value() >= capacity()) {
    return error(Reason::kUnknownBlock, absl::StrCat("does not exist; there are ", capacity()));
  }
  const Block& block = store_[ref.id];
  if (seen_[ref.id.value()]) return error(Reason::kDoubleFree, "is in the call twice");
  if (block.generation != ref.generation) {
    return error(Reason::kStaleHandle, "is not the block's current life");
  }
  if (block.state == BlockState::kFree) return error(Reason::kDoubleFree, "is free already");
  if (block.state != BlockState::kRaw || block.owner != owner) {
    return error(Reason::kForeignBlock, "does not belong to the session as a raw block");
  }
  return absl::OkStatus();
}

void WindowBlockManager::FreeRaw(absl::Span<const BlockRef> blocks) {
  for (const BlockRef& ref : blocks) LetGo(ref.id);
}

std::vector<BlockRef> WindowBlockManager::RawBlocksOf(SessionId owner) const {
  std::vector<BlockRef> blocks;
  for (uint32_t i = 0; i < capacity(); ++i) {
    const Block& block = store_[BlockId{i}];
    if (block.state == BlockState::kRaw && block.owner == owner) {
      blocks.push_back({BlockId{i}, block.generation});
    }
  }
  return blocks;
}

// --- Operators ---

uint64_t WindowBlockManager::Reset() {
  uint64_t removed = 0;
  for (uint32_t i = 0; i < capacity(); ++i) {
    const BlockId id{i};
    Block& block = store_[id];
    if (block.state != BlockState::kCached) continue;
    ++removed;
    block.state = BlockState::kPrivate;
    if (block.refs != 0) continue;
    --cached_unheld_;
    if (tree_.num_children(id) == 0) policy_->Withdrawn(id);
    store_.Release(id);
    ++counters_.freed_blocks;
  }
  tree_.Clear();
  ++tree_epoch_;
  if (removed != 0) recorder_->WindowCleared(window());
  return removed;
}

void WindowBlockManager::CountLookup(uint32_t lookup_tokens, uint32_t hit_tokens) {
  counters_.prefix_lookup_tokens += lookup_tokens;
  counters_.prefix_hit_tokens += hit_tokens;
}

WindowStats WindowBlockManager::Stats() const {
  WindowStats stats;
  stats.window = window();
  stats.counters = counters_;
  TierOccupancy& primary = stats.tiers[static_cast<size_t>(Tier::kPrimary)];
  primary.capacity = capacity();
  primary.free = store_.free_count();
  primary.cached = cached_unheld_;
  primary.active = held_;
  return stats;
}

}  // namespace pagoda
