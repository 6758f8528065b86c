#include "clients/pagoda_plan/replay/replay_core.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "base/check.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"

namespace pagoda {
namespace {

std::vector<TierSpec> TierSpecs(const std::vector<uint32_t>& tier_blocks, LastTier last) {
  std::vector<TierSpec> tiers;
  for (const uint32_t blocks : tier_blocks) {
    tiers.push_back({.name = DefaultTierName(Tier(tiers.size())), .blocks = {blocks}});
  }
  if (last == LastTier::kDisk) {
    tiers.back().medium = Medium::kDisk;
    tiers.back().min_priority = Priority{0};
  }
  return tiers;
}

// One tiny layer is enough: the core uses only tokens_per_block.
absl::StatusOr<std::unique_ptr<BlockManager>> MakeManager(const std::vector<uint32_t>& tier_blocks,
                                                          const ReplayOptions& options) {
  absl::StatusOr<CacheLayout> layout =
      CacheLayout::Create({.name = "replay",
                           .model_fingerprint = "trace",
                           .tokens_per_block = options.tokens_per_block,
                           .layers = {{.num_kv_heads = 1, .head_dim = 1}}});
  if (!layout.ok()) return layout.status();
  return BlockManager::Create({.layout = *std::move(layout),
                               .tiers = TierSpecs(tier_blocks, options.last_tier),
                               .eviction_policy = options.policy,
                               .pool_mappings = {},
                               // There are no subscribers.
                               .record_events = RecordEvents::kNo,
                               .epoch = {},
                               // Nobody asks for the hit rates of other capacities.
                               .max_distance_samples = 0});
}

}  // namespace

void AppendBlockTokens(uint64_t hash_id, uint32_t tokens_per_block, std::vector<TokenId>& tokens) {
  tokens.push_back(static_cast<TokenId>(hash_id));
  tokens.push_back(static_cast<TokenId>(hash_id >> 32));
  for (uint32_t i = 2; i < tokens_per_block; ++i) tokens.push_back(i);
}

absl::StatusOr<std::unique_ptr<ReplayCore>> ReplayCore::Create(
    const std::vector<uint32_t>& tier_blocks, const ReplayOptions& options, ReplayReport& report) {
  absl::StatusOr<std::unique_ptr<BlockManager>> manager = MakeManager(tier_blocks, options);
  if (!manager.ok()) return manager.status();
  const absl::StatusOr<BlockManager::OpenedSession> session =
      (*manager)->OpenSession("replay", absl::InfiniteDuration(), absl::UnixEpoch());
  if (!session.ok()) return session.status();
  report.tokens_per_block = options.tokens_per_block;
  for (const uint32_t blocks : tier_blocks) report.tiers.push_back({.capacity_blocks = blocks});
  return absl::WrapUnique(new ReplayCore(*std::move(manager), session->ref.id, options, report));
}

absl::StatusOr<uint32_t> ReplayCore::Add(SequenceId sequence, absl::Span<const TokenId> tokens,
                                         uint32_t reserved_tokens, absl::Time now) {
  const NamespaceKey name_space;
  const SequencePrompt prompt{
      .name_space = name_space, .tokens = tokens, .reserved_tokens = reserved_tokens};
  // What matches behind the blocks in memory has been fetched.
  uint32_t blocks_in_memory = 0;
  if (has_disk_) {
    blocks_in_memory = manager_->prefixes().Match(prompt, nullptr) / tokens_per_block_;
    FetchFromDisk(prompt, now);
  }
  ++report_.operations;
  const absl::StatusOr<SequenceAdded> added =
      manager_->sequences().AddSequence(session_, sequence, prompt, now);
  if (!added.ok()) return added.status();
  const uint32_t matched = added->matched_tokens;
  if (has_disk_) {
    const uint32_t matched_blocks = matched / tokens_per_block_;
    fetched_blocks_hit_ += matched_blocks - std::min(blocks_in_memory, matched_blocks);
  }
  FinishOrders(now);
  return matched;
}

absl::Status ReplayCore::Reserve(SequenceId sequence, uint32_t count, absl::Time now) {
  ++report_.operations;
  const absl::StatusOr<SequenceGrowth> growth =
      manager_->sequences().ReserveTokens(session_, sequence, count, now);
  FinishOrders(now);
  return growth.status();
}

void ReplayCore::Commit(SequenceId sequence, absl::Span<const TokenId> tokens,
                        uint32_t computed_tokens, absl::Time now) {
  ++report_.operations;
  PAGODA_CHECK(
      manager_->sequences().CommitTokens(session_, sequence, tokens, computed_tokens, now).ok(),
      "a request's own blocks could not be committed");
}

void ReplayCore::Free(SequenceId sequence, absl::Time now) {
  ++report_.operations;
  PAGODA_CHECK(manager_->sequences().FreeSequence(session_, sequence, now).ok(),
               "a request's sequence could not be freed");
  FinishOrders(now);
  if (has_disk_) WriteToDisk(now);
}

void ReplayCore::FetchFromDisk(const SequencePrompt& prompt, absl::Time now) {
  // A fetch takes at most a part of the tier above the disk, so a long prompt needs several. Each
  // one brings at least one block, and displaces none of the prompt.
  for (size_t i = 0; i < prompt.tokens.size() / tokens_per_block_; ++i) {
    ++report_.operations;
    const absl::StatusOr<PrefetchedPrefix> prefetched = manager_->prefixes().Prefetch(
        prompt, now, {.target = PrefetchTarget::kMemory, .deadline = absl::InfiniteFuture()});
    if (!prefetched.ok() || prefetched->fetched_blocks == 0) return;
    FinishOrders(now);
  }
}

void ReplayCore::WriteToDisk(absl::Time now) {
  do {
    ++report_.operations;
    manager_->Maintain(now, 0);
  } while (FinishOrders(now));
}

bool ReplayCore::FinishOrders(absl::Time now) {
  bool any = false;
  // An order that ends can cause others.
  for (std::vector<Order> orders = manager_->TakeOrders(); !orders.empty();
       orders = manager_->TakeOrders()) {
    for (const Order& order : orders) {
      if (order.kind != Order::Kind::kMove) continue;
      any = true;
      if (order.source.tier != order.target.tier) {
        ++TierOf(order.source).blocks_read;
        ++TierOf(order.target).blocks_written;
      }
      manager_->Complete(order.lane, order.ticket, absl::OkStatus(), now);
    }
  }
  return any;
}

void ReplayCore::ReadCounters() {
  const ManagerStats stats = manager_->Stats();
  const WindowStats& window = stats.windows.front();
  const TenantCounters& all = window.tenants[kDefaultTenant.value()];
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
  if (has_disk_) {
    const uint64_t fetched_tokens = fetched_blocks_hit_ * tokens_per_block_;
    // No block lies nearer than the one before it. So all behind those that were in memory lie in
    // the tier to which they were fetched.
    PAGODA_CHECK(report_.tiers.end()[-2].hit_tokens >= fetched_tokens, "fetched blocks hit there");
    report_.tiers.end()[-1].hit_tokens += fetched_tokens;
    report_.tiers.end()[-2].hit_tokens -= fetched_tokens;
  }
  uint64_t lower_tokens = 0;
  for (size_t t = 1; t < report_.tiers.size(); ++t) lower_tokens += report_.tiers[t].hit_tokens;
  report_.lower_blocks_hit = lower_tokens / tokens_per_block_;
}

}  // namespace pagoda
