// The prefix tree, rebuilt from events alone, as every subscriber can. It proves the law of
// events/README.md.
#ifndef PAGODA_TESTS_EVENTS_SHADOW_TREE_H_
#define PAGODA_TESTS_EVENTS_SHADOW_TREE_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "events/event.h"
#include "events/tree_entry.h"

namespace pagoda {

// A TreeEntry that refers to its parts.
struct TreeEntryView {
  BlockId id;
  BlockHash hash;
  BlockId parent = kNoBlock;
  const NamespaceKey& name_space;
  BlockKey key;
  Tier tier = kPrimaryTier;
  Priority priority = kDefaultPriority;
  TierSet lower;
};

// The trees of all windows. Thread-compatible.
class ShadowTree {
 public:
  // Applies the next event. Errors: FailedPrecondition for an event that does not fit. Then the
  // tree means nothing any more. These do not fit:
  // * a revision that does not follow the previous one
  // * a block stored twice
  // * a hash that is not the block's
  // * words that are not a key, in a keyed namespace
  // * another namespace than the parent's
  // * a change from another value than the current one
  // * a lower copy in a tier that is not farther
  // * a removal of a block that is not cached
  // * under full attention: a parent that is not cached, a removal before that of the children, a
  //   block in a nearer tier than its parent
  absl::Status Apply(const Event& event);

  // Forgets the tree, because a snapshot follows (events/snapshot.h). Until EndSnapshot, Apply gets
  // events with revision 0, and events about blocks that the snapshot has reported. Their parents
  // are not checked yet.
  void BeginSnapshot();
  // The snapshot is complete, as of `revision`. Errors: FailedPrecondition if it is not a tree: as
  // Apply, for each block below its parent.
  absl::Status EndSnapshot(Revision revision);

  // Ascending by block id.
  std::vector<TreeEntry> Dump(WindowSize window) const;

  // Compares a window's tree with the blocks that `visit_all` shows. `visit_all` calls its argument
  // for each cached block, ascending by id. Copies nothing. Errors: FailedPrecondition with a block
  // that differs, and how.
  using TreeVisitor = absl::FunctionRef<void(const TreeEntryView&)>;
  absl::Status Compare(WindowSize window, absl::FunctionRef<void(TreeVisitor)> visit_all) const;
  absl::Status Compare(WindowSize window, absl::Span<const TreeEntry> entries) const;

  Revision revision() const { return revision_; }

 private:
  // A cached block; or, in a sliding window, a hole: a block that left while other blocks are below
  // it. A hole keeps its hash and its parent's id (kNoBlock if it was never cached).
  struct Node {
    TreeEntry entry;
    bool cached = false;
    std::array<uint32_t, kMaxTiers> children = {};  // Cached ones, by tier.
    uint32_t hole_children = 0;

    uint32_t& cached_children(Tier tier) { return children[tier.value()]; }
    bool has_children() const;
  };
  struct Window {
    bool full_attention = false;
    absl::flat_hash_map<BlockId, Node> nodes;  // For each block, its parent is here too.
    size_t num_cached = 0;
  };

  // A block that the snapshot has reported, with its parent's hash.
  struct Told {
    TreeEntry entry;
    BlockHash parent_hash;
  };
  using ToldBlocks = absl::flat_hash_map<BlockId, Told>;

  absl::Status ApplyToSnapshot(const Event& event);
  // Puts a block into the window. Puts its parent there first.
  static absl::Status Place(Window& window, ToldBlocks& told, BlockId id);

  // Calls `store` for each block of the event, with its parent's hash.
  using StoreBlock = absl::FunctionRef<absl::Status(BlockHash parent_hash, TreeEntry entry)>;
  static absl::Status ForEachStored(const StoredEvent& stored, StoreBlock store);
  static absl::Status ApplyStored(Window& window, const StoredEvent& stored);
  static absl::Status ApplyUpdated(Window& window, const UpdatedEvent& updated);
  static absl::Status ApplyRemoved(Window& window, const RemovedEvent& removed);
  static absl::Status StoreOne(Window& window, BlockHash parent_hash, TreeEntry entry);
  static absl::Status HangBelow(Window& window, BlockHash parent_hash, const TreeEntry& entry);
  static absl::Status UpdateLower(TreeEntry& entry, const UpdatedEvent& updated);
  static absl::Status MoveOne(Window& window, Node& node, const Change<Tier>& change);
  static absl::Status RemoveOne(Window& window, BlockId id, BlockHash hash);
  static void EraseHoles(Window& window, BlockId id);

  Revision revision_;
  std::map<WindowSize, Window> windows_;
  bool in_snapshot_ = false;
  std::map<WindowSize, ToldBlocks> told_;  // By the current snapshot.
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_EVENTS_SHADOW_TREE_H_
