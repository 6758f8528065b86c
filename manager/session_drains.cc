#include "manager/session_drains.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

absl::Status SessionDrains::CheckSteps(const Session& session, StepRange steps) {
  if (steps.step < steps.completed_step || (steps.step != 0 && steps.step < session.step) ||
      (steps.step != 0 && steps.completed_step < session.completed_step)) {
    return MakeError(Reason::kStepBackwards,
                     absl::StrCat("step ", steps.step, " with completed_step ",
                                  steps.completed_step, " after step ", session.step,
                                  " with completed_step ", session.completed_step));
  }
  return absl::OkStatus();
}

void SessionDrains::Complete(OperationScope& op, Session& session, StepRange steps) {
  session.step = steps.step;
  session.completed_step = steps.completed_step;
  while (!session.drains.empty() && session.drains.front().step <= steps.completed_step) {
    const Drain drain = session.drains.front();
    session.drains.pop_front();
    End(op, drain);
  }
  session.drains_charge.ResizeAnyway(session.drains.size() * sizeof(Drain));
}

void SessionDrains::EndFirst(OperationScope& op, std::deque<Drain>& drains, uint32_t max_blocks) {
  for (uint32_t i = 0; i < max_blocks && !drains.empty(); ++i) {
    const Drain drain = drains.front();
    drains.pop_front();
    End(op, drain);
  }
}

// SessionEndings compacts the drains of a session that is ending, chunk by chunk.
void SessionDrains::Settle(OperationScope& op, Session& session) {
  if (!session.ending) Compact(op, session);
  session.drains_charge.ResizeAnyway(session.drains.size() * sizeof(Drain));
}

// Forks that share blocks and are freed leave a drain each for every one of them: without this a
// client that names steps and completes none makes the list as long as it likes.
void SessionDrains::Compact(OperationScope& op, Session& session) {
  std::deque<Drain>& drains = session.drains;
  if (drains.size() < session.compact_drains_at) return;
  std::map<std::pair<uint16_t, TenantId>, std::vector<bool>> later;  // A bit for each id.
  std::deque<Drain> kept;
  for (size_t i = drains.size(); i-- > 0;) {
    const Drain& drain = drains[i];
    std::vector<bool>& seen = later[{drain.window, drain.tenant}];
    if (seen.empty()) seen.resize(windows_[drain.window]->num_ids());
    if (seen[drain.block.value()]) {
      End(op, drain);  // The later one holds on.
    } else {
      seen[drain.block.value()] = true;
      kept.push_front(drain);
    }
  }
  drains = std::move(kept);
  session.compact_drains_at = std::max(Session::kFewDrains, 2 * drains.size());
}

}  // namespace pagoda
