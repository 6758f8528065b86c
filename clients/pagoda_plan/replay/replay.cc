#include "clients/pagoda_plan/replay/replay.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagoda_plan/replay/replay_core.h"
#include "clients/pagoda_plan/replay/replay_overlap.h"
#include "clients/pagoda_plan/trace/prefix_nodes.h"

namespace pagoda {
namespace {

constexpr SequenceId kSequence{1};  // One request at a time.

class OneByOne {
 public:
  OneByOne(ReplayCore& core, uint32_t tokens_per_block, ReplayReport& report)
      : core_(core), tokens_per_block_(tokens_per_block), report_(report) {}

  void Run(const TraceRequest& request) {
    ++report_.requests;
    now_ = std::max(now_, absl::UnixEpoch() + absl::Milliseconds(request.timestamp_ms));
    report_.trace_time = now_ - absl::UnixEpoch();
    report_.blocks_requested += request.hash_ids.size();
    if (request.hash_ids.empty()) return;
    if (request.hash_ids.size() >= report_.tiers.front().capacity_blocks) {
      ++report_.skipped_requests;
      return;
    }
    report_.blocks_hit += AddCommitFree(request) / tokens_per_block_;
    core_.ReadCounters();
  }

 private:
  // Returns the matched tokens. Nothing can fail, because there is only one sequence at a time and
  // it fits the cache.
  uint32_t AddCommitFree(const TraceRequest& request) {
    tokens_.clear();
    for (uint64_t id : request.hash_ids) AppendBlockTokens(id, tokens_per_block_, tokens_);
    const auto block_tokens = static_cast<uint32_t>(tokens_.size());
    // Any id works: a prompt's last token is not matched, and this one is not computed and so never
    // cached.
    tokens_.push_back(0);

    const absl::StatusOr<uint32_t> matched = core_.Add(kSequence, tokens_, block_tokens, now_);
    PAGODA_CHECK(matched.ok(), "a request that fits an idle cache was refused");
    core_.Commit(kSequence, {}, block_tokens, now_);
    core_.Free(kSequence, now_);
    return *matched;
  }

  ReplayCore& core_;
  const uint32_t tokens_per_block_;
  ReplayReport& report_;
  std::vector<TokenId> tokens_;  // A member to reuse its memory.
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace

double ReplayReport::hit_rate() const { return Share(blocks_hit, blocks_requested); }

double ReplayReport::lower_hit_rate() const { return Share(lower_blocks_hit, blocks_requested); }

double ReplayReport::hit_rate(const ReplayedTier& tier) const {
  return Share(tier.hit_tokens, blocks_requested * tokens_per_block);
}

double ReplayReport::operations_per_second() const {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds > 0 ? static_cast<double>(operations) / seconds : 0;
}

absl::StatusOr<uint32_t> UnlimitedBlocks(absl::Span<const TraceRequest> requests,
                                         const ReplayOptions& options) {
  PrefixNodes distinct;
  uint64_t largest = 0;
  uint64_t replies = 0;
  for (const TraceRequest& request : requests) {
    distinct.Path(request.hash_ids);
    largest = std::max<uint64_t>(largest, request.hash_ids.size());
    // The block with the end of the prompt, and the last, partial block.
    if (options.service) replies += request.output_tokens / options.tokens_per_block + 2;
  }
  const uint64_t blocks = std::max<uint64_t>(1, distinct.size() + largest + replies);
  if (blocks > std::numeric_limits<uint32_t>::max()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("the trace needs ", Counted(blocks, "block"),
                                  " to evict nothing; give a capacity of at most ",
                                  std::numeric_limits<uint32_t>::max()));
  }
  return static_cast<uint32_t>(blocks);
}

absl::StatusOr<ReplayReport> ReplayTrace(absl::Span<const TraceRequest> requests,
                                         const ReplayOptions& options) {
  if (options.service.has_value() && !(options.service->prefill_tokens_per_second > 0 &&
                                       options.service->decode_tokens_per_second > 0)) {
    return MakeError(Reason::kInvalidArgument, "a rate of tokens per second must be above 0");
  }
  std::vector<uint32_t> tier_blocks = options.tier_blocks;
  if (tier_blocks.empty()) {
    const absl::StatusOr<uint32_t> unlimited = UnlimitedBlocks(requests, options);
    if (!unlimited.ok()) return unlimited.status();
    tier_blocks = {*unlimited};
  }
  ReplayReport report;
  const absl::StatusOr<std::unique_ptr<ReplayCore>> core =
      ReplayCore::Create(tier_blocks, options, report);
  if (!core.ok()) return core.status();

  const absl::Time start = absl::Now();
  const auto on_request = [&] {
    report.elapsed = absl::Now() - start;
    if (options.on_request) options.on_request(report);
  };
  if (options.service.has_value()) {
    ReplayOverlapping(**core, requests, *options.service, report, on_request);
    return report;
  }
  OneByOne replay(**core, options.tokens_per_block, report);
  for (const TraceRequest& request : requests) {
    replay.Run(request);
    on_request();
  }
  return report;
}

}  // namespace pagoda
