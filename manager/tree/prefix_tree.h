// The prefix tree of one window: which cached block follows which, found by content.
#ifndef PAGODA_MANAGER_TREE_PREFIX_TREE_H_
#define PAGODA_MANAGER_TREE_PREFIX_TREE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/big_array.h"
#include "base/check.h"
#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/event.h"
#include "manager/tree/block_store.h"
#include "manager/words/block_facts.h"
#include "pools/types.h"

namespace pagoda {

// The parent of a block: another block, or the root of a namespace.
class NodeRef {
 public:
  NodeRef() = default;
  static NodeRef Root(uint32_t index) { return NodeRef(index | kRootBit); }
  static NodeRef Block(BlockId id) { return NodeRef(id.value()); }

  bool is_root() const { return (value_ & kRootBit) != 0; }
  uint32_t root() const { return value_ & ~kRootBit; }
  BlockId block() const { return BlockId{value_}; }

  friend bool operator==(NodeRef, NodeRef) = default;

 private:
  static constexpr uint32_t kRootBit = 0x8000'0000;
  explicit NodeRef(uint32_t value) : value_(value) {}

  uint32_t value_ = kRootBit;
};

// Thread-compatible. Nodes are indexed by block id. A node's content is its block's key in the
// store, which does not change while the node is in the tree.
//
// The children of a node are a crit-bit tree over their keys (D. J. Bernstein, "Crit-bit trees";
// Morrison's PATRICIA without skipped strings). The inner nodes of the crit-bit tree lie in the
// children's own entries. To find a child, or the child that shares most with a key, touches O(log
// children) nodes on ordinary content, and only the child if there is one.
//
// Invariants
// 1. A node's parent is in the tree, and holds tokens_per_block tokens: a tail (fewer) has no
// children.
// 2. No two children of one parent have the same content.
// 3. A node's hash is HashBlock(its parent's hash, its content).
// 4. has_near_children(node, tier) counts the children that MoveChild() brought to that tier or a
// nearer one, less those that it took away from there.
// 5. A root exists as long as it has children or users. A look-up of a namespace finds the root
// that CutOff() has not passed.
// 6. match_ends(node) is the number of CountMatchEnd calls for the node, and for nodes below it
// that were erased after they were counted. At most max_match_ends() nodes are counted. A match
// that ends at a further node counts for a node above it, or not at all.
// 7. A node ends as many tokens after its parent's end as it holds, and a root ends at token 0.
class PrefixTree {
 public:
  // `store` outlives the tree. Takes its memory at once: 36 bytes for each id, 4 more for each of
  // `num_tiers` that is neither the first nor the last, and half a byte for the counts of matches.
  explicit PrefixTree(const BlockStore* store, size_t num_tiers = 2);

  // --- Roots ---

  // The root of a namespace, created if needed, with one more user.
  NodeRef AcquireRoot(const NamespaceKey& key);
  // Adds a user to a root that has users.
  void ShareRoot(NodeRef root) { ++roots_[root.root()].users; }
  void ReleaseRoot(NodeRef root);
  // The root, if the namespace has one.
  std::optional<NodeRef> FindRoot(const NamespaceKey& key) const;
  const NamespaceKey& key(NodeRef root) const { return roots_[root.root()].key; }
  // The root above a node. Cost: O(depth).
  NodeRef RootOf(BlockId id) const;

  // --- Finding ---

  // The child of `parent` whose content is `key`; kNoBlock if there is none.
  BlockId FindChild(NodeRef parent, const BlockKey& key) const {
    const Link top = children(parent).top;
    return top == kNoLink ? kNoBlock : FindBelow(top, key);
  }

  struct Closest {
    BlockId id = kNoBlock;
    uint32_t tokens = 0;  // First tokens that it shares with the key: at least 1.
  };
  // The cached child of `parent` that shares most first tokens with `key`. Among several it prefers
  // one without further tokens; otherwise it takes any, always the same one. No id if none shares a
  // token, or if the kMostHolesPassed children that share most are holes.
  static constexpr uint32_t kMostHolesPassed = 64;
  Closest FindClosest(NodeRef parent, const BlockKey& key) const;

  // The children of `parent`, in the order of their keys. With `prefix`, only those whose keys
  // begin with it. Cost: O(number returned + log children).
  std::vector<BlockId> Children(NodeRef parent, const BlockKey& prefix = {}) const;

  // The children of `parent` whose content is a prefix of `key`, shortest first. REQUIRES: `key` is
  // the content of a child. Cost: O(log children).
  absl::InlinedVector<BlockId, 4> Prefixes(NodeRef parent, const BlockKey& key) const;

  // The children of `parent` whose content is a prefix of `key`, or `key` itself, longest first.
  // `key` can be any content. Cost: O(log children + number returned).
  absl::InlinedVector<BlockId, 4> Beginnings(NodeRef parent, const BlockKey& key) const;

  // --- Changing ---

  // The tier of a child's bytes. A hole, or a block outside the tree, has its bytes nowhere.
  using Place = std::optional<Tier>;
  static constexpr Place kNowhere = std::nullopt;

  // The child's bytes are nowhere at first: see MoveChild(). REQUIRES: `parent` is in the tree and
  // no tail, and has no child whose content is `key`, the content of `id`.
  void Insert(BlockId id, NodeRef parent, const BlockKey& key, ContentFacts facts = {});
  void Insert(BlockId id, NodeRef parent) { Insert(id, parent, store_->key(id)); }
  // Inserts the only child of a block and moves its bytes to the primary tier, as Insert() and
  // MoveChild() do. REQUIRES: `parent` is in the tree, is no tail, and has no children.
  void Extend(BlockId id, BlockId parent, const BlockKey& key, ContentFacts facts) {
    Node& node = nodes_[id.value()];
    ChildSet& siblings = nodes_[parent.value()].children;
    PAGODA_CHECK(node.children.top == kNoLink && siblings.top == kNoLink,
                 "a chain grows at its end");
    SetNode(id, NodeRef::Block(parent), key, facts);
    end_tokens_[id.value()] = end_tokens_[parent.value()] + (*store_)[id].token_count;
    siblings.top = id.value();
    MoveChild(id, kNowhere, kPrimaryTier);
  }
  // Another request published the node's content. REQUIRES: `id` is in the tree.
  void SetFacts(BlockId id, ContentFacts facts) { nodes_[id.value()].facts = facts.bits(); }
  // REQUIRES: `id` is in the tree and has no children, and its bytes are nowhere by MoveChild().
  void Erase(BlockId id);
  // Whether EraseEnd() can erase the node: it ends a chain. Its parent is a block without another
  // child, and no match ended at the node.
  bool EndsChain(BlockId id) const {
    const Node& node = nodes_[id.value()];
    return node.children.top == kNoLink && !node.children.counted && !node.parent.is_root() &&
           nodes_[node.parent.block().value()].children.top == id.value();
  }
  // Removes the child's bytes from the primary tier and erases the child, as MoveChild() and
  // Erase() do. REQUIRES: EndsChain(id).
  void EraseEnd(BlockId id) {
    MoveChild(id, kPrimaryTier, kNowhere);
    Node& node = nodes_[id.value()];
    nodes_[node.parent.block().value()].children.top = kNoLink;
    node = {};
  }
  // The child's bytes move from `from` to `to`. Its parent counts it among its near children by
  // these calls alone: the tree never looks at the block's own state. REQUIRES: `id` is in the
  // tree, and its bytes are in `from`.
  void MoveChild(BlockId id, Place from, Place to) {
    const int change = (to == kPrimaryTier ? 1 : 0) - (from == kPrimaryTier ? 1 : 0);
    if (change != 0) AddPrimary(children(parent(id)), change);
    if (!between_.empty()) [[unlikely]] {
      MoveBetween(parent(id), from, to);
    }
  }
  // From now on every namespace has a new root, without children. A look-up no longer finds nodes
  // under the earlier roots. They stay as they are until they are erased. Cost: O(1).
  void CutOff() { ++epoch_; }
  // Grows with each CutOff().
  uint64_t epoch() const { return epoch_; }
  // Block::tree of a block that enters the tree now.
  uint32_t tree_bit() const { return static_cast<uint32_t>(epoch_ & 1); }
  // Whether CutOff() has passed the block, and the block has not been erased since.
  bool IsCutOff(BlockId id) const {
    const Block& block = (*store_)[id];
    return block.in_tree() && block.tree != tree_bit();
  }

  // --- How often prefixes were of use ---

  // A match ended at the block: its whole blocks from the root to there were reused. So the number
  // of matches that went through a node is the sum of match_ends over it and all nodes below it.
  // Counts roll up as in Cormode et al., "Finding hierarchical heavy hitters in data streams".
  // REQUIRES: the block is in the tree. Cost: O(1).
  void CountMatchEnd(BlockId id) { AddMatchEnds(id, 1); }
  // Saturates at its largest value. 0 for a block outside the tree.
  uint32_t match_ends(BlockId id) const {
    const ChildSet& set = nodes_[id.value()].children;
    return set.counted ? match_counts_[set.primary_or_count].match_ends : 0;
  }
  uint32_t max_match_ends() const { return max_match_ends_; }

  // A child; always the same one while the children do not change. REQUIRES: has_children(id).
  BlockId AnyChild(BlockId id) const {
    return BlockId{nodes_[id.value()].children.top & ~kInnerBit};
  }
  bool has_children(BlockId id) const { return nodes_[id.value()].children.top != kNoLink; }
  // Whether it has two children or more.
  bool branches(NodeRef node) const { return IsInner(children(node).top); }
  bool has_children(NodeRef node) const { return children(node).top != kNoLink; }
  uint32_t primary_children(BlockId id) const {
    const ChildSet& set = nodes_[id.value()].children;
    return set.counted ? match_counts_[set.primary_or_count].primary : set.primary_or_count;
  }
  // Whether it has children with bytes in `tier` or nearer. For the last tier this means any child,
  // holes included.
  bool has_near_children(BlockId id, Tier tier) const {
    if (tier == kPrimaryTier) return primary_children(id) != 0;
    const size_t i = tier.value() - 1;
    return i < between_.size() ? between_[i][id.value()] != 0 : has_children(id);
  }
  NodeRef parent(BlockId id) const { return nodes_[id.value()].parent; }
  BlockHash hash(BlockId id) const {
    const Node& node = nodes_[id.value()];
    return BlockHash{uint64_t{node.hash_high} << 32 | node.hash_low};
  }
  // The number of tokens from the prompt's start to the node's end. A keyed block holds
  // tokens_per_block tokens. REQUIRES: `id` is in the tree. Cost: O(1).
  uint32_t end_token(BlockId id) const { return end_tokens_[id.value()]; }
  uint32_t end_token(NodeRef node) const { return node.is_root() ? 0 : end_token(node.block()); }
  // The node as events name it.
  TreeBlock Named(BlockId id) const { return {id, hash(id), end_token(id)}; }
  TreeBlock Named(NodeRef node) const { return node.is_root() ? TreeBlock{} : Named(node.block()); }
  ContentFacts facts(BlockId id) const { return ContentFacts::FromBits(nodes_[id.value()].facts); }
  BlockHash hash(NodeRef node) const {
    return node.is_root() ? roots_[node.root()].hash : hash(node.block());
  }

 private:
  // A child (a leaf of the crit-bit tree), or the inner node in a child's entry.
  using Link = uint32_t;
  static constexpr Link kInnerBit = 0x8000'0000;
  static constexpr Link kNoLink = 0xFFFF'FFFF;

  // `primary_or_count`: the number of children in the primary tier. Few nodes have a match end. For
  // these it is the index of a MatchCount, which then holds both numbers.
  struct ChildSet {
    Link top = kNoLink;
    uint32_t primary_or_count : 31 = 0;
    uint32_t counted : 1 = 0;
  };
  static constexpr uint32_t kNoCount = 0xFFFF'FFFF;
  struct MatchCount {
    uint32_t match_ends = 0;
    uint32_t primary = 0;  // In a free entry: the next free one.
  };
  // 32 bytes. The inner node in a child's entry is above that child in the crit-bit tree of its
  // siblings. Of n children, n - 1 have an inner node in use.
  struct alignas(32) Node {
    NodeRef parent;
    uint32_t hash_low = 0;
    uint32_t hash_high = 0;
    ChildSet children;
    // For the inner node: the keys whose bit is 0, and those whose bit is 1.
    Link below[2] = {kNoLink, kNoLink};
    uint32_t bit : 20 = 0;  // The position in the key of the first bit that differs.
    // Copies of the block's bits, so that a walk reads the entry alone.
    uint32_t whole : 1 = 0;  // It holds tokens_per_block tokens.
    uint32_t beside : 1 = 0;
    uint32_t facts : ContentFacts::kBits = 0;
  };
  struct Root {
    NamespaceKey key;
    BlockHash hash;
    ChildSet children;
    uint32_t users = 0;
    uint64_t epoch = 0;
  };
  static_assert(sizeof(Node) == 32);

  static bool IsInner(Link link) { return (link & kInnerBit) != 0 && link != kNoLink; }
  Node& InnerAt(Link link) { return nodes_[link & ~kInnerBit]; }
  const Node& InnerAt(Link link) const { return nodes_[link & ~kInnerBit]; }

  void AddPrimary(ChildSet& set, int change) {
    if (set.counted) {
      match_counts_[set.primary_or_count].primary += static_cast<uint32_t>(change);
    } else {
      set.primary_or_count += static_cast<uint32_t>(change);
    }
  }
  void AddMatchEnds(BlockId id, uint32_t count);
  void MoveBetween(NodeRef parent, Place from, Place to);

  ChildSet& children(NodeRef node) {
    return node.is_root() ? roots_[node.root()].children : nodes_[node.block().value()].children;
  }
  const ChildSet& children(NodeRef node) const {
    return node.is_root() ? roots_[node.root()].children : nodes_[node.block().value()].children;
  }
  // The child that is reached from `link` by the key's bits, which shares most with the key;
  // kNoBlock from kNoLink.
  BlockId Descend(Link link, const BlockKey& key) const;
  BlockId FindBelow(Link top, const BlockKey& key) const;
  Closest FindClosestCached(NodeRef parent, const BlockKey& key, uint32_t common) const;
  bool IsCached(BlockId id) const { return (*store_)[id].state() == BlockState::kCached; }
  // `id` if `key` is its content, else kNoBlock.
  BlockId IfSame(BlockId id, const BlockKey& key) const;
  void SetNode(BlockId id, NodeRef parent, const BlockKey& key, ContentFacts facts) {
    const Block& block = (*store_)[id];
    const BlockHash hash = HashBlock(this->hash(parent), key);
    nodes_[id.value()] = {.parent = parent,
                          .hash_low = static_cast<uint32_t>(hash.value()),
                          .hash_high = static_cast<uint32_t>(hash.value() >> 32),
                          .whole = block.token_count == store_->tokens_per_block(),
                          .beside = block.beside,
                          .facts = facts.bits()};
  }
  void AddChild(ChildSet& siblings, BlockId id, const BlockKey& key);
  void RemoveChild(ChildSet& siblings, BlockId id);
  void DropRootIfUnused(uint32_t index);

  const BlockStore* const store_;
  BigArray<Node> nodes_;
  BigArray<uint32_t> end_tokens_;  // By id. Has a meaning only for a node.
  // For each tier but the first and the last, by id: the number of children there or nearer.
  std::vector<BigArray<uint32_t>> between_;
  const uint32_t max_match_ends_;
  std::vector<MatchCount> match_counts_;  // Reserved in full at the start.
  uint32_t first_free_count_ = kNoCount;
  std::vector<Root> roots_;
  std::vector<uint32_t> free_roots_;
  uint64_t epoch_ = 0;
  absl::flat_hash_map<NamespaceKey, uint32_t> root_index_;  // The last root of each namespace.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TREE_PREFIX_TREE_H_
