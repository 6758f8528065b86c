#include "manager/sequences/deferred_releases.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

absl::Status DeferredReleases::CheckSteps(const Session& session, StepRange steps) {
  if (steps.step < steps.completed_step || (steps.step != 0 && steps.step < session.step) ||
      (steps.step != 0 && steps.completed_step < session.completed_step)) {
    return MakeError(Reason::kStepBackwards,
                     absl::StrCat("step ", steps.step, " with completed_step ",
                                  steps.completed_step, " after step ", session.step,
                                  " with completed_step ", session.completed_step));
  }
  return absl::OkStatus();
}

void DeferredReleases::Complete(OperationScope& op, Session& session, StepRange steps) {
  session.step = steps.step;
  session.completed_step = steps.completed_step;
  while (!session.deferred.empty() && session.deferred.front().step <= steps.completed_step) {
    const DeferredRelease release = session.deferred.front();
    session.deferred.pop_front();
    End(op, release);
  }
  session.deferred_charge.ResizeAnyway(session.deferred.size() * sizeof(DeferredRelease));
}

void DeferredReleases::EndFirst(OperationScope& op, std::deque<DeferredRelease>& deferred,
                                uint32_t max_blocks) {
  for (uint32_t i = 0; i < max_blocks && !deferred.empty(); ++i) {
    const DeferredRelease release = deferred.front();
    deferred.pop_front();
    End(op, release);
  }
}

// SessionEndings compacts the deferred releases of a session that is ending, in chunks.
void DeferredReleases::Settle(OperationScope& op, Session& session) {
  if (!session.ending) Compact(op, session);
  session.deferred_charge.ResizeAnyway(session.deferred.size() * sizeof(DeferredRelease));
}

// Forks that share blocks leave one deferred release for each block and fork when they are freed.
// Without this, a client that names steps and completes none could make the list arbitrarily long.
void DeferredReleases::Compact(OperationScope& op, Session& session) {
  std::deque<DeferredRelease>& deferred = session.deferred;
  if (deferred.size() < session.compact_deferred_at) return;
  std::map<std::pair<uint16_t, TenantId>, std::vector<bool>> later;  // A bit for each id.
  std::deque<DeferredRelease> kept;
  for (size_t i = deferred.size(); i-- > 0;) {
    const DeferredRelease& release = deferred[i];
    std::vector<bool>& seen = later[{release.window, release.tenant}];
    if (seen.empty()) seen.resize(windows_[release.window]->num_ids());
    if (seen[release.block.value()]) {
      End(op, release);  // The later one still holds the block.
    } else {
      seen[release.block.value()] = true;
      kept.push_front(release);
    }
  }
  deferred = std::move(kept);
  session.compact_deferred_at = std::max(Session::kFewDeferred, 2 * deferred.size());
}

}  // namespace pagoda
