#ifndef PAGODA_CLIENTS_PAGODACTL_REPLAY_H_
#define PAGODA_CLIENTS_PAGODACTL_REPLAY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "clients/pagodactl/trace.h"

namespace pagoda {

struct ReplayOptions {
  // Of the primary tier, in blocks of kTraceBlockTokens tokens; 0: as many as never make an
  // eviction necessary.
  uint32_t capacity_blocks = 0;
  // Of the host tier below it; 0: none.
  uint32_t host_blocks = 0;
  std::string policy;  // One of EvictionPolicyNames(); empty: the first.
  // Called after each request with the report so far. May be empty.
  std::function<void(const struct ReplayReport&)> on_request;
};

struct ReplayReport {
  uint32_t capacity_blocks = 0;
  uint64_t requests = 0;
  uint64_t skipped_requests = 0;  // As large as the whole primary tier, or larger.
  uint64_t blocks_requested = 0;
  uint64_t blocks_hit = 0;
  uint64_t host_blocks_hit = 0;  // Of those, the ones that lay in the host tier.
  uint64_t evictions = 0;        // Blocks that left the cache, from either tier.
  uint64_t offloads = 0;         // Blocks that moved down.
  uint64_t onboards = 0;         // Blocks that moved up.
  uint64_t operations = 0;       // Calls of the manager.
  absl::Duration elapsed;

  double hit_rate() const;
  double host_hit_rate() const;
  double operations_per_second() const;
};

// Replays a trace, request by request, against a BlockManager in this process: adds the sequence,
// commits its blocks, frees it. The core has no memory behind its blocks, so a cache of any size
// can be tried; each cached block still takes its 512 token ids (2 KiB) of this process's memory.
// Copies between the tiers are done as soon as they are ordered.
//
// A request's prompt is its blocks and one more token, because the last token of a prompt is never
// matched. The cache takes room for the blocks alone: what is measured is the trace. A hit is a
// block of the longest cached prefix, in whichever tier. Requests run one after another, each at
// its timestamp; time does not run back where timestamps do. A primary tier of N blocks can hold a
// prompt of at most N - 1 blocks and that token: a larger request is skipped, and its blocks count
// as requested and missed. A request without blocks counts as a request.
//
// Errors: INVALID_ARGUMENT for a policy that there is not, a host tier below an unlimited one, and
// sizes that are not served.
absl::StatusOr<ReplayReport> ReplayTrace(absl::Span<const TraceRequest> requests,
                                         const ReplayOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_REPLAY_H_
