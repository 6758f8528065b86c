#ifndef PAGODA_CLIENTS_PAGODACTL_REPLAY_H_
#define PAGODA_CLIENTS_PAGODACTL_REPLAY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "clients/pagodactl/trace.h"

namespace pagoda {

struct ReplayOptions {
  // Blocks of kTraceBlockTokens tokens by tier, nearest first; none: one tier of as many as never
  // make an eviction necessary.
  std::vector<uint32_t> tier_blocks;
  std::string policy;  // One of EvictionPolicyNames(); empty: the first.
  // Called after each request with the report so far. May be empty.
  std::function<void(const struct ReplayReport&)> on_request;
};

// Of one tier. What a request computes in the first tier is in no number.
struct ReplayedTier {
  uint32_t capacity_blocks = 0;
  uint64_t hit_tokens = 0;      // Matched tokens whose nearest copy was here.
  uint64_t blocks_written = 0;  // By copies from other tiers.
  uint64_t blocks_read = 0;     // By copies to other tiers.
  uint64_t evictions = 0;       // Blocks that left the cache from here.
  // Blocks that went from here to a copy that they had below: nothing was copied.
  uint64_t free_evictions = 0;
};

struct ReplayReport {
  std::vector<ReplayedTier> tiers;  // Nearest first.
  uint64_t requests = 0;
  uint64_t skipped_requests = 0;  // As large as the whole first tier, or larger.
  uint64_t blocks_requested = 0;
  uint64_t blocks_hit = 0;
  uint64_t lower_blocks_hit = 0;  // Of those, the ones that lay below the first tier.
  uint64_t evictions = 0;         // Blocks that left the cache, from any tier.
  uint64_t offloads = 0;          // Blocks that moved down by a copy.
  uint64_t onboards = 0;          // Blocks that moved up.
  uint64_t operations = 0;        // Calls of the manager.
  absl::Duration trace_time;      // From the trace's start to the latest request.
  absl::Duration elapsed;

  double hit_rate() const;
  double lower_hit_rate() const;
  // The share of the requested tokens that hit in a tier.
  double hit_rate(const ReplayedTier& tier) const;
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
// its timestamp; time does not run back where timestamps do. A first tier of N blocks can hold a
// prompt of at most N - 1 blocks and that token: a larger request is skipped, and its blocks count
// as requested and missed. A request without blocks counts as a request.
//
// Every tier is one in memory, also for a disk: a block moves, and is evicted, by the same rules.
// What a disk does otherwise is not in the figures: its time, a prefetch that comes too late, and a
// budget of writes.
//
// Errors: INVALID_ARGUMENT for a policy that there is not, a first tier without blocks, and sizes
// and numbers of tiers that are not served.
absl::StatusOr<ReplayReport> ReplayTrace(absl::Span<const TraceRequest> requests,
                                         const ReplayOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_REPLAY_H_
