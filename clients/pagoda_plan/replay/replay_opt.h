// The most hits that any eviction policy can have on a trace.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_OPT_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_OPT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "clients/pagoda_plan/replay/replay.h"
#include "clients/pagoda_plan/trace/trace.h"

namespace pagoda {

// The name of this bound where a policy is named. It is no policy of a cache: it knows the future.
inline constexpr char kOptPolicy[] = "opt";

// Replays a trace one by one, as ReplayTrace() does, against a cache that evicts the block whose
// next use is farthest (Belady, 1966), the deeper one of two. A prefix is used whenever a longer
// one is, so this block never has cached children. A running request holds its own blocks.
//
// Several tiers are one cache with all of their blocks: no policy hits more in them, but a daemon
// with an exclusive hierarchy reaches less. So the report has no figures of tiers except their
// capacities, and no copies. The first tier still limits the size of a request.
//
// Cost: O(n log n) for n requested blocks, and about 40 bytes of memory each. Errors:
// INVALID_ARGUMENT for a first tier without blocks.
absl::StatusOr<ReplayReport> ReplayOptimal(absl::Span<const TraceRequest> requests,
                                           const ReplayOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_OPT_H_
