// Snapshots: a late subscriber reads the whole state in chunks, while the state keeps changing.
#ifndef PAGODA_EVENTS_SNAPSHOT_H_
#define PAGODA_EVENTS_SNAPSHOT_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

// A snapshot walks over the windows, ascending by size, and in each window over the block ids. A
// piece (BlockManager::ReadSnapshot) reports the blocks at the next ids, as of the revision at
// which it is read. The reader applies, in turn:
//
//   1. the events after the previous piece's revision, up to this piece's, for passed ids only
//   2. the piece: Created and Stored events with revision 0
//
// Changes at ids ahead of the walk are left out of step 1, because the walk will see them.
//
// So after each piece the reader has exactly the blocks at the passed ids, as of that piece's
// revision. After the last piece it has the whole state. Nothing is locked or kept for the reader
// between two pieces. Within a snapshot a block can come before its parent.

// The part that the walk has passed: every smaller window, and the ids of `window` below `next`.
struct SnapshotPosition {
  WindowSize window{0};
  BlockId next{0};
  bool done = false;  // Everything.

  bool Passed(WindowSize other, BlockId id) const {
    return done || other < window || (other == window && id < next);
  }
  // Whether the walk has begun this window.
  bool Reached(WindowSize other) const {
    return done || other < window || (other == window && next.value() > 0);
  }
  friend bool operator==(const SnapshotPosition&, const SnapshotPosition&) = default;
};

struct SnapshotPiece {
  std::vector<Event> events;  // Revision 0.
  Revision revision;          // The state as of this revision.
  SnapshotPosition end;       // The end of the piece.
};

// Calls `show` for the parts of an event that concern blocks which the walk has passed.
void ForEachPassed(const Event& event, const SnapshotPosition& position,
                   absl::FunctionRef<void(const Event&)> show);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_SNAPSHOT_H_
