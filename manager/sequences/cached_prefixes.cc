#include "manager/sequences/cached_prefixes.h"

#include <algorithm>

#include "manager/window/window_block_manager.h"
#include "manager/words/prompt_key.h"

namespace pagoda {

using Reach = PrefixMatcher::Reach;

// --- What is cached, and what a sequence would take ---

uint32_t CachedPrefixes::Match(const SequencePrompt& prompt,
                               std::vector<BlockHandle>* blocks) const {
  if (blocks != nullptr) blocks->clear();
  if (prompt.empty() || !CheckPrompt(prompt).ok()) return 0;
  const PromptKey all = KeyOf(prompt, windows_.tokens_per_block());
  const PromptKey key = all.First(MatchLimit(all));
  std::vector<PrefixMatcher::Match> matches = matcher_.FindPrefixes(prompt.name_space, key);
  const uint32_t matched = matcher_.LengthOf(matches, key, key.size());
  if (blocks != nullptr) {
    matcher_.CutMatches(matches, matched);
    for (const BlockId id : windows_.back()->prefixes().PinnableBlocks(matches.back())) {
      blocks->push_back(windows_.back()->handle(id));
    }
  }
  return matched;
}

MatchedPrefix CachedPrefixes::Describe(const SequencePrompt& prompt) const {
  MatchedPrefix result;
  result.tokens_by_tier.resize(num_tiers_);
  if (prompt.empty() || !CheckPrompt(prompt).ok()) return result;
  const PromptKey all = KeyOf(prompt, windows_.tokens_per_block());
  const PromptKey key = all.First(MatchLimit(all));
  std::vector<PrefixMatcher::Match> matches = matcher_.FindPrefixes(prompt.name_space, key);
  result.matched_tokens = matcher_.LengthOf(matches, key, key.size());
  matcher_.CutMatches(matches, result.matched_tokens);
  for (const BlockId id : windows_.back()->prefixes().PinnableBlocks(matches.back())) {
    result.blocks.push_back(windows_.back()->handle(id));
  }
  result.cached_tokens = result.matched_tokens;
  // A second search costs as much as the first. It can add as little as a part of a block, and the
  // first result does not show whether it does.
  const bool has_disk = std::any_of(windows_.begin(), windows_.end(),
                                    [](const auto& window) { return window->has_disk(); });
  if (has_disk) {
    matches = matcher_.FindPrefixes(prompt.name_space, key, Reach::kAllTiers);
    result.cached_tokens = matcher_.LengthOf(matches, key, key.size());
    matcher_.CutMatches(matches, result.cached_tokens);
  }
  windows_.back()->prefixes().CountTokensByTier(matches.back(), &result.tokens_by_tier);
  return result;
}

void CachedPrefixes::AddQuotas(TenantId tenant, CapacityAnswer& answer) const {
  if (!tenants_.any() || tenants_[tenant].quota_blocks[0] == kNoQuota) return;
  for (size_t w = 0; w < windows_.size(); ++w) {
    answer.windows[w].quota_blocks = tenants_[tenant].quota_blocks[0];
    answer.windows[w].quota_left_blocks = windows_[w]->QuotaLeft(tenant);
  }
}

CapacityAnswer CachedPrefixes::CapacityOf(const Sequence& sequence, uint32_t max_new_tokens) const {
  const uint64_t reserved =
      std::max<uint64_t>(sequence.reserved_tokens, uint64_t{sequence.token_count} + max_new_tokens);
  CapacityAnswer answer;
  answer.matched_tokens = sequence.computed_tokens;
  for (const auto& window : windows_) {
    answer.windows.push_back({.window = window->window(),
                              .blocks_now = 0,
                              .blocks_to_completion = window->sequences().BlocksToGrow(
                                  sequence, windows_.TableSize(reserved)),
                              .available_blocks = window->available(sequence.tenant)});
  }
  AddQuotas(sequence.tenant, answer);
  return answer;
}

absl::StatusOr<CapacityAnswer> CachedPrefixes::QueryCapacity(
    SessionId session, const pagoda::QueryCapacity& query, const NamespaceKey& name_space,
    const absl::Status* content_check) const {
  if (query.sequence != SequenceId{}) {
    const absl::StatusOr<const Sequence*> found = sequences_.FindSequence(session, query.sequence);
    if (!found.ok()) return found.status();
    return CapacityOf(**found, query.max_new_tokens);
  }
  const SequencePrompt prompt{.name_space = name_space,
                              .tokens = query.tokens,
                              .extra_token_ids = query.extra_token_ids,
                              .multimodal_items = query.multimodal_items,
                              .keys = query.keys,
                              .content_check = content_check};
  if (absl::Status status = CheckPrefix(prompt); !status.ok()) return status;
  const absl::StatusOr<TenantId> charged =
      tenants_.Charged(sessions_.TenantOf(session), name_space, query.tenant);
  if (!charged.ok()) return charged.status();
  const TenantId tenant = *charged;
  const PromptKey all = KeyOf(prompt, windows_.tokens_per_block());
  const PromptKey key = all.First(MatchLimit(all));
  std::vector<PrefixMatcher::Match> matches = matcher_.FindPrefixes(name_space, key);
  CapacityAnswer answer;
  answer.matched_tokens = matcher_.LengthOf(matches, key, key.size());
  matcher_.CutMatches(matches, answer.matched_tokens);
  for (size_t w = 0; w < windows_.size(); ++w) {
    const WindowBlockManager& window = *windows_[w];
    const WindowPrefixes::Held held = window.prefixes().HeldIn(matches[w], tenant);
    // The tighter limit decides.
    const bool pool_is_tighter = uint64_t{window.available()} + held.by_any <=
                                 uint64_t{window.QuotaLeft(tenant)} + held.by_tenant;
    const uint32_t given = matches[w].first + (pool_is_tighter ? held.by_any : held.by_tenant);
    answer.windows.push_back(
        {.window = window.window(),
         .blocks_now = windows_.TableSize(all.size()) - given,
         .blocks_to_completion =
             windows_.TableSize(uint64_t{all.size()} + query.max_new_tokens) - given,
         .available_blocks = window.available(tenant)});
  }
  AddQuotas(tenant, answer);
  return answer;
}

// --- Moves ---

absl::StatusOr<OffloadedPrefix> CachedPrefixes::Offload(const SequencePrompt& prefix,
                                                        absl::Time now) {
  OperationScope op = runner_.Begin(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  op.tenant = tenants_.OwnerOf(prefix.name_space);
  const std::vector<PrefixMatcher::Match> matches = matcher_.FindWholePrefixes(prefix);
  OffloadedPrefix result;
  for (size_t w = 0; w < windows_.size(); ++w) {
    result.blocks += windows_[w]->prefixes().Offload(op, matches[w]);
  }
  result.ready = runner_.End(op);
  return result;
}

absl::StatusOr<PrefetchedPrefix> CachedPrefixes::Prefetch(const SequencePrompt& prefix,
                                                          absl::Time now,
                                                          const PrefetchOptions& options) {
  OperationScope op = runner_.Begin(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  op.tenant = tenants_.OwnerOf(prefix.name_space);
  const std::vector<PrefixMatcher::Match> matches = matcher_.FindWholePrefixes(prefix);
  PrefetchedPrefix result{.matched_tokens = matches.front().tokens};
  for (size_t w = 0; w < windows_.size(); ++w) {
    WindowBlockManager& window = *windows_[w];
    if (options.target == PrefetchTarget::kPrimary) {
      result.blocks += window.prefixes().Prefetch(op, matches[w]);
    }
    result.fetch = std::max(result.fetch, window.prefixes().Fetch(op, matches[w], options.deadline,
                                                                  &result.fetched_blocks));
  }
  result.ready = runner_.End(op);
  return result;
}

// --- Pins ---

absl::StatusOr<PinnedPrefix> CachedPrefixes::Pin(SessionId session, const SequencePrompt& prefix,
                                                 absl::Duration lease, absl::Time now) {
  OperationScope op = runner_.Begin(now);
  absl::StatusOr<PinnedPrefix> pinned = pins_.PinPrefix(op, session, prefix, lease);
  if (pinned.ok()) runner_.End(op);
  return pinned;
}

absl::Status CachedPrefixes::Unpin(PinId pin, absl::Time now, TenantId tenant) {
  OperationScope op = runner_.Begin(now);
  absl::Status status = pins_.UnpinPrefix(op, pin, tenant);
  if (status.ok()) runner_.End(op);
  return status;
}

// --- Invalidation and retention ---

absl::StatusOr<uint64_t> CachedPrefixes::Invalidate(const SequencePrompt& prefix, absl::Time now,
                                                    Ticket* durable) {
  OperationScope op = runner_.Begin(now);
  if (absl::Status status = CheckPrompt(prefix); !status.ok()) return status;
  uint64_t removed = 0;
  for (const auto& window : windows_) {
    removed += window->prefixes().Invalidate(op, prefix.name_space,
                                             KeyOf(prefix, windows_.tokens_per_block()));
    const Ticket erased = window->OrderErase(Order::Kind::kErase);
    if (durable != nullptr) *durable = std::max(*durable, erased);
  }
  runner_.End(op);
  return removed;
}

absl::StatusOr<uint32_t> CachedPrefixes::SetRetention(const SequencePrompt& prefix,
                                                      const SequenceRetention& retention,
                                                      absl::Time now, TenantId tenant) {
  OperationScope op = runner_.Begin(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  if (prefix.content_check == nullptr) {
    if (absl::Status status = CheckRetention(retention); !status.ok()) return status;
  }
  const std::vector<PrefixMatcher::Match> matches = matcher_.FindWholePrefixes(prefix);
  uint32_t named = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    named += windows_[w]->prefixes().SetRetention(op, matches[w], retention, tenant);
  }
  runner_.End(op);
  return named;
}

}  // namespace pagoda
