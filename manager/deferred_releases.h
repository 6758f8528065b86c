// Blocks that sessions have released and that their kernels may still read.
#ifndef PAGODA_MANAGER_DEFERRED_RELEASES_H_
#define PAGODA_MANAGER_DEFERRED_RELEASES_H_

#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "manager/ids.h"
#include "manager/operation.h"
#include "manager/operation_scope.h"
#include "manager/session_table.h"
#include "manager/window_set.h"

namespace pagoda {

// Ends the drains of sessions. A window starts a drain, and the session's list keeps it.
// Thread-compatible.
//
// Invariant: a session needs one drain for each block and tenant, the last one. At the end of an
// operation the session's tenant is charged for the list; while a session ends, SessionEndings
// charges.
class DeferredReleases {
 public:
  // Both outlive it.
  DeferredReleases(const WindowSet& windows, SessionTable& sessions)
      : windows_(windows), sessions_(sessions) {}
  DeferredReleases(const DeferredReleases&) = delete;
  DeferredReleases& operator=(const DeferredReleases&) = delete;

  // The session where its releases drain; nullptr where they do not. Without a step, what still
  // drains may lie below what the batch lets go: it must not outlive that.
  Session* DeferringSession(SessionId id) {
    Session* const session = sessions_.Find(id);
    const bool deferred =
        session != nullptr && (session->batch_step != 0 || !session->deferred.empty());
    return deferred ? session : nullptr;
  }
  // Errors: STEP_BACKWARDS.
  static absl::Status CheckSteps(const Session& session, StepRange steps);
  // Moves the session to these steps, and ends its drains up to the completed one. REQUIRES:
  // CheckSteps() is OK, and there is a step.
  void Complete(OperationScope& op, Session& session, StepRange steps);
  // Ends the first `max_blocks` drains of a list.
  void EndFirst(OperationScope& op, std::deque<DeferredRelease>& deferred, uint32_t max_blocks);
  // At the end of an operation whose releases drain: compacts the list, and charges for it.
  void Settle(OperationScope& op, Session& session);
  // Ends drains of a block that has a later one. Amortised O(1) a drain.
  void Compact(OperationScope& op, Session& session);

 private:
  void End(OperationScope& op, const DeferredRelease& release) {
    windows_[release.window]->EndDeferredRelease(op, release.block, release.tenant);
  }

  const WindowSet& windows_;
  SessionTable& sessions_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DEFERRED_RELEASES_H_
