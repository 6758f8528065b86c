// What all windows of a manager share while one operation runs.
#ifndef PAGODA_MANAGER_OPERATION_CONTEXT_H_
#define PAGODA_MANAGER_OPERATION_CONTEXT_H_

#include <algorithm>
#include <vector>

#include "absl/time/time.h"
#include "events/event.h"
#include "manager/copy_tracker.h"
#include "manager/event_recorder.h"
#include "manager/ids.h"
#include "manager/session_table.h"
#include "manager/slot_journal.h"
#include "pools/copy_order.h"

namespace pagoda {

// Ends pins of which a block is about to leave the tree.
class PinEnder {
 public:
  // Every window lets go of the pin's blocks. REQUIRES: there is such a pin.
  virtual void EndPinOfLeaving(PinId pin, RemovalReason removal) = 0;

 protected:
  ~PinEnder() = default;
};

struct OperationContext {
  EventRecorder* const recorder;
  CopyTracker* const copies;
  absl::Time now = absl::UnixEpoch();
  // Where the operation's releases drain (rule 11); nullptr: they are let go at once.
  Session* draining = nullptr;
  TenantId tenant = kCommons;  // Whose the blocks that it takes are.
  Ticket ready;                // What the slots that the operation hands out wait for.
  // Where slots that got or lost content are written down; nullptr: nowhere.
  std::vector<SlotChange>* slot_changes = nullptr;
  PinEnder* pins = nullptr;
  // Nothing ends by time before this. Whoever starts a clock lowers it.
  absl::Time next_deadline = absl::InfiniteFuture();

  void EndsAt(absl::Time deadline) { next_deadline = std::min(next_deadline, deadline); }
  void WaitFor(Ticket ticket) { ready = std::max(ready, ticket); }
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_OPERATION_CONTEXT_H_
