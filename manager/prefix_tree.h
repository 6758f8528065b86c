// The prefix tree of one window: which cached block follows which, found by content.
#ifndef PAGODA_MANAGER_PREFIX_TREE_H_
#define PAGODA_MANAGER_PREFIX_TREE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "events/block_hash.h"
#include "manager/block_store.h"
#include "pools/types.h"

namespace pagoda {

// What blocks hang under: another block, or the root of a namespace.
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

// Thread-compatible. Nodes are indexed by block id; a node's content is its block's tokens in the
// store, which do not change while the node is in the tree.
//
// Invariants
// 1. A node's parent is in the tree, and holds tokens_per_block tokens: a tail (fewer) has no
// children.
// 2. No two children of one parent have the same content.
// 3. A node's hash is HashBlock(its parent's hash, its content). Nodes are found by hash and told
// apart by content.
// 4. A root lives as long as it has children or users.
class PrefixTree {
 public:
  // `store` outlives the tree. Takes its memory at once: 25 bytes a block.
  explicit PrefixTree(const BlockStore* store);

  // The root of a namespace, made if need be, with one user more.
  NodeRef AcquireRoot(const NamespaceKey& key);
  void ReleaseRoot(NodeRef root);
  // The root, if the namespace has one.
  std::optional<NodeRef> FindRoot(const NamespaceKey& key) const;
  const NamespaceKey& key(NodeRef root) const { return roots_[root.root()].key; }
  // The namespace that a cached block belongs to. Cost: O(depth).
  const NamespaceKey& NamespaceOf(BlockId id) const;

  // The child of `parent` whose content is `tokens`; kNoBlock where there is none.
  BlockId FindChild(NodeRef parent, absl::Span<const TokenId> tokens) const;
  // The longest tail under `parent` that is a prefix of `tokens`; kNoBlock where there is none.
  BlockId FindTail(NodeRef parent, absl::Span<const TokenId> tokens) const;

  // REQUIRES: `parent` is in the tree and no tail; no child of it has the content of `id`.
  void Insert(BlockId id, NodeRef parent);
  // REQUIRES: `id` is in the tree and has no children.
  void Erase(BlockId id);
  // Forgets every node and every root without users. The users' roots stay, without children. Cost:
  // O(capacity).
  void Clear();

  uint32_t num_children(BlockId id) const { return nodes_[id.value()].children.count; }
  NodeRef parent(BlockId id) const { return nodes_[id.value()].parent; }
  BlockHash hash(BlockId id) const { return nodes_[id.value()].hash; }
  BlockHash hash(NodeRef node) const {
    return node.is_root() ? roots_[node.root()].hash : hash(node.block());
  }

 private:
  struct Children {
    uint32_t count : 31 = 0;
    uint32_t had_tails : 1 = 0;  // Since there were no children at all.
    // One child is linked here and not in the index; kNoBlock where there is none. In most of a
    // tree it is the only one, so that a walk, an insertion and an eviction touch no other memory
    // than the chain of blocks itself.
    BlockId direct = kNoBlock;
  };
  struct Node {
    NodeRef parent;
    BlockId next_in_bucket = kNoBlock;  // Of a node in the index.
    BlockHash hash;
    Children children;
  };
  struct Root {
    NamespaceKey key;
    BlockHash hash;
    Children children;
    uint32_t users = 0;
  };

  Children& children(NodeRef node);
  const Children& children(NodeRef node) const;
  bool IsTail(BlockId id) const;
  bool IsChild(BlockId id, NodeRef parent, absl::Span<const TokenId> tokens) const;
  BlockId FindInIndex(NodeRef parent, BlockHash hash, absl::Span<const TokenId> tokens) const;
  void RemoveFromIndex(BlockId id);
  BlockId& Bucket(BlockHash hash) { return buckets_[hash.value() & bucket_mask_]; }
  void DropRootIfUnused(uint32_t index);

  const BlockStore* const store_;
  std::vector<Node> nodes_;
  // The index: heads of the chains, by hash, of the nodes that are not their parent's direct child.
  // A power of two, about a fourth of the blocks.
  std::vector<BlockId> buckets_;
  uint64_t bucket_mask_;

  std::vector<Root> roots_;
  std::vector<uint32_t> free_roots_;
  absl::flat_hash_map<NamespaceKey, uint32_t> root_index_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_PREFIX_TREE_H_
