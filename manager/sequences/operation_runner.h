// The beginning and the end of each operation.
#ifndef PAGODA_MANAGER_SEQUENCES_OPERATION_RUNNER_H_
#define PAGODA_MANAGER_SEQUENCES_OPERATION_RUNNER_H_

#include "absl/time/time.h"
#include "manager/accounts/session_table.h"
#include "manager/sequences/deferred_releases.h"
#include "manager/sequences/prefix_pins.h"
#include "manager/services/event_recorder.h"
#include "manager/services/operation_scope.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"
#include "pools/order.h"

namespace pagoda {

// Thread-compatible.
//
// Invariant: each Begin() starts a new operation of the recorder, which joins events within one
// operation, and then applies expiries. After each End() the accounting holds. Two kinds of
// operation have no End(): one that changes no block (a refusal, an append that stays in its
// block), and a single step of a session's ending.
class OperationRunner {
 public:
  // REQUIRES: all of them outlive the runner.
  OperationRunner(EventRecorder& recorder, Deadlines& deadlines, const WindowSet& windows,
                  PrefixPins& pins, DeferredReleases& deferred)
      : recorder_(recorder),
        deadlines_(deadlines),
        windows_(windows),
        pins_(pins),
        deferred_(deferred) {}
  OperationRunner(const OperationRunner&) = delete;
  OperationRunner& operator=(const OperationRunner&) = delete;

  // The start of every call: sets its time, and ends priorities and pins that have expired.
  OperationScope Begin(absl::Time now, Session* deferring = nullptr) {
    recorder_.BeginOperation(now);
    OperationScope op{.now = now, .deferring = deferring};
    if (deadlines_.next <= now) ApplyDeadlines(op);
    return op;
  }
  // An operation that defers its releases if the session does.
  OperationScope Begin(SessionId session, absl::Time now) {
    return Begin(now, deferred_.DeferringSession(session));
  }
  // Returns the ticket that the slots wait for.
  Ticket End(OperationScope& op);
  // For an operation that finds out later that its releases are deferred.
  Session* DeferringSession(SessionId session) { return deferred_.DeferringSession(session); }

 private:
  // Ends expired priorities and pins.
  void ApplyDeadlines(OperationScope& op);

  EventRecorder& recorder_;
  Deadlines& deadlines_;
  const WindowSet& windows_;
  PrefixPins& pins_;
  DeferredReleases& deferred_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_OPERATION_RUNNER_H_
