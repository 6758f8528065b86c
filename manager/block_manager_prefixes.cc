// The part of BlockManager that handles prefixes by name.
#include <algorithm>
#include <vector>

#include "manager/block_manager_parts.h"
#include "manager/window/window_prefixes.h"

namespace pagoda {

absl::Status BlockManager::CheckPrompt(const Prompt& prompt) const {
  return pagoda::CheckPrompt(prompt);
}

uint32_t BlockManager::MatchPrefix(const Prompt& prompt, std::vector<BlockHandle>* blocks) const {
  return parts().matcher.MatchPrefix(prompt, blocks);
}

absl::StatusOr<CapacityAnswer> BlockManager::QueryCapacity(
    SessionId session, const struct QueryCapacity& query, const NamespaceKey& name_space,
    const absl::Status* content_check) const {
  const TenantTable& tenants = parts().tenants;
  const WindowSet& windows = parts().windows;
  const PrefixMatcher& matcher = parts().matcher;
  CapacityAnswer answer;
  const auto tell_quotas = [&](TenantId tenant) {
    if (!tenants.any() || tenants[tenant].quota_blocks[0] == kNoQuota) return;
    for (size_t w = 0; w < windows.size(); ++w) {
      answer.windows[w].quota_blocks = tenants[tenant].quota_blocks[0];
      answer.windows[w].quota_left_blocks = windows[w]->QuotaLeft(tenant);
    }
  };
  if (query.sequence != SequenceId{}) {
    const absl::StatusOr<const Sequence*> found = FindSequence(session, query.sequence);
    if (!found.ok()) return found.status();
    const Sequence& sequence = **found;
    const uint64_t reserved = std::max<uint64_t>(
        sequence.reserved_tokens, uint64_t{sequence.token_count} + query.max_new_tokens);
    answer.matched_tokens = sequence.computed_tokens;
    for (const auto& window : windows) {
      answer.windows.push_back({.window = window->window(),
                                .blocks_now = 0,
                                .blocks_to_completion = window->sequences().BlocksToGrow(
                                    sequence, windows.TableSize(reserved)),
                                .available_blocks = window->available(sequence.tenant)});
    }
    tell_quotas(sequence.tenant);
    return answer;
  }
  const Prompt prompt{.name_space = name_space,
                      .tokens = query.tokens,
                      .extra_token_ids = query.extra_token_ids,
                      .multimodal_items = query.multimodal_items,
                      .keys = query.keys,
                      .content_check = content_check};
  if (absl::Status status = CheckPrefix(prompt); !status.ok()) return status;
  const absl::StatusOr<TenantId> charged =
      tenants.Charged(TenantOf(session), name_space, query.tenant);
  if (!charged.ok()) return charged.status();
  const TenantId tenant = *charged;
  const PromptKey all = KeyOf(prompt, windows.tokens_per_block());
  const PromptKey key = all.First(MatchLimit(all));
  std::vector<PrefixMatcher::Match> matches = matcher.FindPrefixes(name_space, key);
  answer.matched_tokens = matcher.LengthOf(matches, key, key.size());
  matcher.CutMatches(matches, answer.matched_tokens);
  for (size_t w = 0; w < windows.size(); ++w) {
    const WindowBlockManager& window = *windows[w];
    const WindowPrefixes::Held held = window.prefixes().HeldIn(matches[w], tenant);
    // The tighter limit decides.
    const bool pool_is_tighter = uint64_t{window.available()} + held.by_any <=
                                 uint64_t{window.QuotaLeft(tenant)} + held.by_tenant;
    const uint32_t given = matches[w].first + (pool_is_tighter ? held.by_any : held.by_tenant);
    answer.windows.push_back(
        {.window = window.window(),
         .blocks_now = windows.TableSize(all.size()) - given,
         .blocks_to_completion =
             windows.TableSize(uint64_t{all.size()} + query.max_new_tokens) - given,
         .available_blocks = window.available(tenant)});
  }
  tell_quotas(tenant);
  return answer;
}

absl::StatusOr<OffloadedPrefix> BlockManager::OffloadPrefix(const Prompt& prefix, absl::Time now) {
  OperationScope op = parts().runner.Begin(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  op.tenant = parts().tenants.OwnerOf(prefix.name_space);
  const std::vector<PrefixMatcher::Match> matches = parts().matcher.FindWholePrefixes(prefix);
  OffloadedPrefix result;
  for (size_t w = 0; w < parts().windows.size(); ++w)
    result.blocks += parts().windows[w]->prefixes().Offload(op, matches[w]);
  result.ready = parts().runner.End(op);
  return result;
}

MatchedPrefix BlockManager::DescribeMatch(const Prompt& prompt) const {
  return parts().matcher.DescribeMatch(prompt, parts().options.tiers.size());
}

absl::StatusOr<PrefetchedPrefix> BlockManager::PrefetchPrefix(const Prompt& prefix, absl::Time now,
                                                              const PrefetchOptions& options) {
  OperationScope op = parts().runner.Begin(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  op.tenant = parts().tenants.OwnerOf(prefix.name_space);
  const std::vector<PrefixMatcher::Match> matches = parts().matcher.FindWholePrefixes(prefix);
  PrefetchedPrefix result{.matched_tokens = matches.front().tokens};
  for (size_t w = 0; w < parts().windows.size(); ++w) {
    WindowBlockManager& window = *parts().windows[w];
    if (options.target == PrefetchTarget::kPrimary)
      result.blocks += window.prefixes().Prefetch(op, matches[w]);
    result.fetch = std::max(result.fetch, window.prefixes().Fetch(op, matches[w], options.deadline,
                                                                  &result.fetched_blocks));
  }
  result.ready = parts().runner.End(op);
  return result;
}

// --- Pins ---

absl::StatusOr<PinnedPrefix> BlockManager::PinPrefix(SessionId session, const Prompt& prefix,
                                                     absl::Duration lease, absl::Time now) {
  OperationScope op = parts().runner.Begin(now);
  absl::StatusOr<PinnedPrefix> pinned = parts().pins.PinPrefix(op, session, prefix, lease);
  if (pinned.ok()) parts().runner.End(op);
  return pinned;
}

absl::Status BlockManager::UnpinPrefix(PinId pin, absl::Time now, TenantId tenant) {
  OperationScope op = parts().runner.Begin(now);
  absl::Status status = parts().pins.UnpinPrefix(op, pin, tenant);
  if (status.ok()) parts().runner.End(op);
  return status;
}

ListedPins BlockManager::ListPins(TenantId tenant) const { return parts().pins.ListPins(tenant); }

// --- Invalidation and retention ---

absl::StatusOr<uint64_t> BlockManager::InvalidatePrefix(const Prompt& prefix, absl::Time now,
                                                        Ticket* durable) {
  OperationScope op = parts().runner.Begin(now);
  if (absl::Status status = pagoda::CheckPrompt(prefix); !status.ok()) return status;
  uint64_t removed = 0;
  for (const auto& window : parts().windows) {
    removed += window->prefixes().Invalidate(op, prefix.name_space,
                                             KeyOf(prefix, parts().windows.tokens_per_block()));
    const Ticket erased = window->OrderErase(FileErase::What::kSlots);
    if (durable != nullptr) *durable = std::max(*durable, erased);
  }
  parts().runner.End(op);
  return removed;
}

absl::StatusOr<uint32_t> BlockManager::SetRetention(const Prompt& prefix,
                                                    const SequenceRetention& retention,
                                                    absl::Time now, TenantId tenant) {
  OperationScope op = parts().runner.Begin(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  if (prefix.content_check == nullptr) {
    if (absl::Status status = CheckRetention(retention); !status.ok()) return status;
  }
  const std::vector<PrefixMatcher::Match> matches = parts().matcher.FindWholePrefixes(prefix);
  uint32_t named = 0;
  for (size_t w = 0; w < parts().windows.size(); ++w) {
    named += parts().windows[w]->prefixes().SetRetention(op, matches[w], retention, tenant);
  }
  parts().runner.End(op);
  return named;
}

}  // namespace pagoda
