// The set of blocks that are taken and not in the prefix tree, rebuilt from events alone.
#ifndef PAGODA_TESTS_EVENTS_SHADOW_ALLOCATIONS_H_
#define PAGODA_TESTS_EVENTS_SHADOW_ALLOCATIONS_H_

#include <map>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/event.h"

namespace pagoda {

// The sets of all windows. The stream reports every allocation (LifecycleEvents::kAll) or only raw
// blocks (kRaw); a set has the blocks that the stream reports. Thread-compatible.
//
// Invariant: no block of a set is cached.
class ShadowAllocations {
 public:
  // Applies the next event of the stream or of a snapshot. Errors: FailedPrecondition for an event
  // that does not fit: a block is taken twice, or taken or stored while it is cached; a released
  // block was not taken; a removed block is not cached. After an error the sets mean nothing.
  absl::Status Apply(const Event& event);

  // Forgets everything, because a snapshot follows.
  void BeginSnapshot() { windows_.clear(); }

  // Ascending.
  std::vector<BlockId> Dump(WindowSize window) const;

 private:
  struct Window {
    absl::btree_set<BlockId> taken;
    absl::btree_set<BlockId> cached;
  };

  static absl::Status ApplyCreated(Window& window, const CreatedEvent& created);
  static absl::Status ApplyStored(Window& window, const StoredEvent& stored);
  static absl::Status ApplyRemoved(Window& window, const RemovedEvent& removed);

  std::map<WindowSize, Window> windows_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_EVENTS_SHADOW_ALLOCATIONS_H_
