// Replays requests that overlap in time: see ReplayTrace().
#ifndef PAGODA_CLIENTS_PAGODACTL_REPLAY_REPLAY_OVERLAP_H_
#define PAGODA_CLIENTS_PAGODACTL_REPLAY_REPLAY_OVERLAP_H_

#include <functional>

#include "absl/types/span.h"
#include "clients/pagodactl/replay/replay.h"
#include "clients/pagodactl/replay/replay_core.h"
#include "clients/pagodactl/trace/trace.h"

namespace pagoda {

// Runs all requests until the last one has ended. Calls `on_request` after each start or skip of a
// request. REQUIRES: `core` counts into `report`, and nothing has run in it; the rates are above 0.
void ReplayOverlapping(ReplayCore& core, absl::Span<const TraceRequest> requests,
                       const ServiceModel& service, ReplayReport& report,
                       const std::function<void()>& on_request);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_REPLAY_REPLAY_OVERLAP_H_
