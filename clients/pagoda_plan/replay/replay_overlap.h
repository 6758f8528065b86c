// Replays requests that overlap in time: see ReplayTrace().
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_OVERLAP_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_OVERLAP_H_

#include <functional>

#include "absl/types/span.h"
#include "clients/pagoda_plan/replay/replay.h"
#include "clients/pagoda_plan/replay/replay_core.h"
#include "clients/pagoda_plan/trace/trace.h"

namespace pagoda {

// Runs all requests until the last one has ended. Calls `on_request` after each start or skip of a
// request. REQUIRES: `core` counts into `report`, and nothing has run in it; the rates are above 0.
void ReplayOverlapping(ReplayCore& core, absl::Span<const TraceRequest> requests,
                       const ServiceModel& service, ReplayReport& report,
                       const std::function<void()>& on_request);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_OVERLAP_H_
