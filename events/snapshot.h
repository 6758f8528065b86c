// How a subscriber that comes late gets the whole state: read piece by piece, while it changes.
#ifndef PAGODA_EVENTS_SNAPSHOT_H_
#define PAGODA_EVENTS_SNAPSHOT_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

// A snapshot walks over the windows, ascending by size, and in each over the ids of its blocks. A
// piece of it (BlockManager::ReadSnapshot) tells what is at the ids it walks over, as of the
// revision at which it is read. What happens later to ids that the walk has passed is told by the
// events, before the next piece; what happens to those ahead is not, for the walk will see it:
//
//   1. the events after the last piece's revision, up to this piece's, of passed blocks alone
//   2. the piece: Created and Stored events with revision 0
//
// So after each piece the reader has exactly what was at the passed ids at that piece's revision,
// and after the last one the state at its revision; nothing is locked or kept for it between two.
// Within, a block may be told before its parent.

// What the walk has passed: every smaller window, and of this one the ids below `next`.
struct SnapshotPosition {
  WindowSize window{0};
  BlockId next{0};
  bool done = false;  // Everything.

  bool Passed(WindowSize other, BlockId id) const {
    return done || other < window || (other == window && id < next);
  }
  // Whether it has come to the window at all.
  bool Reached(WindowSize other) const {
    return done || other < window || (other == window && next.value() > 0);
  }
  friend bool operator==(const SnapshotPosition&, const SnapshotPosition&) = default;
};

struct SnapshotPiece {
  std::vector<Event> events;  // Revision 0.
  Revision revision;          // As of which.
  SnapshotPosition end;       // Up to where.
};

// Calls `show` for what an event tells of blocks that the walk has passed.
void ForEachPassed(const Event& event, const SnapshotPosition& position,
                   absl::FunctionRef<void(const Event&)> show);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_SNAPSHOT_H_
