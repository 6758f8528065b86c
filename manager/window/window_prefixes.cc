#include "manager/window/window_prefixes.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda {
namespace {

// Reserved for a match before its length is known: a long prompt may match little.
constexpr size_t kBlocksReserved = 1024;

}  // namespace

WindowPrefixes::WindowPrefixes(const WindowFloor& floor, BlockHolds& holds, CachedBlocks& cached)
    : WindowPart(floor), holds_(holds), cached_(cached) {}

// --- Lookups ---

PrefixMatch WindowPrefixes::FindPrefix(const NamespaceKey& name_space, const PromptKey& key,
                                       Reach reach) const {
  PrefixMatch match;
  match.in_memory = reach == Reach::kMemory && residency_.slots().has_disk();
  const std::optional<NodeRef> root = tree_.FindRoot(name_space);
  if (!root.has_value()) return match;
  match.root = *root;
  match.key = key;
  const uint32_t block_tokens = tokens_per_block().value();
  NodeRef node = *root;
  std::vector<TokenExtra> scratch;
  size_t begin = 0;
  for (; key.size() - begin >= block_tokens; begin += block_tokens) {
    const BlockId child = tree_.FindChild(node, key.Block(begin, block_tokens, &scratch));
    if (child == kNoBlock) break;
    if (match.in_memory && residency_.slots().IsOnlyOnDisk(child)) {
      match.has_more_on_disk = true;
      if (!sliding()) break;
    }
    if (match.blocks.empty()) {
      match.blocks.reserve(std::min<size_t>(key.size() / block_tokens, kBlocksReserved));
    }
    match.blocks.push_back(child);
    node = NodeRef::Block(child);
  }
  match.tokens = static_cast<uint32_t>(match.blocks.size()) * block_tokens;
  if (sliding()) {
    match.runs.reserve(match.blocks.size() + 1);
    match.runs.push_back(0);
    for (uint32_t i = 0; i < match.blocks.size(); ++i) {
      match.runs.push_back(IsThere(match, i) ? match.runs.back() : i + 1);
    }
  }
  const bool ends_on_disk = match.has_more_on_disk && !sliding();
  if (begin == key.size() || key.keyed() || !tree_.has_children(node) || ends_on_disk) return match;
  const PrefixTree::Closest closest =
      tree_.FindClosest(node, key.Block(begin, block_tokens, &scratch));
  if (closest.id == kNoBlock) return match;
  if (match.in_memory && residency_.slots().IsOnlyOnDisk(closest.id)) {
    match.has_more_on_disk = true;
    return match;
  }
  match.source = closest.id;
  match.source_tokens = closest.tokens;
  match.tokens += closest.tokens;
  return match;
}

uint32_t WindowPrefixes::LowerTokens(const PrefixMatch& match) const {
  const auto is_below = [&](BlockId id) {
    const Block& block = store_[id];
    return block.state() == BlockState::kCached && block.tier() != kPrimaryTier;
  };
  uint32_t tokens = match.source != kNoBlock && is_below(match.source) ? match.source_tokens : 0;
  for (size_t i = match.first; i < match.blocks.size(); ++i) {
    if (is_below(match.blocks[i])) tokens += tokens_per_block().value();
  }
  return tokens;
}

void WindowPrefixes::CountTokensByTier(const PrefixMatch& match,
                                       std::vector<uint32_t>* tokens) const {
  const auto count = [&](BlockId id, uint32_t num_tokens) {
    if (store_[id].state() == BlockState::kCached) (*tokens)[store_[id].tier_value] += num_tokens;
  };
  for (size_t i = match.first; i < match.blocks.size(); ++i) {
    count(match.blocks[i], tokens_per_block().value());
  }
  if (match.source != kNoBlock) count(match.source, match.source_tokens);
}

BlockId WindowPrefixes::FindTail(const PrefixMatch& match, const BlockKey& key) const {
  const BlockId tail = tree_.FindChild(EndOf(match), key);
  return tail != kNoBlock && store_[tail].state() == BlockState::kCached ? tail : kNoBlock;
}

absl::InlinedVector<uint32_t, 4> WindowPrefixes::TailLengths(const PrefixMatch& match,
                                                             const BlockKey& key) const {
  absl::InlinedVector<uint32_t, 4> lengths;
  for (const BlockId tail : tree_.Beginnings(EndOf(match), key)) {
    if (store_[tail].state() == BlockState::kCached) lengths.push_back(store_[tail].token_count);
  }
  return lengths;
}

// Whether the match has bytes at this index: a hole has none.
bool WindowPrefixes::IsThere(const PrefixMatch& match, uint32_t index) const {
  if (index >= match.blocks.size()) return true;
  const BlockId id = match.blocks[index];
  return store_[id].state() == BlockState::kCached &&
         !(match.in_memory && residency_.slots().IsOnlyOnDisk(id));
}

// The cached sibling of the match's block `index` that shares most with the first `token_count`
// tokens of the key there.
PrefixTree::Closest WindowPrefixes::FindBeside(const PrefixMatch& match, uint32_t index,
                                               uint32_t token_count) const {
  const NodeRef parent = index == 0 ? match.root : NodeRef::Block(match.blocks[index - 1]);
  const size_t begin = size_t{index} * tokens_per_block().value();
  std::vector<TokenExtra> scratch;
  return tree_.FindClosest(parent, match.key.Block(begin, token_count, &scratch));
}

// Rule 7. Under full attention any length up to the match's is valid. In a sliding window its last
// tokens must be there, and the last whole block, under which the sequence continues.
uint32_t WindowPrefixes::ValidLength(const PrefixMatch& match, uint32_t limit) const {
  uint32_t length = std::min(limit, match.tokens);
  if (!sliding()) return length;
  const TokensPerBlock per_block = tokens_per_block();
  const uint32_t block_tokens = per_block.value();
  const uint64_t reach = uint64_t{options_.window.value()} - 1;
  // `begin`: the first block of the run without a gap up to the length's last token.
  const auto is_valid = [&](uint32_t tokens, uint32_t begin) {
    const uint32_t whole = per_block.BlockForToken(tokens);
    const bool reached = begin == 0 || uint64_t{tokens} >= uint64_t{begin} * block_tokens + reach;
    return reached && (whole == 0 || begin < whole);
  };
  while (length > 0) {
    const uint32_t last = per_block.BlocksFor(length) - 1;  // The block of the last token.
    const bool is_hole = !IsThere(match, last);
    // Siblings of a hole differ from it.
    if (is_hole) length = std::min(length, last * block_tokens + block_tokens - 1);
    const uint32_t begin = match.runs[last];
    if (!is_valid(length, begin)) {
      // The run is too short for the length at its end, and thus for every length that ends in it.
      // A hole precedes the run.
      length = begin == 0 ? 0 : begin * block_tokens - 1;
      continue;
    }
    if (!is_hole) return length;
    const uint32_t part = length - last * block_tokens;
    const bool whole_blocks = match.in_memory || match.key.keyed();
    const uint32_t shared = part == 0 || whole_blocks ? 0 : FindBeside(match, last, part).tokens;
    if (shared > 0 && is_valid(last * block_tokens + shared, begin)) {
      return last * block_tokens + shared;
    }
    length = last * block_tokens;
  }
  return 0;
}

void WindowPrefixes::CutMatch(PrefixMatch& match, uint32_t tokens) const {
  const TokensPerBlock per_block = tokens_per_block();
  const uint32_t whole = per_block.BlockForToken(tokens);
  match.source_tokens = per_block.OffsetInBlock(tokens);
  if (whole < match.blocks.size()) {
    match.source = match.blocks[whole];
    if (match.source_tokens != 0 && !IsThere(match, whole)) {
      const PrefixTree::Closest beside = FindBeside(match, whole, match.source_tokens);
      PAGODA_CHECK(beside.tokens == match.source_tokens,
                   "rule 7: a match is cut to a valid length");
      match.source = beside.id;
    }
    match.blocks.resize(whole);
  }
  if (match.source_tokens == 0) match.source = kNoBlock;
  match.tokens = tokens;
  match.first = sliding() ? options_.FirstNeeded(tokens) : 0;
}

bool WindowPrefixes::SourceIsWhole(const PrefixMatch& match) const {
  return match.source == kNoBlock || store_[match.source].token_count == match.source_tokens;
}

MatchDemand WindowPrefixes::DemandFor(TenantId tenant, const PrefixMatch& match,
                                      uint64_t reserved_tokens) const {
  const uint64_t fresh =
      (reserved_tokens + tokens_per_block().value() - 1) / tokens_per_block().value() -
      match.blocks.size();
  uint32_t onboards = 0, matched_evictable = 0, charged = 0;
  // The tenant is charged for blocks that it does not hold yet. Among its own blocks, these are the
  // ones that nothing holds.
  const auto count_charge = [&](BlockId id, const Block& block) {
    if (accounts().any() && !accounts().Holds(id, tenant, block.refs)) ++charged;
  };
  for (size_t i = match.first; i < match.blocks.size(); ++i) {
    const BlockId id = match.blocks[i];
    const Block& block = store_[id];
    if (block.tier() != kPrimaryTier) {
      ++onboards;
      // Its own block that a pin holds in a lower tier is charged in that tier.
      if (accounts().any() && accounts().owner(id) == tenant) {
        ++charged;
        continue;
      }
    } else if (block.refs == 0) {
      ++matched_evictable;
    }
    count_charge(id, block);
  }
  const auto needs = [&] {
    return BlockNeeds{
        .pool = {fresh + onboards, residency_.counts().available() - matched_evictable},
        .quota = {fresh + charged, accounts().Left(kPrimaryTier, tenant)}};
  };
  MatchDemand demand{.needs = needs()};
  demand.fits = demand.needs.met();
  if (match.source == kNoBlock) return demand;
  const Block& source = store_[match.source];
  const bool evictable = source.tier() == kPrimaryTier && source.refs == 0;
  const bool can_take = evictable && !tree_.has_children(match.source) &&
                        !residency_.copies().IsTouched(match.source);
  const bool is_tail = source.token_count < tokens_per_block().value();
  if (evictable) ++matched_evictable;
  // The tenant holds the source during the copy. Its own source in a lower tier is charged there.
  if (source.tier() == kPrimaryTier || accounts().owner(match.source) != tenant) {
    count_charge(match.source, source);
  }
  const BlockNeeds to_copy = needs();
  demand.tail = can_take && ((is_tail && SourceIsWhole(match)) || !to_copy.met())
                    ? MatchTail::kTakeOver
                    : MatchTail::kCopy;
  if (demand.tail == MatchTail::kTakeOver) return demand;
  demand.needs = to_copy;
  demand.fits = to_copy.met();
  return demand;
}

WindowPrefixes::Held WindowPrefixes::HeldIn(const PrefixMatch& match, TenantId tenant) const {
  Held held;
  for (size_t i = match.first; i < match.blocks.size(); ++i) {
    const Block& block = store_[match.blocks[i]];
    if (block.tier() != kPrimaryTier || block.refs == 0) continue;
    ++held.by_any;
    if (!accounts().any() || accounts().Holds(match.blocks[i], tenant, block.refs))
      ++held.by_tenant;
  }
  return held;
}

std::vector<BlockId> WindowPrefixes::PinnableBlocks(const PrefixMatch& match) const {
  std::vector<BlockId> blocks(match.blocks.begin() + match.first, match.blocks.end());
  if (match.source != kNoBlock) blocks.push_back(match.source);
  return blocks;
}

void WindowPrefixes::Inspect(const PrefixMatch& match, std::vector<InspectedBlock>* out) const {
  const uint32_t block_tokens = tokens_per_block().value();
  const auto add = [&](BlockId id, size_t index, uint32_t token_count) {
    const Block& block = store_[id];
    if (block.state() != BlockState::kCached) return;
    out->push_back({.window = window(),
                    .token_start = static_cast<uint32_t>(index) * block_tokens,
                    .token_count = token_count,
                    .block = store_.handle(id),
                    .tier = block.tier(),
                    .lower = residency_.slots().LowerTiers(id),
                    .hash = tree_.hash(id),
                    .priority = block.priority(),
                    .holders = block.refs,
                    .pinned = block.pinned != 0});
  };
  for (size_t i = 0; i < match.blocks.size(); ++i) add(match.blocks[i], i, block_tokens);
  if (match.source != kNoBlock) add(match.source, match.blocks.size(), match.source_tokens);
}

// --- Operations on a prefix ---

uint32_t WindowPrefixes::Offload(OperationScope& op, const PrefixMatch& match) {
  if (!residency_.slots().has_lower()) return 0;
  uint32_t moved = 0;
  std::vector<BlockId> path = match.blocks;
  if (match.source != kNoBlock) path.push_back(match.source);
  for (size_t i = path.size(); i-- > 0;) {
    const BlockId id = path[i];
    const Block& block = store_[id];
    if (block.state() != BlockState::kCached || block.tier() != kPrimaryTier) continue;
    if (block.refs != 0 || !residency_.candidates().IsCandidate(id)) {
      if (sliding()) continue;
      break;  // The block above is held, or has children in its tier too.
    }
    const TierMoves::Offloaded offloaded = residency_.moves().Offload(op, id);
    if (offloaded == TierMoves::Offloaded::kNoSpace) break;
    if (offloaded == TierMoves::Offloaded::kMoved) ++moved;
  }
  return moved;
}

uint32_t WindowPrefixes::Prefetch(OperationScope& op, const PrefixMatch& match) {
  if (!residency_.slots().has_lower()) return 0;
  const std::vector<BlockId> path = HoldInMemory(op, match);
  uint32_t moved = 0;
  for (const BlockId id : path) {
    if (store_[id].state() != BlockState::kCached || store_[id].tier() == kPrimaryTier) continue;
    if (residency_.counts().available(op.tenant) == 0) break;
    residency_.moves().Onboard(op, id);
    ++moved;
  }
  for (size_t i = path.size(); i-- > 0;) holds_.EndHold(op, path[i], op.tenant);
  return moved;
}

std::vector<BlockId> WindowPrefixes::HoldInMemory(OperationScope& op, const PrefixMatch& match) {
  std::vector<BlockId> path;
  for (const BlockId id : PinnableBlocks(match)) {
    if (residency_.slots().IsOnlyOnDisk(id)) continue;
    holds_.Hold(op, id, op.tenant);
    path.push_back(id);
  }
  return path;
}

Ticket WindowPrefixes::Fetch(OperationScope& op, const PrefixMatch& match, absl::Time deadline,
                             uint32_t* fetched) {
  if (!residency_.slots().has_disk()) return {};
  // Holds the blocks above in memory, so they stay there.
  const std::vector<BlockId> path = HoldInMemory(op, match);
  const Ticket last = residency_.fetches().Fetch(op, PinnableBlocks(match), deadline, fetched);
  for (size_t i = path.size(); i-- > 0;) holds_.EndHold(op, path[i], op.tenant);
  return last;
}

uint64_t WindowPrefixes::Invalidate(OperationScope& op, const NamespaceKey& name_space,
                                    const PromptKey& prefix) {
  const std::optional<NodeRef> root = tree_.FindRoot(name_space);
  if (!root.has_value()) return 0;
  const uint32_t block_tokens = tokens_per_block().value();
  NodeRef node = *root;
  std::vector<TokenExtra> scratch;
  size_t begin = 0;
  for (; prefix.size() - begin > block_tokens; begin += block_tokens) {
    const BlockId child = tree_.FindChild(node, prefix.Block(begin, block_tokens, &scratch));
    if (child == kNoBlock) return 0;
    node = NodeRef::Block(child);
  }
  const BlockKey rest = prefix.Block(begin, block_tokens, &scratch);
  uint64_t removed = 0;
  for (const BlockId child : tree_.Children(node, rest)) {
    // A hole can have left with blocks that were cut before it.
    if (store_[child].in_tree())
      removed += cached_.CutSubtree(op, child, RemovalReason::kInvalidated);
  }
  return removed;
}

uint32_t WindowPrefixes::SetRetention(OperationScope& op, const PrefixMatch& match,
                                      const SequenceRetention& retention, TenantId tenant) {
  uint32_t named = 0;
  std::vector<BlockId> path = match.blocks;
  if (match.source != kNoBlock) path.push_back(match.source);
  for (size_t i = 0; i < path.size(); ++i) {
    if (store_[path[i]].state() != BlockState::kCached) continue;
    const auto first_token = static_cast<uint32_t>(i) * tokens_per_block().value();
    const std::optional<BlockRetention> wish = RetentionOf(retention, match.tokens, first_token);
    if (wish.has_value() && holds_.ApplyRetention(op, path[i], *wish, tenant)) ++named;
  }
  return named;
}

}  // namespace pagoda
