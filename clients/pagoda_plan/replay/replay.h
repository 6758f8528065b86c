#ifndef PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "clients/pagoda_plan/trace/trace.h"

namespace pagoda {

// How long requests run when they overlap: a request arrives at its timestamp, computes the tokens
// of its prompt that did not match, and then generates its reply.
struct ServiceModel {
  // Rates of one request. Requests that run at once do not slow each other down.
  double prefill_tokens_per_second = 10'000;
  double decode_tokens_per_second = 40;
};

// Where the last of several tiers lies.
enum class LastTier : uint8_t {
  kMemory,
  // Before a request starts, the blocks of its prompt that lie on disk alone are fetched into the
  // tier above. The blocks that it leaves are written when it ends, as far as the disk takes them.
  // Reads and writes take no time, and no budget limits the writes.
  kDisk,
};

struct ReplayOptions {
  // Blocks by tier, nearest first. Empty: one tier that is large enough to evict nothing.
  std::vector<uint32_t> tier_blocks;
  std::string policy;  // One of EvictionPolicyNames(); empty: the first.
  // Called after each request with the report so far. May be empty.
  std::function<void(const struct ReplayReport&)> on_request;
  uint32_t tokens_per_block = kMooncakeBlockTokens;    // The trace's.
  std::optional<ServiceModel> service = std::nullopt;  // nullopt: requests run one by one.
  LastTier last_tier = LastTier::kMemory;
};

// The figures of one tier. They do not include the blocks that requests compute in the first tier.
struct ReplayedTier {
  uint32_t capacity_blocks = 0;
  // Matched tokens whose nearest copy was here. For a disk: those whose blocks were fetched for the
  // request that matched them.
  uint64_t hit_tokens = 0;
  uint64_t blocks_written = 0;  // By copies from other tiers.
  uint64_t blocks_read = 0;     // By copies to other tiers.
  uint64_t evictions = 0;       // Blocks that left the cache from this tier.
  // Blocks that left this tier without a copy, because a lower tier already had their bytes.
  uint64_t free_evictions = 0;
};

// The figures of requests that overlap.
struct OverlapFigures {
  uint32_t most_running = 0;      // Requests at once.
  uint32_t most_held_blocks = 0;  // Blocks that running requests had, or were sure to need.
  uint64_t waiting_requests = 0;  // Requests that found no blocks when they arrived.
  absl::Duration total_wait;      // The sum over all requests.
  absl::Duration longest_wait;
  uint64_t reply_blocks = 0;        // Blocks that replies filled.
  uint64_t found_reply_blocks = 0;  // The part that a later prompt has: see FindReplies().
  uint64_t cut_replies = 0;         // Replies that got no more blocks, so that their rest was lost.

  absl::Duration mean_wait(uint64_t requests) const {
    return requests == 0 ? absl::ZeroDuration() : total_wait / static_cast<int64_t>(requests);
  }
};

struct ReplayReport {
  uint32_t tokens_per_block = 0;
  std::vector<ReplayedTier> tiers;  // Nearest first.
  uint64_t requests = 0;
  uint64_t skipped_requests = 0;  // Requests as large as the whole first tier, or larger.
  uint64_t blocks_requested = 0;
  uint64_t blocks_hit = 0;
  uint64_t lower_blocks_hit = 0;  // The hits below the first tier, included in blocks_hit.
  uint64_t evictions = 0;         // Blocks that left the cache, from any tier.
  uint64_t offloads = 0;          // Blocks that were offloaded by a copy.
  uint64_t onboards = 0;          // Blocks that were onboarded.
  uint64_t operations = 0;        // Calls of the manager.
  // From the trace's start to the latest request. If requests overlap: to the latest arrival or
  // end.
  absl::Duration trace_time;
  absl::Duration elapsed;
  std::optional<OverlapFigures> overlap = std::nullopt;  // nullopt: requests ran one by one.

  double hit_rate() const;
  double lower_hit_rate() const;
  // The share of the requested tokens that hit in a tier.
  double hit_rate(const ReplayedTier& tier) const;
  double operations_per_second() const;
};

// Replays a trace against a BlockManager in this process. The core has no memory behind its blocks,
// so a cache of any size can be tried. But each cached block keeps its token ids (2 KiB for 512) in
// this process's memory. Copies between tiers complete as soon as they are ordered. A hit is a
// block of the longest cached prefix, in any tier. If a timestamp goes back, the time stays. A
// request without blocks counts as a request.
//
// Without a service model, requests run one after another, each at its timestamp: each adds its
// sequence, commits its blocks and frees the sequence. Replies are ignored. A request's prompt is
// its blocks, a partial last one like a full one, and one more token, because the last token of a
// prompt is never matched. The sequence reserves capacity only for the blocks, so that only the
// trace is measured. A first tier of N blocks can hold a prompt of at most N - 1 blocks and that
// token. A larger request is skipped, and its blocks count as requested and missed.
//
// With a service model, requests overlap:
// * A request holds the blocks of its prompt from its arrival until its end. It lasts for the
//   missed tokens / prefill_tokens_per_second and output_length / decode_tokens_per_second.
// * The full blocks of a prompt are visible to later requests at once, as in an engine that works
//   on prompts in the order of their arrival. A partial last block is never cached; it counts as
//   requested and missed.
// * A reply takes its blocks one by one while it grows. A block is cached when it is full, with the
//   content that FindReplies() gives it: so the next turn can match it. If the next turn arrives
//   before this model ends the reply, the reply's further blocks are not cached: the next turn
//   computes them itself.
// * A request starts only if its blocks, and those that it and the running requests will still take
//   for their replies, fit the first tier. So a reply always gets its blocks, and nothing is
//   preempted. Else the request waits, and later ones behind it, until others end. Blocks that
//   requests share count once.
// * A request that does not fit an empty first tier, with a token of a reply, is skipped. Its
//   blocks count as requested and missed.
// * Arrivals do not move: a turn comes at its timestamp even if the turn before it still runs.
//
// With LastTier::kDisk the last tier follows the rules of a disk in the daemon (manager/DESIGN.md).
// A prompt is fetched as far as it fits the tier above the disk. A fetched block counts once, for
// the request that it was fetched for: later requests hit it in memory.
//
// Errors: INVALID_ARGUMENT for an unknown policy, a first tier without blocks, unsupported sizes or
// numbers of tiers or tokens per block, a disk as the only tier, and rates that are not above 0.
absl::StatusOr<ReplayReport> ReplayTrace(absl::Span<const TraceRequest> requests,
                                         const ReplayOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_H_
