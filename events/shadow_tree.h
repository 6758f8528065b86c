// A copy of the prefix tree made from events alone: what every subscriber can have, and the proof
// of the events' law.
#ifndef PAGODA_EVENTS_SHADOW_TREE_H_
#define PAGODA_EVENTS_SHADOW_TREE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "events/event.h"

namespace pagoda {

// One cached block, as the events tell it.
struct TreeEntry {
  BlockId id;
  BlockHash hash;
  BlockId parent = kNoBlock;  // kNoBlock below the root of a namespace.
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  Tier tier = Tier::kPrimary;
  Priority priority = kDefaultPriority;
  friend bool operator==(const TreeEntry&, const TreeEntry&) = default;
};

// The trees of all windows. Thread-compatible.
class ShadowTree {
 public:
  // Errors: FailedPrecondition for an event that does not fit: a revision that leaves a hole, a
  // block stored twice, a parent that is not there, a removal of what is not there or has children,
  // a hash that is not the block's.
  absl::Status Apply(const Event& event);

  // Ascending by block id.
  std::vector<TreeEntry> Dump(WindowSize window) const;
  Revision revision() const { return revision_; }

 private:
  struct Node {
    TreeEntry entry;
    size_t children = 0;
  };
  using Tree = std::map<BlockId, Node>;

  absl::Status ApplyStored(Tree& tree, const StoredEvent& stored);
  absl::Status ApplyUpdated(Tree& tree, const UpdatedEvent& updated);
  absl::Status ApplyRemoved(Tree& tree, const RemovedEvent& removed);
  absl::Status RemoveOne(Tree& tree, BlockId id, BlockHash hash);

  Revision revision_;
  std::map<WindowSize, Tree> trees_;
};

}  // namespace pagoda

#endif  // PAGODA_EVENTS_SHADOW_TREE_H_
