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
  // Blocks of kTraceBlockTokens tokens by tier, nearest first. Empty: one tier that is large enough
  // to evict nothing.
  std::vector<uint32_t> tier_blocks;
  std::string policy;  // One of EvictionPolicyNames(); empty: the first.
  // Called after each request with the report so far. May be empty.
  std::function<void(const struct ReplayReport&)> on_request;
};

// The figures of one tier. They do not include the blocks that requests compute in the first tier.
struct ReplayedTier {
  uint32_t capacity_blocks = 0;
  uint64_t hit_tokens = 0;      // Matched tokens whose nearest copy was here.
  uint64_t blocks_written = 0;  // By copies from other tiers.
  uint64_t blocks_read = 0;     // By copies to other tiers.
  uint64_t evictions = 0;       // Blocks that left the cache from this tier.
  // Blocks that left this tier without a copy, because a lower tier already had their bytes.
  uint64_t free_evictions = 0;
};

struct ReplayReport {
  std::vector<ReplayedTier> tiers;  // Nearest first.
  uint64_t requests = 0;
  uint64_t skipped_requests = 0;  // As large as the whole first tier, or larger.
  uint64_t blocks_requested = 0;
  uint64_t blocks_hit = 0;
  uint64_t lower_blocks_hit = 0;  // The hits below the first tier, included in blocks_hit.
  uint64_t evictions = 0;         // Blocks that left the cache, from any tier.
  uint64_t offloads = 0;          // Blocks that were offloaded by a copy.
  uint64_t onboards = 0;          // Blocks that were onboarded.
  uint64_t operations = 0;        // Calls of the manager.
  absl::Duration trace_time;      // From the trace's start to the latest request.
  absl::Duration elapsed;

  double hit_rate() const;
  double lower_hit_rate() const;
  // The share of the requested tokens that hit in a tier.
  double hit_rate(const ReplayedTier& tier) const;
  double operations_per_second() const;
};

// Replays a trace, request by request, against a BlockManager in this process. Each request adds
// its sequence, commits its blocks and frees the sequence. The core has no memory behind its
// blocks, so a cache of any size can be tried. But each cached block keeps its 512 token ids (2
// KiB) in this process's memory. Copies between tiers complete as soon as they are ordered.
//
// A request's prompt is its blocks and one more token, because the last token of a prompt is never
// matched. The sequence reserves capacity only for the blocks, so that only the trace is measured.
// A hit is a block of the longest cached prefix, in any tier. Requests run one after another, each
// at its timestamp. If a timestamp goes back, the time stays. A first tier of N blocks can hold a
// prompt of at most N - 1 blocks and that token. A larger request is skipped, and its blocks count
// as requested and missed. A request without blocks counts as a request.
//
// Every tier runs as a memory tier, even a disk: blocks move and are evicted by the same rules. The
// figures do not include a disk's latency, late prefetches, or a write budget.
//
// Errors: INVALID_ARGUMENT for an unknown policy, a first tier without blocks, and unsupported
// sizes or numbers of tiers.
absl::StatusOr<ReplayReport> ReplayTrace(absl::Span<const TraceRequest> requests,
                                         const ReplayOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_REPLAY_H_
