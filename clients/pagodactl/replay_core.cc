#include "clients/pagodactl/replay_core.h"

#include "absl/memory/memory.h"
#include "base/check.h"

namespace pagoda {
namespace {

std::vector<TierSpec> TierSpecs(const std::vector<uint32_t>& tier_blocks) {
  std::vector<TierSpec> tiers;
  for (const uint32_t blocks : tier_blocks) {
    tiers.push_back({.name = DefaultTierName(static_cast<Tier>(tiers.size())), .blocks = {blocks}});
  }
  return tiers;
}

// One tiny layer is enough: the core uses only tokens_per_block.
absl::StatusOr<std::unique_ptr<BlockManager>> MakeManager(const std::vector<uint32_t>& tier_blocks,
                                                          const std::string& policy,
                                                          uint32_t tokens_per_block) {
  absl::StatusOr<CacheLayout> layout =
      CacheLayout::Create({.name = "replay",
                           .model_fingerprint = "trace",
                           .tokens_per_block = tokens_per_block,
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

}  // namespace

void AppendBlockTokens(uint64_t hash_id, uint32_t tokens_per_block, std::vector<TokenId>& tokens) {
  tokens.push_back(static_cast<TokenId>(hash_id));
  tokens.push_back(static_cast<TokenId>(hash_id >> 32));
  for (uint32_t i = 2; i < tokens_per_block; ++i) tokens.push_back(i);
}

absl::StatusOr<std::unique_ptr<ReplayCore>> ReplayCore::Create(
    const std::vector<uint32_t>& tier_blocks, const std::string& policy, uint32_t tokens_per_block,
    ReplayReport& report) {
  absl::StatusOr<std::unique_ptr<BlockManager>> manager =
      MakeManager(tier_blocks, policy, tokens_per_block);
  if (!manager.ok()) return manager.status();
  const absl::StatusOr<BlockManager::OpenedSession> session =
      (*manager)->OpenSession("replay", absl::InfiniteDuration(), absl::UnixEpoch());
  if (!session.ok()) return session.status();
  report.tokens_per_block = tokens_per_block;
  for (const uint32_t blocks : tier_blocks) report.tiers.push_back({.capacity_blocks = blocks});
  return absl::WrapUnique(
      new ReplayCore(*std::move(manager), session->ref.id, tokens_per_block, report));
}

absl::StatusOr<uint32_t> ReplayCore::Add(SequenceId sequence, absl::Span<const TokenId> tokens,
                                         uint32_t reserved_tokens, absl::Time now) {
  ++report_.operations;
  const absl::StatusOr<SequenceAdded> added =
      manager_->AddSequence(session_, sequence, {}, tokens, reserved_tokens, now);
  if (!added.ok()) return added.status();
  const uint32_t matched = added->matched_tokens;
  FinishCopies(now);
  return matched;
}

absl::Status ReplayCore::Reserve(SequenceId sequence, uint32_t count, absl::Time now) {
  ++report_.operations;
  const absl::StatusOr<SequenceGrowth> growth =
      manager_->ReserveTokens(session_, sequence, count, now);
  FinishCopies(now);
  return growth.status();
}

void ReplayCore::Commit(SequenceId sequence, absl::Span<const TokenId> tokens,
                        uint32_t computed_tokens, absl::Time now) {
  ++report_.operations;
  PAGODA_CHECK(manager_->CommitTokens(session_, sequence, tokens, computed_tokens, now).ok(),
               "a request's own blocks could not be committed");
}

void ReplayCore::Free(SequenceId sequence, absl::Time now) {
  ++report_.operations;
  PAGODA_CHECK(manager_->FreeSequence(session_, sequence, now).ok(),
               "a request's sequence could not be freed");
  FinishCopies(now);
}

void ReplayCore::FinishCopies(absl::Time now) {
  for (const CopyOrder& copy : manager_->TakeCopies()) {
    if (copy.source.tier != copy.target.tier) {
      ++TierOf(copy.source).blocks_read;
      ++TierOf(copy.target).blocks_written;
    }
    manager_->CompleteCopy(copy.ticket, absl::OkStatus(), now);
  }
}

void ReplayCore::ReadCounters() {
  const ManagerStats stats = manager_->Stats();
  const WindowStats& window = stats.windows.front();
  const TenantCounters& all = window.tenants[kDefaultTenant.value()];
  report_.lower_blocks_hit = window.counters.secondary_hit_tokens / tokens_per_block_;
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

}  // namespace pagoda
