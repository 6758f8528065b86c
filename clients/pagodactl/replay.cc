#include "clients/pagodactl/replay.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/error.h"
#include "clients/pagodactl/format.h"
#include "manager/block_manager.h"

namespace pagoda {
namespace {

constexpr SequenceId kSequence{1};  // One request at a time.

// The tokens of one block: the id in two halves, then the positions. Injective and cheap.
void AppendBlockTokens(uint64_t hash_id, std::vector<TokenId>& tokens) {
  tokens.push_back(static_cast<TokenId>(hash_id));
  tokens.push_back(static_cast<TokenId>(hash_id >> 32));
  for (uint32_t i = 2; i < kTraceBlockTokens; ++i) tokens.push_back(i);
}

// The number of distinct blocks plus the blocks of the largest request. With this capacity nothing
// is evicted, even while a request holds its own blocks.
absl::StatusOr<uint32_t> UnlimitedCapacity(absl::Span<const TraceRequest> requests) {
  absl::flat_hash_set<uint64_t> distinct;
  size_t largest = 0;
  for (const TraceRequest& request : requests) {
    distinct.insert(request.hash_ids.begin(), request.hash_ids.end());
    largest = std::max(largest, request.hash_ids.size());
  }
  const size_t blocks = std::max<size_t>(1, distinct.size() + largest);
  if (blocks > std::numeric_limits<uint32_t>::max()) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat("the trace needs ", blocks,
                                                            " blocks to evict nothing; give a "
                                                            "capacity of at most ",
                                                            std::numeric_limits<uint32_t>::max()));
  }
  return static_cast<uint32_t>(blocks);
}

std::vector<TierSpec> TierSpecs(const std::vector<uint32_t>& tier_blocks) {
  std::vector<TierSpec> tiers;
  for (const uint32_t blocks : tier_blocks) {
    tiers.push_back({.name = DefaultTierName(static_cast<Tier>(tiers.size())), .blocks = {blocks}});
  }
  return tiers;
}

// One tiny layer is enough: the core uses only tokens_per_block.
absl::StatusOr<std::unique_ptr<BlockManager>> MakeManager(const std::vector<uint32_t>& tier_blocks,
                                                          const std::string& policy) {
  absl::StatusOr<CacheLayout> layout =
      CacheLayout::Create({.name = "replay",
                           .model_fingerprint = "trace",
                           .tokens_per_block = kTraceBlockTokens,
                           .layers = {{.num_kv_heads = 1, .head_dim = 1}}});
  if (!layout.ok()) return layout.status();
  return BlockManager::Create({.layout = *std::move(layout),
                               .tiers = TierSpecs(tier_blocks),
                               .eviction_policy = policy,
                               .pool_mappings = {},
                               // There are no subscribers.
                               .record_events = RecordEvents::kNo,
                               .epoch = {}});
}

class Replay {
 public:
  Replay(std::unique_ptr<BlockManager> manager, SessionId session, ReplayReport& report)
      : manager_(std::move(manager)), session_(session), report_(report) {}

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
    report_.blocks_hit += AddCommitFree(request) / kTraceBlockTokens;
    report_.operations += 3;
    ReadCounters();
  }

 private:
  void ReadCounters() {
    const ManagerStats stats = manager_->Stats();
    const WindowStats& window = stats.windows.front();
    const TenantCounters& all = window.tenants[kDefaultTenant.value()];
    report_.lower_blocks_hit = window.counters.secondary_hit_tokens / kTraceBlockTokens;
    report_.evictions = window.counters.evicted_blocks + window.counters.displaced_blocks;
    report_.offloads = window.counters.offloaded_blocks;
    report_.onboards = window.counters.onboarded_blocks;
    for (size_t t = 0; t < report_.tiers.size(); ++t) {
      const auto& removed = all.removed_blocks[t];
      ReplayedTier& tier = report_.tiers[t];
      tier.hit_tokens = all.prefix_hit_tokens[t];
      tier.evictions = removed[static_cast<size_t>(RemovalReason::kEvicted)] +
                       removed[static_cast<size_t>(RemovalReason::kDisplaced)];
      tier.free_evictions = window.freely_evicted_blocks[t];
    }
  }

  // Returns the matched tokens. Nothing can fail, because there is only one sequence at a time and
  // it fits the cache.
  uint32_t AddCommitFree(const TraceRequest& request) {
    tokens_.clear();
    for (uint64_t id : request.hash_ids) AppendBlockTokens(id, tokens_);
    const auto block_tokens = static_cast<uint32_t>(tokens_.size());
    // Any id works: a prompt's last token is not matched, and this one is not computed and so never
    // cached.
    tokens_.push_back(0);

    const absl::StatusOr<SequenceAdded> added =
        manager_->AddSequence(session_, kSequence, {}, tokens_, block_tokens, now_);
    const uint32_t matched = added.ok() ? added->matched_tokens : 0;
    PAGODA_CHECK(added.ok(), "a request that fits an idle cache was refused");
    FinishCopies();
    PAGODA_CHECK(manager_->CommitTokens(session_, kSequence, {}, block_tokens, now_).ok(),
                 "a request's own blocks could not be committed");
    PAGODA_CHECK(manager_->FreeSequence(session_, kSequence, now_).ok(),
                 "a request's sequence could not be freed");
    FinishCopies();
    return matched;
  }

  void FinishCopies() {
    for (const CopyOrder& copy : manager_->TakeCopies()) {
      if (copy.source.tier != copy.target.tier) {
        ++TierOf(copy.source).blocks_read;
        ++TierOf(copy.target).blocks_written;
      }
      manager_->CompleteCopy(copy.ticket, absl::OkStatus(), now_);
    }
  }

  ReplayedTier& TierOf(SlotRef slot) { return report_.tiers[static_cast<size_t>(slot.tier)]; }

  std::unique_ptr<BlockManager> manager_;
  const SessionId session_;
  ReplayReport& report_;
  std::vector<TokenId> tokens_;  // A member to reuse its memory.
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace

double ReplayReport::hit_rate() const { return Share(blocks_hit, blocks_requested); }

double ReplayReport::lower_hit_rate() const { return Share(lower_blocks_hit, blocks_requested); }

double ReplayReport::hit_rate(const ReplayedTier& tier) const {
  return Share(tier.hit_tokens, blocks_requested * kTraceBlockTokens);
}

double ReplayReport::operations_per_second() const {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds > 0 ? static_cast<double>(operations) / seconds : 0;
}

absl::StatusOr<ReplayReport> ReplayTrace(absl::Span<const TraceRequest> requests,
                                         const ReplayOptions& options) {
  std::vector<uint32_t> tier_blocks = options.tier_blocks;
  if (tier_blocks.empty()) {
    const absl::StatusOr<uint32_t> unlimited = UnlimitedCapacity(requests);
    if (!unlimited.ok()) return unlimited.status();
    tier_blocks = {*unlimited};
  }
  absl::StatusOr<std::unique_ptr<BlockManager>> manager = MakeManager(tier_blocks, options.policy);
  if (!manager.ok()) return manager.status();
  const absl::StatusOr<BlockManager::OpenedSession> session =
      (*manager)->OpenSession("replay", absl::InfiniteDuration(), absl::UnixEpoch());
  if (!session.ok()) return session.status();

  ReplayReport report;
  for (const uint32_t blocks : tier_blocks) report.tiers.push_back({.capacity_blocks = blocks});
  const absl::Time start = absl::Now();
  Replay replay(*std::move(manager), session->ref.id, report);
  for (const TraceRequest& request : requests) {
    replay.Run(request);
    report.elapsed = absl::Now() - start;
    if (options.on_request) options.on_request(report);
  }
  return report;
}

}  // namespace pagoda
