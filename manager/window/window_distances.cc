// What the window counts of the prompts that sequences look up, for hit rates and advice.
#include <algorithm>

#include "manager/window/window_block_manager.h"

namespace pagoda {

namespace {

// The blocks of the prompt that could match. Its last token is never matched, but all keys can be.
uint32_t LookupBlocks(const Sequence& sequence, TokensPerBlock tokens_per_block) {
  if (sequence.prompt_tokens == 0 || sequence.uncounted) return 0;
  return tokens_per_block.BlockForToken(sequence.prompt_tokens - (sequence.keyed ? 0 : 1));
}

}  // namespace

void WindowBlockManager::CountLookup(OperationScope& op, uint32_t lookup_tokens,
                                     const Match& match) {
  if (!match.blocks.empty()) tree_.CountMatchEnd(match.blocks.back());
  TenantCounters& counters = tenant_counters_[op.tenant.value()];
  counters.prefix_lookup_tokens += lookup_tokens;
  counters.prefix_hit_tokens.front() += match.tokens;
  if (!residency_.slots().has_lower()) return;
  const auto count = [&](BlockId id, uint32_t tokens) {
    if (store_[id].state() != BlockState::kCached) return;
    counters.prefix_hit_tokens.front() -= tokens;
    counters.prefix_hit_tokens[store_[id].tier_value] += tokens;
  };
  for (size_t i = match.first; i < match.blocks.size(); ++i) {
    count(match.blocks[i], tokens_per_block().value());
  }
  if (match.source != kNoBlock) count(match.source, match.source_tokens);
}

// All that the match of a sequence's prompt counts for. Called before the match is held, and before
// the sequence takes `fresh` blocks.
void WindowBlockManager::CountMatch(OperationScope& op, Sequence& sequence, const Match& match,
                                    Tail tail, uint32_t fresh) {
  if (!sequence.uncounted) {
    CountLookup(op, sequence.prompt_tokens, match);
    for (size_t i = match.first; i < match.blocks.size(); ++i) NoteMatched(op, match.blocks[i]);
    if (tail != Tail::kNone) NoteMatched(op, match.source);
  }
  if (sliding()) return;
  SequenceBlocks& blocks = BlocksOf(sequence);
  blocks.followed = reuse_distances_.Begin();
  if (!sequence.uncounted) {
    reuse_distances_.CountRequest(op.now);
    reuse_distances_.CountLookups(match.blocks.size(), 0);
  }
  for (const BlockId id : match.blocks) {
    const BlockHash hash = tree_.hash(id);
    if (sequence.uncounted) {
      reuse_distances_.Published(hash, tree_.facts(id), blocks.followed);
    } else {
      reuse_distances_.Hit(hash, tree_.facts(id), blocks.followed);
    }
  }
  // Blocks in transit between tiers are in the tree, but neither held nor evictable.
  const uint32_t used = residency_.counts().held_blocks() + residency_.counts().evictable_blocks();
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
