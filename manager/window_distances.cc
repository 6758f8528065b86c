// What the window tells ReuseDistances.
#include <algorithm>

#include "manager/window_block_manager.h"

namespace pagoda {

namespace {

// The blocks of the prompt that could match. Its last token is never matched, but all keys can be.
uint32_t LookupBlocks(const Sequence& sequence, TokensPerBlock tokens_per_block) {
  if (sequence.prompt_tokens == 0) return 0;
  return tokens_per_block.BlockForToken(sequence.prompt_tokens - (sequence.keyed ? 0 : 1));
}

}  // namespace

// Called before the match is held, and before the sequence takes `fresh` blocks.
void WindowBlockManager::CountMatch(OperationScope& op, SequenceBlocks& blocks, const Match& match,
                                    uint32_t fresh) {
  if (sliding()) return;
  blocks.followed = reuse_distances_.Begin();
  reuse_distances_.CountRequest(op.now);
  reuse_distances_.CountLookups(match.blocks.size(), 0);
  for (const BlockId id : match.blocks) {
    reuse_distances_.Hit(tree_.hash(id), tree_.facts(id), blocks.followed);
  }
  // Blocks in transit between tiers are in the tree, but neither held nor evictable.
  const uint32_t used = residency_.held_blocks() + residency_.evictable_blocks();
  reuse_distances_.Reserve(uint64_t{used - std::min(used, cached_blocks_)} + fresh);
}

// Counts blocks [first, end) of the sequence, which it computed.
void WindowBlockManager::CountPublished(const Sequence& sequence, uint32_t first, uint32_t end) {
  const uint32_t looked_at = std::min(end, LookupBlocks(sequence, tokens_per_block()));
  if (!sliding() && first < looked_at) reuse_distances_.CountLookups(0, looked_at - first);
}

// The sequence published the block, which is in the sample.
void WindowBlockManager::NotePublished(const Sequence& sequence, SequenceBlocks& blocks,
                                       uint32_t index, BlockId id) {
  const BlockHash hash = tree_.hash(id);
  const bool is_whole = store_[id].token_count == tokens_per_block().value();
  if (is_whole && index < LookupBlocks(sequence, tokens_per_block())) {
    reuse_distances_.Missed(hash, tree_.facts(id), blocks.followed);
  } else {
    reuse_distances_.Published(hash, tree_.facts(id), blocks.followed);
  }
}

}  // namespace pagoda
