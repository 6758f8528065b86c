#include "manager/tree/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/base/attributes.h"
#include "base/check.h"

namespace pagoda {
namespace {

// Matches end at about one block of twenty: where chats stop sharing a prefix, and where each chat
// ended when it came back.
constexpr uint32_t kIdsPerMatchCount = 16;
constexpr uint32_t kLeastMatchCounts = 64;
// How many steps up AddMatchEnds looks for another node if a node cannot be counted.
constexpr uint32_t kMostStepsUp = 64;

// A key as a string of bits. Any two keys differ at some bit, and the order of the bits is the
// order of the keys. Each token is a symbol of 2^9 bits, of which the first ones are used. Past the
// key's end all bits are 0.
//
//   0 present | 1 token id (32) | 33 extra id (64) | 97 in_item | 98 digest (4 x 64)
//   | 354 item_offset (32)
constexpr uint32_t kSymbolShift = 9;
constexpr uint32_t kSymbolMask = (1 << kSymbolShift) - 1;
constexpr uint32_t kExtraBegin = 33;
constexpr uint32_t kInItemBegin = 97;
constexpr uint32_t kDigestBegin = 98;
constexpr uint32_t kOffsetBegin = 354;
constexpr uint32_t kSameKeys = 0xFFFF'FFFF;

const TokenExtra& ExtraAt(const BlockKey& key, size_t token) {
  static constexpr TokenExtra kNone;
  return key.has_extras() ? key.extras[token] : kNone;
}

bool ExtraBitAt(const TokenExtra& extra, uint32_t place) {
  if (place < kInItemBegin) return (extra.extra_id >> (kInItemBegin - 1 - place)) & 1;
  if (place == kInItemBegin) return extra.in_item;
  if (place >= kOffsetBegin) return (extra.item_offset >> (kOffsetBegin + 31 - place)) & 1;
  const uint32_t bit = place - kDigestBegin;
  return (extra.digest[bit / 64] >> (63 - bit % 64)) & 1;
}

// 0 or 1.
uint32_t BitAt(const BlockKey& key, uint32_t bit) {
  const uint32_t token = bit >> kSymbolShift;
  const uint32_t place = bit & kSymbolMask;
  if (token >= key.tokens.size()) return 0;
  if (place >= kExtraBegin) [[unlikely]] {
    return ExtraBitAt(ExtraAt(key, token), place);
  }
  const uint64_t present_and_id = uint64_t{1} << 32 | key.tokens[token];
  return (present_and_id >> (32 - place)) & 1;
}

// The place in a symbol where two extras differ. REQUIRES: they differ.
uint32_t FirstDifference(const TokenExtra& a, const TokenExtra& b) {
  if (a.extra_id != b.extra_id) return kExtraBegin + std::countl_zero(a.extra_id ^ b.extra_id);
  if (a.in_item != b.in_item) return kInItemBegin;
  for (uint32_t i = 0; i < a.digest.size(); ++i) {
    const uint64_t differ = a.digest[i] ^ b.digest[i];
    if (differ != 0) return kDigestBegin + 64 * i + std::countl_zero(differ);
  }
  return kOffsetBegin + std::countl_zero(a.item_offset ^ b.item_offset);
}

// The first bit in which two keys differ, or kSameKeys.
uint32_t FirstDifference(const BlockKey& a, const BlockKey& b) {
  const uint32_t token = CommonTokens(a, b);
  const uint32_t symbol = token << kSymbolShift;
  if (token == std::min(a.tokens.size(), b.tokens.size())) {
    return a.tokens.size() == b.tokens.size() ? kSameKeys : symbol;
  }
  const uint32_t differ = a.tokens[token] ^ b.tokens[token];
  if (differ != 0) return symbol + 1 + std::countl_zero(differ);
  return symbol + FirstDifference(ExtraAt(a, token), ExtraAt(b, token));
}

}  // namespace

PrefixTree::PrefixTree(const BlockStore* store, size_t num_tiers)
    : store_(store),
      nodes_(store->num_ids()),
      end_tokens_(store->num_ids()),
      max_match_ends_(std::max(kLeastMatchCounts, store->num_ids() / kIdsPerMatchCount)) {
  match_counts_.reserve(max_match_ends_);
  for (size_t tier = 1; tier + 1 < num_tiers; ++tier) between_.emplace_back(store->num_ids());
}

void PrefixTree::MoveBetween(NodeRef parent, Place from, Place to) {
  if (parent.is_root()) return;
  const auto is_near = [](Place place, size_t tier) {
    return place.has_value() && place->value() <= tier;
  };
  for (size_t i = 0; i < between_.size(); ++i) {
    uint32_t& count = between_[i][parent.block().value()];
    count += static_cast<uint32_t>(is_near(to, i + 1) ? 1 : 0);
    count -= static_cast<uint32_t>(is_near(from, i + 1) ? 1 : 0);
  }
}

// --- Roots ---

NodeRef PrefixTree::AcquireRoot(const NamespaceKey& key) {
  const auto [it, is_new] = root_index_.try_emplace(key, 0);
  if (is_new || roots_[it->second].epoch != epoch_) {
    if (free_roots_.empty()) {
      free_roots_.push_back(static_cast<uint32_t>(roots_.size()));
      roots_.emplace_back();
    }
    it->second = free_roots_.back();
    free_roots_.pop_back();
    roots_[it->second] = {.key = key, .hash = HashNamespace(key), .children = {}, .epoch = epoch_};
  }
  ++roots_[it->second].users;
  return NodeRef::Root(it->second);
}

void PrefixTree::ReleaseRoot(NodeRef root) {
  PAGODA_CHECK(roots_[root.root()].users > 0, "a root is released by its users");
  --roots_[root.root()].users;
  DropRootIfUnused(root.root());
}

void PrefixTree::DropRootIfUnused(uint32_t index) {
  Root& root = roots_[index];
  if (root.users != 0 || root.children.top != kNoLink) return;
  // The namespace can have a newer root.
  const auto it = root_index_.find(root.key);
  if (it != root_index_.end() && it->second == index) root_index_.erase(it);
  root = {};
  free_roots_.push_back(index);
}

std::optional<NodeRef> PrefixTree::FindRoot(const NamespaceKey& key) const {
  const auto it = root_index_.find(key);
  if (it == root_index_.end() || roots_[it->second].epoch != epoch_) return std::nullopt;
  return NodeRef::Root(it->second);
}

NodeRef PrefixTree::RootOf(BlockId id) const {
  NodeRef node = parent(id);
  while (!node.is_root()) node = parent(node.block());
  return node;
}

// --- Finding ---

BlockId PrefixTree::Descend(Link link, const BlockKey& key) const {
  while (IsInner(link)) {
    const Node& inner = InnerAt(link);
    link = inner.below[BitAt(key, inner.bit)];
  }
  return BlockId{link};
}

// Out of line, so that FindChild needs few registers.
ABSL_ATTRIBUTE_NOINLINE BlockId PrefixTree::IfSame(BlockId id, const BlockKey& key) const {
  return SameKey(store_->key(id), key) ? id : kNoBlock;
}

BlockId PrefixTree::FindBelow(Link top, const BlockKey& key) const {
  Link child = top;
  if (IsInner(child)) [[unlikely]] {
    child = Descend(child, key).value();
  }
  const Node& node = nodes_[child];
  const TokenId* const tokens = store_->tokens(BlockId{child}).data();
  const size_t size = key.tokens.size();
  // Prefetches for a walk along a prompt: the key's next tokens and, because blocks are often taken
  // one after another, the entries behind the child's. A prefetch of any address does no harm.
  constexpr size_t kAhead = 16;
  __builtin_prefetch(key.tokens.data() + kAhead * size);
  __builtin_prefetch(tokens + kAhead * size);
  __builtin_prefetch(&node + kAhead);
  if (!node.whole || node.beside || key.has_extras()) [[unlikely]] {
    return IfSame(BlockId{child}, key);
  }
  const bool same =
      size == store_->tokens_per_block() && SameTokens(tokens, key.tokens.data(), size);
  return same ? BlockId{child} : kNoBlock;
}

PrefixTree::Closest PrefixTree::FindClosest(NodeRef parent, const BlockKey& key) const {
  const BlockId child = Descend(children(parent).top, key);
  if (child == kNoBlock) return {};
  Closest closest{.id = child, .tokens = CommonTokens(store_->key(child), key)};
  if (!IsCached(child)) {
    closest = FindClosestCached(parent, key, closest.tokens);
  }
  if (closest.tokens == 0) return {};
  if (closest.tokens < (*store_)[closest.id].token_count) {
    const BlockId exact = FindChild(parent, key.First(closest.tokens));
    if (exact != kNoBlock && IsCached(exact)) closest.id = exact;
  }
  return closest;
}

// Searches the branches beside the key's path, from its end upwards. All children in a branch share
// equally many tokens with the key: those before the branch, at most `common`.
PrefixTree::Closest PrefixTree::FindClosestCached(NodeRef parent, const BlockKey& key,
                                                  uint32_t common) const {
  struct Branch {
    Link link;
    uint32_t tokens;
  };
  absl::InlinedVector<Branch, 32> branches;
  for (Link link = children(parent).top; IsInner(link);) {
    const Node& inner = InnerAt(link);
    const uint32_t side = BitAt(key, inner.bit);
    const uint32_t shared = inner.bit >> kSymbolShift;
    branches.push_back({inner.below[1 - side], std::min(common, shared)});
    link = inner.below[side];
  }
  uint32_t left = kMostHolesPassed;
  for (; !branches.empty() && branches.back().tokens > 0; branches.pop_back()) {
    absl::InlinedVector<Link, 32> stack = {branches.back().link};
    while (!stack.empty()) {
      const Link link = stack.back();
      stack.pop_back();
      if (IsInner(link)) {
        stack.push_back(InnerAt(link).below[1]);
        stack.push_back(InnerAt(link).below[0]);
      } else if (IsCached(BlockId{link})) {
        return {.id = BlockId{link}, .tokens = branches.back().tokens};
      } else if (--left == 0) {
        return {};
      }
    }
  }
  return {};
}

std::vector<BlockId> PrefixTree::Children(NodeRef parent, const BlockKey& prefix) const {
  std::vector<BlockId> found;
  Link top = children(parent).top;
  if (top == kNoLink) return found;
  const size_t prefix_bits = prefix.tokens.size() << kSymbolShift;
  while (IsInner(top) && InnerAt(top).bit < prefix_bits) {
    top = InnerAt(top).below[BitAt(prefix, InnerAt(top).bit)];
  }
  // All remaining children agree in the prefix's bits, so it is enough to check one.
  const BlockId any = Descend(top, prefix);
  if (CommonTokens(store_->key(any), prefix) != prefix.tokens.size()) return found;

  std::vector<Link> stack = {top};
  while (!stack.empty()) {
    const Link link = stack.back();
    stack.pop_back();
    if (IsInner(link)) {
      stack.push_back(InnerAt(link).below[1]);
      stack.push_back(InnerAt(link).below[0]);
    } else {
      found.push_back(BlockId{link});
    }
  }
  return found;
}

// A child that is a prefix of the key ends where the key goes on. So it is alone on the other side
// of a branch of the key's path, at a bit that says whether there is a token.
absl::InlinedVector<BlockId, 4> PrefixTree::Prefixes(NodeRef parent, const BlockKey& key) const {
  absl::InlinedVector<BlockId, 4> prefixes;
  for (Link link = children(parent).top; IsInner(link);) {
    const Node& inner = InnerAt(link);
    const uint32_t side = BitAt(key, inner.bit);
    // The side is tested last: it is almost random, while the other condition is rarely true.
    if ((inner.bit & kSymbolMask) == 0 && side == 1) prefixes.push_back(BlockId{inner.below[0]});
    link = inner.below[side];
  }
  return prefixes;
}

// All children on the key's path agree with the child at its end up to where they branch off.
absl::InlinedVector<BlockId, 4> PrefixTree::Beginnings(NodeRef parent, const BlockKey& key) const {
  const BlockId last = Descend(children(parent).top, key);
  if (last == kNoBlock) return {};
  absl::InlinedVector<BlockId, 4> found = Prefixes(parent, key);
  found.push_back(last);
  const uint32_t common = CommonTokens(store_->key(last), key);
  const auto goes_on = [&](BlockId id) { return (*store_)[id].token_count > common; };
  found.erase(std::remove_if(found.begin(), found.end(), goes_on), found.end());
  std::reverse(found.begin(), found.end());
  return found;
}

// --- Changing ---

void PrefixTree::Insert(BlockId id, NodeRef parent, const BlockKey& key, ContentFacts facts) {
  const Block& block = (*store_)[id];
  PAGODA_CHECK(block.token_count > 0 && !has_children(id),
               "a new node has content and no children");
  if (!parent.is_root()) {
    const Block& above = (*store_)[parent.block()];
    PAGODA_CHECK(above.in_tree() && above.token_count == store_->tokens_per_block(),
                 "rule 12: a child's parent is in the tree, and no tail");
  }
  SetNode(id, parent, key, facts);
  end_tokens_[id.value()] = end_token(parent) + block.token_count;
  AddChild(children(parent), id, key);
}

void PrefixTree::AddChild(ChildSet& siblings, BlockId id, const BlockKey& key) {
  if (siblings.top == kNoLink) {
    siblings.top = id.value();
    return;
  }
  const BlockId closest = Descend(siblings.top, key);
  const uint32_t bit = FirstDifference(key, store_->key(closest));
  PAGODA_CHECK(bit != kSameKeys, "rule 10: the tree has one block for a content");
  Link* link = &siblings.top;
  while (IsInner(*link) && InnerAt(*link).bit < bit) {
    Node& inner = InnerAt(*link);
    link = &inner.below[BitAt(key, inner.bit)];
  }
  Node& inner = nodes_[id.value()];
  const uint32_t side = BitAt(key, bit);
  inner.bit = bit;
  inner.below[side] = id.value();
  inner.below[1 - side] = *link;
  *link = id.value() | kInnerBit;
}

void PrefixTree::Erase(BlockId id) {
  Node& node = nodes_[id.value()];
  PAGODA_CHECK(!has_children(id), "rule 13: no cached block becomes unreachable");
  const NodeRef parent = node.parent;
  PAGODA_CHECK(!parent.is_root() || parent.root() < roots_.size(),
               "a block that leaves the tree is in it");
  // The nodes above still have their counts, so each match is counted once.
  if (node.children.counted) {
    const uint32_t index = node.children.primary_or_count;
    const uint32_t ends = match_counts_[index].match_ends;
    match_counts_[index].primary = first_free_count_;
    first_free_count_ = index;
    if (!parent.is_root()) AddMatchEnds(parent.block(), ends);
  }
  RemoveChild(children(parent), id);
  node = {};
  if (parent.is_root()) DropRootIfUnused(parent.root());
}

void PrefixTree::AddMatchEnds(BlockId id, uint32_t count) {
  ChildSet* set = &nodes_[id.value()].children;
  if (!set->counted && (first_free_count_ != kNoCount || match_counts_.size() < max_match_ends_)) {
    if (first_free_count_ == kNoCount) {
      first_free_count_ = static_cast<uint32_t>(match_counts_.size());
      match_counts_.push_back({.primary = kNoCount});
    }
    const uint32_t index = first_free_count_;
    first_free_count_ = match_counts_[index].primary;
    match_counts_[index] = {.match_ends = count, .primary = set->primary_or_count};
    set->primary_or_count = index;
    set->counted = 1;
    return;
  }
  for (uint32_t steps = 0; !set->counted; ++steps) {
    const NodeRef above = parent(id);
    if (above.is_root() || steps == kMostStepsUp) return;
    id = above.block();
    set = &nodes_[id.value()].children;
  }
  uint32_t& ends = match_counts_[set->primary_or_count].match_ends;
  ends += std::min(count, std::numeric_limits<uint32_t>::max() - ends);
}

void PrefixTree::RemoveChild(ChildSet& siblings, BlockId id) {
  if (siblings.top == id.value()) {  // An only child.
    siblings.top = kNoLink;
    return;
  }
  const BlockKey key = store_->key(id);
  Link* link = &siblings.top;
  Link* to_last = nullptr;  // The link to the path's last inner node, which is removed with the
                            // child.
  Link* to_own = nullptr;   // The link to the inner node in the child's entry.
  while (IsInner(*link)) {
    to_last = link;
    if (*link == (id.value() | kInnerBit)) to_own = link;
    Node& inner = InnerAt(*link);
    link = &inner.below[BitAt(key, inner.bit)];
  }
  PAGODA_CHECK(*link == id.value() && to_last != nullptr, "a block that leaves the tree is in it");
  const Link last = *to_last;
  Node& inner = InnerAt(last);
  *to_last = inner.below[link == &inner.below[0] ? 1 : 0];
  if (to_own == nullptr || to_own == to_last) return;
  // The child's entry is removed, but holds an inner node that stays. This inner node moves to the
  // entry of the last inner node, whose child is below it too.
  const Node& own = nodes_[id.value()];
  inner.bit = own.bit;
  inner.below[0] = own.below[0];
  inner.below[1] = own.below[1];
  *to_own = last;
}

}  // namespace pagoda
