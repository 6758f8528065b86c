// The cached blocks of one window: how a block enters the prefix tree and how it leaves.
#ifndef PAGODA_MANAGER_WINDOW_CACHED_BLOCKS_H_
#define PAGODA_MANAGER_WINDOW_CACHED_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/tier_residency.h"
#include "manager/tree/prefix_tree.h"
#include "manager/window/block_holds.h"
#include "manager/window/publishable_prefixes.h"
#include "manager/window/window_counts.h"
#include "manager/window/window_part.h"
#include "manager/window/window_pins.h"
#include "pools/types.h"

namespace pagoda {

// Nothing else takes a block out of the tree, so each exit has its event, its count and its order
// of effects. A block enters by the part that has its content (WindowSequences, WindowRestore),
// which then calls RecordStored(). Thread-compatible.
//
// Invariants
// 1. Each block that enters or leaves the tree has one Stored or Removed event, unless a reset has
// cut it off.
// 2. Full attention: the parent of a held cached block is held, and no block lies in a nearer tier
// than its parent. So all blocks that nothing holds can be evicted, leaves first.
// 3. Only sliding windows have holes. A hole has children, and nothing holds it. There are at most
// max_holes.
// 4. Blocks that a reset has cut off keep all of the above until FreeCutOff() reaches them. They
// lie under other roots, so no match finds them, and no event mentions them any more. No pin holds
// them, and none has an id below next_cut_off_.
class CachedBlocks final : private WindowPart, public CacheExit {
 public:
  CachedBlocks(const WindowFloor& floor, WindowCounts& counts, BlockHolds& holds, WindowPins& pins,
               PublishablePrefixes& publishable);

  bool in_tree(BlockId id) const { return store_[id].in_tree(); }
  uint32_t holes() const { return holes_; }

  // --- Fresh blocks, for which cached ones are evicted ---

  // REQUIRES: out.size() <= available().
  void Take(OperationScope& op, BlockState state, absl::Span<BlockHandle> out);

  // --- Entering ---

  // Counts and announces a block that has entered the tree below `root`.
  void RecordStored(OperationScope& op, BlockId id, NodeRef root, const BlockKey& key);
  // A hole of an earlier run is in the tree.
  void AddHole() { ++holes_; }
  // Counts and announces a hole that has bytes again, as RecordStored() does for a block.
  void FillHole(OperationScope& op, BlockId id, NodeRef root);
  // The cached tails with which this content begins and that nothing holds. Beside the longer block
  // they are no use.
  using Prefixes = absl::InlinedVector<BlockId, 4>;
  Prefixes EvictablePrefixes(NodeRef parent, const BlockKey& key) const;
  void RemovePrefixes(OperationScope& op, const Prefixes& prefixes);

  // --- Leaving ---

  // The remains of a block that leaves the tree.
  enum class Remains : uint8_t {
    kNothing,  // Its slot and its id are free.
    kHole,     // Its node stays for the children.
    kSlot,     // It is a private block now, in its slot, for its holders or its next one.
  };
  // The only way out of the tree, but for the victims that Take() reuses. The order of the effects
  // is always the same: the event, the clock, the residency, the node, the holes above. REQUIRES:
  // the block is cached, and no pin holds it. For kNothing and kHole nothing holds it. For kNothing
  // and kSlot it has no children.
  void LeaveTree(OperationScope& op, BlockId id, RemovalReason reason, Remains remains);
  // Takes a block and all blocks below it out of the tree. Held blocks become private, the others
  // become free. Returns how many cached blocks left.
  uint64_t CutSubtree(OperationScope& op, BlockId top, RemovalReason reason);

  // --- Leaving as the residency wants it: see CacheExit ---

  // A victim with children becomes a hole. If the window can have no more holes, the blocks below
  // leave with it. The same happens under full attention if the victim has lost its own copy on
  // disk and the blocks below still have theirs.
  void Evict(OperationScope& op, BlockId victim, RemovalReason reason) override;
  // The bytes of a block in the tree are lost. The block falls to its next copy, if it has one and
  // nothing holds the block. Otherwise it leaves the tree, with all blocks below it.
  void Lose(OperationScope& op, BlockId id) override;
  void Used(BlockId id) override { publishable_.Used(id); }
  // Whether `block` is current (its generation) and has its nearest copy in `slot`.
  bool Owns(BlockRef block, SlotRef slot) const;
  // A copy to `slot` failed. If the slot is a duplicate of the block, the block loses that
  // duplicate.
  void LoseLowerCopy(BlockRef block, SlotRef slot);

  // --- A reset ---

  // Empties the tree at once: cuts off all cached blocks. Returns how many. REQUIRES: no block is
  // pinned, and nothing is cut off. Cost: O(1).
  uint64_t CutOffTree();
  // Releases blocks that were cut off: those that nothing holds become free, those that sequences
  // hold become private. Looks at `max_blocks` ids. Returns how many it looked at. If these are
  // fewer, no cut-off block is left. Leaves go first, so the tree is valid after each.
  uint32_t FreeCutOff(OperationScope& op, uint32_t max_blocks);
  // Whether cut-off blocks are left. Such a block is evictable unless held, and no event mentions
  // it.
  bool has_cut_off() const { return next_cut_off_ < store_.num_ids(); }
  bool IsCutOff(BlockId id) const { return tree_.IsCutOff(id); }

  // For tests. Stops the process unless the invariants hold, and the tree's.
  void CheckInvariants() const;

 private:
  size_t ReuseVictims(OperationScope& op, BlockState state, absl::Span<BlockHandle> out);
  // Takes a block without children out of the tree. Its holders keep it.
  void CutLeaf(OperationScope& op, BlockId id, RemovalReason reason) {
    LeaveTree(op, id, reason, store_[id].refs == 0 ? Remains::kNothing : Remains::kSlot);
  }
  void EraseHoles(NodeRef node);
  void EraseFromTree(BlockId id);
  // REQUIRES: the block is in the tree.
  void CheckPlaceInTree(BlockId id) const;

  WindowCounts& counts_;
  BlockHolds& holds_;
  WindowPins& pins_;
  PublishablePrefixes& publishable_;
  uint32_t holes_ = 0;
  uint32_t next_cut_off_;  // No block with a lower id is cut off.
  // The cut-off block that leaves next. kNoBlock: FreeCutOff() looks from next_cut_off_ on.
  BlockId cut_off_ = kNoBlock;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_CACHED_BLOCKS_H_
