// The context of one operation, and the services that all operations share.
#ifndef PAGODA_MANAGER_SERVICES_OPERATION_SCOPE_H_
#define PAGODA_MANAGER_SERVICES_OPERATION_SCOPE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "events/event.h"
#include "manager/accounts/session_table.h"
#include "manager/services/copy_tracker.h"
#include "manager/services/event_recorder.h"
#include "manager/services/order_lanes.h"
#include "manager/services/write_budget.h"
#include "manager/words/ids.h"
#include "manager/words/slot_journal.h"
#include "pools/order.h"

namespace pagoda {

// One operation while it runs. OperationRunner makes it, and callers pass it down. No part of it
// outlives the call.
struct OperationScope {
  const absl::Time now;
  TenantId tenant = kDefaultTenant;  // Takes the blocks and is charged. Operations that take none
                                     // leave the default.
  Session* deferring = nullptr;  // The session that defers the releases (rule 11); nullptr: they
                                 // take effect at once.
  Ticket ready;                  // The slots that the operation hands out wait for this copy.

  void WaitFor(Ticket ticket) { ready = std::max(ready, ticket); }
};

// Ends pins if one of their blocks is about to leave the tree.
class PinEnder {
 public:
  // Every window releases the pin's blocks. REQUIRES: the pin exists.
  virtual void EndPinOfLeaving(OperationScope& op, PinId pin, RemovalReason removal) = 0;

 protected:
  ~PinEnder() = default;
};

// One operation ends at most this many priorities in each window, and pins until these have
// released this many blocks (a pin ends as a whole). The rest ends with the next operations.
inline constexpr uint32_t kMaxEndsByTime = 1024;

// The earliest time at which something ends. Code that starts a clock lowers it.
struct Deadlines {
  absl::Time next = absl::InfiniteFuture();

  void EndsAt(absl::Time deadline) { next = std::min(next, deadline); }
};

// The services that all windows of a manager share while it exists.
struct CoreServices {
  EventRecorder* recorder;
  OrderLanes* lanes;
  CopyTracker* copies;
  // The list of slots that got or lost content; nullptr: it is not kept.
  std::vector<SlotChange>* slot_changes;
  PinEnder* pins;
  Deadlines* deadlines;
  WriteBudget* write_budget;  // For a disk tier.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SERVICES_OPERATION_SCOPE_H_
