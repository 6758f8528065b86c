// What one operation carries with it, and what all of them share.
#ifndef PAGODA_MANAGER_OPERATION_SCOPE_H_
#define PAGODA_MANAGER_OPERATION_SCOPE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "events/event.h"
#include "manager/copy_tracker.h"
#include "manager/event_recorder.h"
#include "manager/file_lanes.h"
#include "manager/ids.h"
#include "manager/session_table.h"
#include "manager/slot_journal.h"
#include "manager/write_budget.h"
#include "pools/copy_order.h"

namespace pagoda {

// One operation while it runs. OperationRunner makes it, and it is passed down; nothing of it
// outlives the call.
struct OperationScope {
  const absl::Time now;
  TenantId tenant =
      kDefaultTenant;            // Takes blocks and is charged. Operations that take none leave it.
  Session* deferring = nullptr;  // Its releases drain (rule 11). nullptr: they are let go at once.
  Ticket ready;                  // The slots that the operation hands out wait for this copy.

  void WaitFor(Ticket ticket) { ready = std::max(ready, ticket); }
};

// Ends pins of which a block is about to leave the tree.
class PinEnder {
 public:
  // Every window lets go of the pin's blocks. REQUIRES: there is such a pin.
  virtual void EndPinOfLeaving(OperationScope& op, PinId pin, RemovalReason removal) = 0;

 protected:
  ~PinEnder() = default;
};

// Of what time brings, one operation ends so much at most: priorities in each window, and blocks
// that ended pins let go (a pin ends as a whole). The rest ends with the next operations.
inline constexpr uint32_t kMaxEndsByTime = 1024;

// The earliest time at which something ends. Whoever starts a clock lowers it.
struct Deadlines {
  absl::Time next = absl::InfiniteFuture();

  void EndsAt(absl::Time deadline) { next = std::min(next, deadline); }
};

// What all windows of a manager share as long as it lives.
struct CoreServices {
  EventRecorder* recorder;
  CopyTracker* copies;
  // Where slots that got or lost content are written down; nullptr: nowhere.
  std::vector<SlotChange>* slot_changes;
  PinEnder* pins;
  Deadlines* deadlines;
  // Of a tier on disk.
  FileLanes* files;
  WriteBudget* write_budget;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_OPERATION_SCOPE_H_
