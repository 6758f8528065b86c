#include "clients/pagoda_plan/replay/replay_opt.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/pagoda_plan/replay/replay_core.h"
#include "clients/pagoda_plan/trace/prefix_nodes.h"

namespace pagoda {
namespace {

using Node = uint32_t;
using Moment = uint32_t;  // The index of a request.
constexpr Moment kNever = std::numeric_limits<Moment>::max();

class OptimalCache {
 public:
  // Requests of `first_tier_blocks` blocks or more are not run.
  OptimalCache(absl::Span<const TraceRequest> requests, uint64_t capacity,
               uint32_t first_tier_blocks)
      : capacity_(capacity) {
    PrefixNodes nodes;
    for (const TraceRequest& request : requests) {
      const bool runs = request.hash_ids.size() < first_tier_blocks;
      paths_.push_back(runs ? nodes.Path(request.hash_ids) : std::vector<Node>());
    }
    next_use_.assign(nodes.size(), kNever);
    cached_.assign(nodes.size(), false);
    FindUses();
  }

  // Requests run in order.
  void Run(Moment now, ReplayReport& report) {
    const std::vector<Node>& path = paths_[now];
    size_t hit = 0;
    while (hit < path.size() && cached_[path[hit]]) ++hit;
    report.blocks_hit += hit;
    while (size_ + path.size() - hit > capacity_) {
      Evict(now);
      ++report.evictions;
    }
    size_ += path.size() - hit;
    for (size_t k = 0; k < path.size(); ++k) {
      cached_[path[k]] = true;
      next_use_[path[k]] = uses_after_[now][k];
      farthest_.push({next_use_[path[k]], static_cast<uint32_t>(k), path[k]});
    }
  }

 private:
  // For each block of each request, the next request with it.
  void FindUses() {
    uses_after_.resize(paths_.size());
    for (size_t i = paths_.size(); i-- > 0;) {
      for (const Node node : paths_[i]) {
        uses_after_[i].push_back(next_use_[node]);
        next_use_[node] = static_cast<Moment>(i);
      }
    }
  }

  // REQUIRES: a block is cached that the request `now` does not use.
  void Evict(Moment now) {
    for (;;) {
      const auto [next_use, depth, node] = farthest_.top();
      farthest_.pop();
      // An entry of before the latest use, or of a block that has left.
      if (!cached_[node] || next_use_[node] != next_use) continue;
      // The running request holds it. Its entry comes again when the request is done.
      if (next_use == now) continue;
      cached_[node] = false;
      --size_;
      return;
    }
  }

  struct Use {
    Moment next_use;
    uint32_t depth;
    Node node;
    friend bool operator<(const Use& a, const Use& b) {
      return std::tie(a.next_use, a.depth, a.node) < std::tie(b.next_use, b.depth, b.node);
    }
  };

  const uint64_t capacity_;
  std::vector<std::vector<Node>> paths_;         // By request.
  std::vector<std::vector<Moment>> uses_after_;  // By request and block.
  std::vector<Moment> next_use_;                 // By node, after the requests so far.
  std::vector<bool> cached_;                     // By node.
  uint64_t size_ = 0;
  std::priority_queue<Use> farthest_;
};

}  // namespace

absl::StatusOr<ReplayReport> ReplayOptimal(absl::Span<const TraceRequest> requests,
                                           const ReplayOptions& options) {
  std::vector<uint32_t> tier_blocks = options.tier_blocks;
  if (tier_blocks.empty()) {
    const absl::StatusOr<uint32_t> unlimited = UnlimitedBlocks(requests, options);
    if (!unlimited.ok()) return unlimited.status();
    tier_blocks = {*unlimited};
  }
  if (tier_blocks.front() == 0) {
    return MakeError(Reason::kInvalidArgument, "the first tier has no blocks");
  }
  const absl::Time start = absl::Now();
  ReplayReport report;
  report.tokens_per_block = options.tokens_per_block;
  for (const uint32_t blocks : tier_blocks) report.tiers.push_back({.capacity_blocks = blocks});
  OptimalCache cache(requests, std::accumulate(tier_blocks.begin(), tier_blocks.end(), uint64_t{0}),
                     tier_blocks.front());
  for (size_t i = 0; i < requests.size(); ++i) {
    const TraceRequest& request = requests[i];
    ++report.requests;
    report.trace_time = std::max(report.trace_time, absl::Milliseconds(request.timestamp_ms));
    report.blocks_requested += request.hash_ids.size();
    if (request.hash_ids.size() >= tier_blocks.front()) {
      ++report.skipped_requests;
    } else {
      cache.Run(static_cast<Moment>(i), report);
    }
    report.elapsed = absl::Now() - start;
    if (options.on_request) options.on_request(report);
  }
  return report;
}

}  // namespace pagoda
