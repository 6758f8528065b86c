#include "manager/window/window_counts.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace pagoda {
namespace {

void AddTo(WindowCounters& sum, const TenantCounters& tenant) {
  const auto removed = [&](RemovalReason reason) {
    uint64_t blocks = 0;
    for (const auto& by_reason : tenant.removed_blocks) {
      blocks += by_reason[static_cast<size_t>(reason)];
    }
    return blocks;
  };
  sum.allocated_blocks += tenant.allocated_blocks;
  sum.evicted_blocks += removed(RemovalReason::kEvicted);
  sum.displaced_blocks += removed(RemovalReason::kDisplaced);
  sum.lost_blocks += removed(RemovalReason::kLost);
  sum.prefix_lookup_tokens += tenant.prefix_lookup_tokens;
  for (size_t t = 0; t < kMaxTiers; ++t) sum.prefix_hit_tokens += tenant.prefix_hit_tokens[t];
  for (size_t t = 1; t < kMaxTiers; ++t) sum.lower_hit_tokens += tenant.prefix_hit_tokens[t];
}

uint64_t Sum(const std::vector<uint32_t>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
}

// The blocks of the prompt that could match. Its last token is never matched, but all keys can be.
uint32_t LookupBlocks(const Sequence& sequence, TokensPerBlock tokens_per_block) {
  if (sequence.prompt_tokens == 0 || sequence.uncounted) return 0;
  return tokens_per_block.BlockForToken(sequence.prompt_tokens - (sequence.keyed ? 0 : 1));
}

}  // namespace

WindowCounts::WindowCounts(const WindowFloor& floor)
    : WindowPart(floor),
      tenant_counters_(options_.tenants->size()),
      reuse_intervals_(options_.reuse_sample),
      reuse_distances_({.capacity_blocks = Sum(options_.BlocksPerTier()),
                        .max_samples = sliding() ? 0 : options_.max_distance_samples,
                        .policy = options_.policy}) {}

void WindowCounts::AddStats(WindowStats* stats) const {
  stats->counters = counters_;
  stats->tenants = tenant_counters_;
  if (!accounts().any()) stats->tenants.front().removed_blocks = default_tenant_removed_;
  stats->reuse_intervals = reuse_intervals_.histograms();
  stats->reuse_distances = reuse_distances_.counts();
  for (const TenantCounters& tenant : stats->tenants) AddTo(stats->counters, tenant);
}

void WindowCounts::UnfollowRemoved(const OperationScope& op, BlockId id, RemovalReason reason) {
  Block& block = store_[id];
  block.followed = 0;
  // In a sliding window a held block can leave too, because a block above it leaves.
  const bool was_evicted =
      (reason == RemovalReason::kEvicted || reason == RemovalReason::kDisplaced) && block.refs == 0;
  if (was_evicted) {
    reuse_intervals_.Evicted(id, block.tier(), op.now);
  } else {
    reuse_intervals_.Left(id, block.tier(), op.now);
  }
}

// --- Sequences ---

void WindowCounts::CountLookup(OperationScope& op, uint32_t lookup_tokens,
                               const PrefixMatch& match) {
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

void WindowCounts::CountMatch(OperationScope& op, Sequence& sequence, const PrefixMatch& match,
                              MatchTail tail, uint32_t fresh) {
  if (!sequence.uncounted) {
    CountLookup(op, sequence.prompt_tokens, match);
    for (size_t i = match.first; i < match.blocks.size(); ++i) NoteMatched(op, match.blocks[i]);
    if (tail != MatchTail::kNone) NoteMatched(op, match.source);
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

void WindowCounts::CountPublished(const Sequence& sequence, uint32_t first, uint32_t end) {
  const uint32_t looked_at = std::min(end, LookupBlocks(sequence, tokens_per_block()));
  if (!sliding() && first < looked_at) reuse_distances_.CountLookups(0, looked_at - first);
}

// The sequence published the block, which is in the sample.
void WindowCounts::NotePublished(const Sequence& sequence, SequenceBlocks& blocks, uint32_t index,
                                 BlockId id) {
  const BlockHash hash = tree_.hash(id);
  const bool is_whole = store_[id].token_count == tokens_per_block().value();
  if (is_whole && index < LookupBlocks(sequence, tokens_per_block())) {
    reuse_distances_.Missed(hash, tree_.facts(id), blocks.followed);
  } else {
    reuse_distances_.Published(hash, tree_.facts(id), blocks.followed);
  }
}

}  // namespace pagoda
