#include "manager/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "pools/check.h"

namespace pagoda {

PrefixTree::PrefixTree(const BlockStore* store)
    : store_(store),
      nodes_(store->capacity()),
      buckets_(std::bit_ceil(store->capacity() / 4 + 1), kNoBlock),
      bucket_mask_(buckets_.size() - 1) {}

NodeRef PrefixTree::AcquireRoot(const NamespaceKey& key) {
  const auto [it, is_new] = root_index_.try_emplace(key, 0);
  if (is_new) {
    if (free_roots_.empty()) {
      free_roots_.push_back(static_cast<uint32_t>(roots_.size()));
      roots_.emplace_back();
    }
    it->second = free_roots_.back();
    free_roots_.pop_back();
    roots_[it->second] = {.key = key, .hash = HashNamespace(key)};
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
  if (root.users != 0 || root.children.count != 0) return;
  root_index_.erase(root.key);
  root = {};
  free_roots_.push_back(index);
}

std::optional<NodeRef> PrefixTree::FindRoot(const NamespaceKey& key) const {
  const auto it = root_index_.find(key);
  if (it == root_index_.end()) return std::nullopt;
  return NodeRef::Root(it->second);
}

const NamespaceKey& PrefixTree::NamespaceOf(BlockId id) const {
  NodeRef node = parent(id);
  while (!node.is_root()) node = parent(node.block());
  return key(node);
}

PrefixTree::Children& PrefixTree::children(NodeRef node) {
  return node.is_root() ? roots_[node.root()].children : nodes_[node.block().value()].children;
}

const PrefixTree::Children& PrefixTree::children(NodeRef node) const {
  return node.is_root() ? roots_[node.root()].children : nodes_[node.block().value()].children;
}

bool PrefixTree::IsTail(BlockId id) const {
  return (*store_)[id].token_count < store_->tokens_per_block();
}

bool PrefixTree::IsChild(BlockId id, NodeRef parent, absl::Span<const TokenId> tokens) const {
  return nodes_[id.value()].parent == parent && store_->content(id) == tokens;
}

BlockId PrefixTree::FindChild(NodeRef parent, absl::Span<const TokenId> tokens) const {
  const Children& siblings = children(parent);
  const bool has_direct = siblings.direct != kNoBlock;
  if (has_direct && store_->content(siblings.direct) == tokens) return siblings.direct;
  if (siblings.count == (has_direct ? 1 : 0)) return kNoBlock;
  return FindInIndex(parent, HashBlock(hash(parent), tokens), tokens);
}

BlockId PrefixTree::FindTail(NodeRef parent, absl::Span<const TokenId> tokens) const {
  if (children(parent).had_tails == 0) return kNoBlock;
  for (size_t n = std::min<size_t>(tokens.size(), store_->tokens_per_block() - 1); n > 0; --n) {
    const BlockId tail = FindChild(parent, tokens.first(n));
    if (tail != kNoBlock) return tail;
  }
  return kNoBlock;
}

BlockId PrefixTree::FindInIndex(NodeRef parent, BlockHash hash,
                                absl::Span<const TokenId> tokens) const {
  BlockId id = buckets_[hash.value() & bucket_mask_];
  while (id != kNoBlock) {
    const Node& node = nodes_[id.value()];
    if (node.hash == hash && IsChild(id, parent, tokens)) return id;
    id = node.next_in_bucket;
  }
  return kNoBlock;
}

void PrefixTree::Insert(BlockId id, NodeRef parent) {
  PAGODA_CHECK(parent.is_root() || !IsTail(parent.block()), "rule 12: a tail has no children");
  Node& node = nodes_[id.value()];
  node.parent = parent;
  node.hash = HashBlock(hash(parent), store_->content(id));
  node.children = {};

  Children& siblings = children(parent);
  if (siblings.count == 0) siblings.had_tails = 0;
  siblings.count = siblings.count + 1;
  if (IsTail(id)) siblings.had_tails = 1;
  if (siblings.direct == kNoBlock) {
    siblings.direct = id;
  } else {
    node.next_in_bucket = std::exchange(Bucket(node.hash), id);
  }
}

void PrefixTree::Erase(BlockId id) {
  Node& node = nodes_[id.value()];
  PAGODA_CHECK(node.children.count == 0, "rule 13: nothing cached becomes unreachable");
  const NodeRef parent = node.parent;
  Children& siblings = children(parent);
  if (siblings.direct == id) {
    siblings.direct = kNoBlock;
  } else {
    RemoveFromIndex(id);
  }
  siblings.count = siblings.count - 1;
  node = {};
  if (parent.is_root()) DropRootIfUnused(parent.root());
}

void PrefixTree::RemoveFromIndex(BlockId id) {
  BlockId* link = &Bucket(nodes_[id.value()].hash);
  while (*link != id) {
    PAGODA_CHECK(*link != kNoBlock, "a node is its parent's direct child or in the index");
    link = &nodes_[link->value()].next_in_bucket;
  }
  *link = nodes_[id.value()].next_in_bucket;
}

void PrefixTree::Clear() {
  std::fill(nodes_.begin(), nodes_.end(), Node{});
  std::fill(buckets_.begin(), buckets_.end(), kNoBlock);
  for (uint32_t i = 0; i < roots_.size(); ++i) {
    const bool had_children = roots_[i].children.count != 0;
    roots_[i].children = {};
    if (had_children) DropRootIfUnused(i);
  }
}

}  // namespace pagoda
