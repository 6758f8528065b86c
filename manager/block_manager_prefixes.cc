// The part of BlockManager that finds prefixes, and works on them by name.
#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {
namespace {

absl::Status CheckNamespace(const NamespaceKey& name_space) {
  if (name_space.cache_salt.size() <= kMaxCacheSaltBytes &&
      name_space.tenant.size() <= kMaxTenantBytes) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("a salt of ", name_space.cache_salt.size(),
                                " bytes and a tenant of ", name_space.tenant.size(), "; at most ",
                                kMaxCacheSaltBytes, " and ", kMaxTenantBytes, " are allowed"));
}

}  // namespace

absl::Status BlockManager::CheckPrompt(const Prompt& prompt) const {
  if (absl::Status status = CheckNamespace(prompt.name_space); !status.ok()) return status;
  if (prompt.content_check != nullptr) return *prompt.content_check;
  return CheckContent(prompt.tokens.size(), prompt.extra_token_ids.size(), prompt.multimodal_items,
                      prompt.retention);
}

absl::Status BlockManager::CheckPrefix(const Prompt& prefix) const {
  if (prefix.tokens.empty()) return MakeError(Reason::kInvalidCount, "a prefix needs a token");
  return CheckPrompt(prefix);
}

std::vector<BlockManager::Match> BlockManager::FindPrefixes(const NamespaceKey& name_space,
                                                            const PromptKey& key) const {
  std::vector<Match> matches;
  matches.reserve(windows_.size());
  for (const auto& window : windows_) matches.push_back(window->FindPrefix(name_space, key));
  return matches;
}

// Lengths fall until all windows agree.
uint32_t BlockManager::ValidLength(const std::vector<Match>& matches, uint32_t limit) const {
  uint32_t length = limit;
  for (bool agreed = false; !agreed;) {
    agreed = true;
    for (size_t w = 0; w < windows_.size(); ++w) {
      const uint32_t valid = windows_[w]->ValidLength(matches[w], length);
      agreed = agreed && (valid == length || w == 0);
      length = valid;
    }
  }
  return length;
}

void BlockManager::CutMatches(std::vector<Match>& matches, uint32_t tokens) const {
  for (size_t w = 0; w < windows_.size(); ++w) windows_[w]->CutMatch(matches[w], tokens);
}

std::vector<BlockManager::Match> BlockManager::FindWholePrefixes(const Prompt& prefix) const {
  const PromptKey key = KeyOf(prefix);
  std::vector<Match> matches = FindPrefixes(prefix.name_space, key);
  std::vector<TokenExtra> scratch;
  // A shorter length may end in a part of a block again: beside a hole of a sliding window.
  for (auto limit = static_cast<uint32_t>(key.size());;) {
    const uint32_t length = ValidLength(matches, limit);
    CutMatches(matches, length);
    const bool whole = std::equal(
        windows_.begin(), windows_.end(), matches.begin(),
        [](const auto& window, const Match& match) { return window->SourceIsWhole(match); });
    if (whole) return matches;
    limit = tokens_per_block_.BlockForToken(length) * tokens_per_block_.value();
    if (FindWholeTail(matches, key.Block(limit, length - limit, &scratch))) return matches;
  }
}

bool BlockManager::FindWholeTail(std::vector<Match>& matches, const BlockKey& rest) const {
  const auto begin =
      static_cast<uint32_t>(matches.front().blocks.size()) * tokens_per_block_.value();
  for (const uint32_t count : windows_.front()->TailLengths(matches.front(), rest)) {
    if (ValidLength(matches, begin + count) != begin + count) continue;
    absl::InlinedVector<BlockId, 4> tails;
    for (size_t w = 0; w < windows_.size(); ++w) {
      tails.push_back(windows_[w]->FindTail(matches[w], rest.First(count)));
    }
    if (std::find(tails.begin(), tails.end(), kNoBlock) != tails.end()) continue;
    for (size_t w = 0; w < windows_.size(); ++w) matches[w].source = tails[w];
    CutMatches(matches, begin + count);
    return true;
  }
  return false;
}

uint32_t BlockManager::MatchPrefix(const Prompt& prompt, std::vector<BlockHandle>* blocks) const {
  if (blocks != nullptr) blocks->clear();
  if (prompt.tokens.empty() || !CheckPrompt(prompt).ok()) return 0;
  const auto limit = static_cast<uint32_t>(prompt.tokens.size() - 1);
  std::vector<Match> matches = FindPrefixes(prompt.name_space, KeyOf(prompt).First(limit));
  const uint32_t matched = ValidLength(matches, limit);
  if (blocks != nullptr) {
    CutMatches(matches, matched);
    for (const BlockId id : windows_.back()->PinnableBlocks(matches.back())) {
      blocks->push_back(windows_.back()->handle(id));
    }
  }
  return matched;
}

absl::StatusOr<CapacityAnswer> BlockManager::QueryCapacity(
    SessionId session, const struct QueryCapacity& query, const NamespaceKey& name_space,
    const absl::Status* content_check) const {
  CapacityAnswer answer;
  const auto tell_quotas = [&](TenantId tenant) {
    if (!tenants_.any() || tenants_[tenant].quota_blocks[0] == kNoQuota) return;
    for (size_t w = 0; w < windows_.size(); ++w) {
      answer.windows[w].quota_blocks = tenants_[tenant].quota_blocks[0];
      answer.windows[w].quota_left_blocks = windows_[w]->QuotaLeft(tenant);
    }
  };
  if (query.sequence != SequenceId{}) {
    const absl::StatusOr<const Sequence*> found = FindSequence(session, query.sequence);
    if (!found.ok()) return found.status();
    const Sequence& sequence = **found;
    const uint64_t room = std::max<uint64_t>(sequence.room_tokens,
                                             uint64_t{sequence.token_count} + query.max_new_tokens);
    answer.matched_tokens = sequence.computed_tokens;
    for (const auto& window : windows_) {
      answer.windows.push_back(
          {.window = window->window(),
           .blocks_now = 0,
           .blocks_to_completion = window->BlocksToGrow(sequence, TableSize(room)),
           .available_blocks = window->available(sequence.tenant)});
    }
    tell_quotas(sequence.tenant);
    return answer;
  }
  const Prompt prompt{.name_space = name_space,
                      .tokens = query.tokens,
                      .extra_token_ids = query.extra_token_ids,
                      .multimodal_items = query.multimodal_items,
                      .content_check = content_check};
  if (absl::Status status = CheckPrefix(prompt); !status.ok()) return status;
  const absl::StatusOr<TenantId> charged =
      tenants_.Charged(TenantOf(session), name_space, query.tenant);
  if (!charged.ok()) return charged.status();
  const TenantId tenant = *charged;
  std::vector<Match> matches =
      FindPrefixes(name_space, KeyOf(prompt).First(query.tokens.size() - 1));
  answer.matched_tokens = ValidLength(matches, static_cast<uint32_t>(query.tokens.size() - 1));
  CutMatches(matches, answer.matched_tokens);
  for (size_t w = 0; w < windows_.size(); ++w) {
    const WindowBlockManager& window = *windows_[w];
    const WindowBlockManager::Held held = window.HeldIn(matches[w], tenant);
    // What counts is what the tighter limit gives.
    const bool pool_is_tighter = uint64_t{window.available()} + held.by_any <=
                                 uint64_t{window.QuotaLeft(tenant)} + held.by_tenant;
    const uint32_t given = matches[w].first + (pool_is_tighter ? held.by_any : held.by_tenant);
    answer.windows.push_back(
        {.window = window.window(),
         .blocks_now = TableSize(query.tokens.size()) - given,
         .blocks_to_completion =
             TableSize(uint64_t{query.tokens.size()} + query.max_new_tokens) - given,
         .available_blocks = window.available(tenant)});
  }
  tell_quotas(tenant);
  return answer;
}

absl::StatusOr<OffloadedPrefix> BlockManager::OffloadPrefix(const Prompt& prefix, absl::Time now) {
  OperationScope op = BeginOperation(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  op.tenant = tenants_.OwnerOf(prefix.name_space);
  const std::vector<Match> matches = FindWholePrefixes(prefix);
  OffloadedPrefix result;
  for (size_t w = 0; w < windows_.size(); ++w)
    result.blocks += windows_[w]->Offload(op, matches[w]);
  result.ready = EndOperation(op);
  return result;
}

absl::StatusOr<PrefetchedPrefix> BlockManager::PrefetchPrefix(const Prompt& prefix,
                                                              absl::Time now) {
  OperationScope op = BeginOperation(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  op.tenant = tenants_.OwnerOf(prefix.name_space);
  const std::vector<Match> matches = FindWholePrefixes(prefix);
  PrefetchedPrefix result{.matched_tokens = matches.front().tokens};
  for (size_t w = 0; w < windows_.size(); ++w)
    result.blocks += windows_[w]->Prefetch(op, matches[w]);
  result.ready = EndOperation(op);
  return result;
}

// --- Pins ---

absl::StatusOr<absl::Duration> BlockManager::PinLease(TenantId tenant, absl::Duration asked) const {
  if (asked <= absl::ZeroDuration()) {
    return MakeError(Reason::kInvalidArgument, "a pin's lease must be positive");
  }
  if (tenant == kCommons || asked <= options_.max_pin_lease) return asked;
  if (asked == absl::InfiniteDuration()) return options_.max_pin_lease;
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("a pin's lease of ", absl::FormatDuration(asked), "; at most ",
                                absl::FormatDuration(options_.max_pin_lease), " is given"));
}

absl::Status BlockManager::CheckPinQuota(uint32_t window_index, const PinEntry& entry,
                                         const NamespaceKey& name_space) const {
  if (!tenants_.any()) return absl::OkStatus();
  const WindowBlockManager& window = *windows_[window_index];
  const std::vector<BlockId>& blocks = entry.blocks[window_index];
  if (entry.holder != tenants_.OwnerOf(name_space) && blocks.size() > window.Quota(entry.holder)) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat(blocks.size(), " blocks to pin; the tenant's quota in window ",
                                  WindowName(window.window()), " is ", window.Quota(entry.holder)));
  }
  return CheckNeeds(entry.holder, window_index,
                    {.pool = {}, .quota = window.PinNeed(blocks, entry.holder)});
}

absl::StatusOr<PinnedPrefix> BlockManager::PinPrefix(SessionId session, const Prompt& prefix,
                                                     absl::Duration lease, absl::Time now) {
  OperationScope op = BeginOperation(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  PinEntry entry{.info = {},
                 .tenant = TenantOf(session),
                 .holder = *tenants_.Charged(TenantOf(session), prefix.name_space, {}),
                 .blocks = {}};
  const absl::StatusOr<absl::Duration> given = PinLease(entry.tenant, lease);
  if (!given.ok()) return given.status();
  const std::vector<Match> matches = FindWholePrefixes(prefix);
  if (matches.front().tokens == 0) {
    EndOperation(op);
    return PinnedPrefix{};
  }
  uint32_t blocks = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    entry.blocks.push_back(windows_[w]->PinnableBlocks(matches[w]));
    blocks += static_cast<uint32_t>(entry.blocks.back().size());
  }
  // The quota comes first: only it may say that the pin can never be.
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    absl::Status status = CheckPinQuota(w, entry, prefix.name_space);
    if (!status.ok()) return status;
  }
  if (absl::Status status = pins_.CheckRoom(entry.tenant, blocks); !status.ok()) return status;
  for (size_t w = 0; w < windows_.size(); ++w) {
    absl::Status status = windows_[w]->CheckPinBudget(entry.tenant, entry.blocks[w]);
    if (!status.ok()) return status;
  }
  entry.info = {.client_name = RequireSession(session).client_name,
                .name_space = prefix.name_space,
                .pinned_tokens = matches.front().tokens,
                .blocks = blocks,
                .expires = now + *given,
                .tenant = tenants_[entry.tenant].name};
  deadlines_.EndsAt(entry.info.expires);
  const PinId pin = pins_.Add(std::move(entry));
  const PinEntry& added = *pins_.Find(pin);
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->Pin(op, {.pin = pin, .tenant = added.tenant, .holder = added.holder},
                     added.blocks[w]);
  }
  EndOperation(op);
  return PinnedPrefix{
      .pin = pin, .pinned_tokens = added.info.pinned_tokens, .blocks = added.info.blocks};
}

absl::Status BlockManager::UnpinPrefix(PinId pin, absl::Time now, TenantId tenant) {
  OperationScope op = BeginOperation(now);
  const PinEntry* entry = pins_.Find(pin);
  if (entry == nullptr || (tenant != kCommons && entry->tenant != tenant)) {
    return MakeError(Reason::kUnknownPin, absl::StrCat("pin ", pin.value(),
                                                       " was never made, or has ended: it was "
                                                       "unpinned, its lease ran out, or its prefix "
                                                       "left the cache"));
  }
  EndPin(op, pin, PinEnd::kUnpinned);
  EndOperation(op);
  return absl::OkStatus();
}

void BlockManager::EndPin(OperationScope& op, PinId pin, PinEnd why,
                          std::optional<RemovalReason> removal) {
  const PinEntry entry = pins_.Take(pin);
  const WindowBlockManager& largest = *windows_.back();
  const BlockId last = entry.blocks.back().back();
  recorder_.PinEnded(largest.window(), last, largest.hash(last),
                     {.pin = pin, .why = why, .removal = removal}, entry.tenant);
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->Unpin(op, {.pin = pin, .tenant = entry.tenant, .holder = entry.holder},
                       entry.blocks[w]);
  }
}

void BlockManager::EndPinOfLeaving(OperationScope& op, PinId pin, RemovalReason removal) {
  EndPin(op, pin, PinEnd::kPrefixLeft, removal);
}

void BlockManager::ExpirePins(OperationScope& op) {
  uint64_t blocks = 0;
  while (blocks < kMaxEndsByTime) {
    const std::optional<PinId> pin = pins_.FirstExpired(op.now);
    if (!pin.has_value()) break;
    blocks += pins_.Find(*pin)->references();
    EndPin(op, *pin, PinEnd::kExpired);
  }
  deadlines_.EndsAt(pins_.next_deadline());
}

ListedPins BlockManager::ListPins(TenantId tenant) const {
  ListedPins list;
  for (const auto& [id, pin] : pins_) {
    if (tenant == kCommons || pin.tenant == tenant) list.pins.push_back(pin.info);
  }
  for (const auto& window : windows_) {
    list.pinned_blocks +=
        tenant == kCommons ? window->pinned_blocks() : window->pinned_blocks(tenant);
    list.budget_blocks += window->pin_budget_blocks(tenant);
  }
  return list;
}

// --- Forgetting and keeping ---

absl::StatusOr<uint64_t> BlockManager::InvalidatePrefix(const Prompt& prefix, absl::Time now) {
  OperationScope op = BeginOperation(now);
  if (absl::Status status = CheckPrompt(prefix); !status.ok()) return status;
  uint64_t removed = 0;
  for (const auto& window : windows_) {
    removed += window->Invalidate(op, prefix.name_space, KeyOf(prefix));
  }
  EndOperation(op);
  return removed;
}

absl::StatusOr<uint32_t> BlockManager::SetRetention(const Prompt& prefix,
                                                    const SequenceRetention& retention,
                                                    absl::Time now, TenantId tenant) {
  OperationScope op = BeginOperation(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  if (prefix.content_check == nullptr) {
    if (absl::Status status = CheckRetention(retention); !status.ok()) return status;
  }
  const std::vector<Match> matches = FindWholePrefixes(prefix);
  uint32_t named = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    named += windows_[w]->SetRetention(op, matches[w], retention, tenant);
  }
  EndOperation(op);
  return named;
}

}  // namespace pagoda
