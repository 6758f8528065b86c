// Blocks that sessions have released but that the sessions' kernels may still read.
#ifndef PAGODA_MANAGER_SEQUENCES_DEFERRED_RELEASES_H_
#define PAGODA_MANAGER_SEQUENCES_DEFERRED_RELEASES_H_

#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "manager/accounts/session_table.h"
#include "manager/api/operation.h"
#include "manager/services/operation_scope.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"

namespace pagoda {

// Ends the deferred releases of sessions. A window starts a deferred release, and the session's
// list keeps it. Thread-compatible.
//
// Invariant: a session needs one deferred release for each block and tenant, the last one. At the
// end of an operation the session's tenant is charged for the list. While a session ends,
// SessionEndings charges.
class DeferredReleases {
 public:
  // REQUIRES: both outlive it.
  DeferredReleases(const WindowSet& windows, SessionTable& sessions)
      : windows_(windows), sessions_(sessions) {}
  DeferredReleases(const DeferredReleases&) = delete;
  DeferredReleases& operator=(const DeferredReleases&) = delete;

  // The session if its releases are deferred; nullptr otherwise. A batch without a step defers too
  // while earlier releases of the session are deferred: their blocks can lie below the blocks that
  // the batch releases, and must not be held longer than those.
  Session* DeferringSession(SessionId id) {
    Session* const session = sessions_.Find(id);
    const bool deferred =
        session != nullptr && (session->batch_step != 0 || !session->deferred.empty());
    return deferred ? session : nullptr;
  }
  // Errors: STEP_BACKWARDS.
  static absl::Status CheckSteps(const Session& session, StepRange steps);
  // Sets the session's steps, and ends its deferred releases up to the completed step. REQUIRES:
  // CheckSteps() is OK, and there is a step.
  void Complete(OperationScope& op, Session& session, StepRange steps);
  // Ends the first `max_blocks` deferred releases of a list.
  void EndFirst(OperationScope& op, std::deque<DeferredRelease>& deferred, uint32_t max_blocks);
  // At the end of an operation with deferred releases: compacts the list, and charges for it.
  void Settle(OperationScope& op, Session& session);
  // Ends deferred releases of blocks that have a later one. Amortised O(1) for each.
  void Compact(OperationScope& op, Session& session);

 private:
  void End(OperationScope& op, const DeferredRelease& release) {
    windows_[release.window]->holds().EndDeferredRelease(op, release.block, release.tenant);
  }

  const WindowSet& windows_;
  SessionTable& sessions_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_DEFERRED_RELEASES_H_
