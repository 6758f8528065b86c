// The part of BlockManager that finds prefixes, and works on them by name.
#include <algorithm>
#include <limits>
#include <utility>

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
  if (!prompt.extra_token_ids.empty() && prompt.extra_token_ids.size() != prompt.tokens.size()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(prompt.extra_token_ids.size(), " extra ids for ",
                                  prompt.tokens.size(), " tokens"));
  }
  uint64_t end = 0;
  for (const MultimodalItem& item : prompt.multimodal_items) {
    const uint64_t item_end = uint64_t{item.token_start} + item.token_count;
    if (item.token_count == 0 || item.token_start < end || item_end > prompt.tokens.size() ||
        uint64_t{item.item_offset} + item.token_count > std::numeric_limits<uint32_t>::max()) {
      return MakeError(
          Reason::kInvalidArgument,
          absl::StrCat("a multimodal item of tokens [", item.token_start, ", ", item_end,
                       ") after token ", end, " in a prompt of ", prompt.tokens.size()));
    }
    end = item_end;
  }
  return prompt.retention == nullptr ? absl::OkStatus() : CheckRetention(*prompt.retention);
}

absl::Status BlockManager::CheckPrefix(const Prompt& prefix) const {
  if (prefix.tokens.empty()) return MakeError(Reason::kInvalidCount, "a prefix needs a token");
  return CheckPrompt(prefix);
}

// By token, padded to whole blocks; empty where no token has any.
std::vector<TokenExtra> BlockManager::MakeExtras(const Prompt& prompt) const {
  if (prompt.extra_token_ids.empty() && prompt.multimodal_items.empty()) return {};
  std::vector<TokenExtra> extras(size_t{TableSize(prompt.tokens.size())} *
                                 tokens_per_block_.value());
  for (size_t i = 0; i < prompt.extra_token_ids.size(); ++i) {
    extras[i].extra_id = prompt.extra_token_ids[i];
  }
  for (const MultimodalItem& item : prompt.multimodal_items) {
    for (uint32_t i = 0; i < item.token_count; ++i) {
      TokenExtra& extra = extras[item.token_start + i];
      extra.digest = item.digest;
      extra.item_offset = item.item_offset + i;
      extra.in_item = true;
    }
  }
  return extras;
}

BlockKey BlockManager::KeyOf(const Prompt& prompt, const std::vector<TokenExtra>& extras) {
  BlockKey key{prompt.tokens, {}};
  if (!extras.empty()) key.extras = absl::MakeConstSpan(extras).first(prompt.tokens.size());
  return key;
}

std::vector<BlockManager::Match> BlockManager::FindPrefixes(const NamespaceKey& name_space,
                                                            const BlockKey& key) const {
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
  const std::vector<TokenExtra> extras = MakeExtras(prefix);
  const BlockKey key = KeyOf(prefix, extras);
  std::vector<Match> matches = FindPrefixes(prefix.name_space, key);
  uint32_t length = ValidLength(matches, static_cast<uint32_t>(key.tokens.size()));
  CutMatches(matches, length);
  const bool whole = std::equal(
      windows_.begin(), windows_.end(), matches.begin(),
      [](const auto& window, const Match& match) { return window->SourceIsWhole(match); });
  if (whole) return matches;
  const uint32_t block_end = tokens_per_block_.BlockForToken(length) * tokens_per_block_.value();
  if (FindWholeTail(matches, prefix.name_space, key.Sub(block_end, key.tokens.size() - block_end),
                    tokens_per_block_.OffsetInBlock(length))) {
    return matches;
  }
  CutMatches(matches, ValidLength(matches, block_end));
  return matches;
}

bool BlockManager::FindWholeTail(std::vector<Match>& matches, const NamespaceKey& name_space,
                                 const BlockKey& rest, uint32_t limit) const {
  for (uint32_t n = limit; n > 0; --n) {
    std::vector<Match> shorter = matches;
    size_t found = 0;
    for (; found < windows_.size(); ++found) {
      Match& match = shorter[found];
      match.source = windows_[found]->FindTail(match, name_space, rest.First(n));
      match.source_tokens = n;
      match.tokens = static_cast<uint32_t>(match.blocks.size()) * tokens_per_block_.value() + n;
      if (match.source == kNoBlock) break;
    }
    if (found == windows_.size() &&
        ValidLength(shorter, shorter.front().tokens) == shorter.front().tokens) {
      matches = std::move(shorter);
      CutMatches(matches, matches.front().tokens);
      return true;
    }
  }
  return false;
}

uint32_t BlockManager::MatchPrefix(const Prompt& prompt, std::vector<BlockHandle>* blocks) const {
  if (blocks != nullptr) blocks->clear();
  if (prompt.tokens.empty() || !CheckPrompt(prompt).ok()) return 0;
  const std::vector<TokenExtra> extras = MakeExtras(prompt);
  const auto limit = static_cast<uint32_t>(prompt.tokens.size() - 1);
  std::vector<Match> matches = FindPrefixes(prompt.name_space, KeyOf(prompt, extras).First(limit));
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
    SessionId session, const struct QueryCapacity& query) const {
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
  const Prompt prompt{.name_space = query.name_space,
                      .tokens = query.tokens,
                      .extra_token_ids = query.extra_token_ids,
                      .multimodal_items = query.multimodal_items};
  if (absl::Status status = CheckPrefix(prompt); !status.ok()) return status;
  const std::vector<TokenExtra> extras = MakeExtras(prompt);
  std::vector<Match> matches =
      FindPrefixes(query.name_space, KeyOf(prompt, extras).First(query.tokens.size() - 1));
  answer.matched_tokens = ValidLength(matches, static_cast<uint32_t>(query.tokens.size() - 1));
  CutMatches(matches, answer.matched_tokens);
  const TenantId tenant = TenantFor(session, query.name_space);
  for (size_t w = 0; w < windows_.size(); ++w) {
    const WindowBlockManager& window = *windows_[w];
    const uint32_t given = matches[w].first + window.HeldIn(matches[w]);
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
  BeginOperation(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  context_.tenant = tenants_.OwnerOf(prefix.name_space);
  const std::vector<Match> matches = FindWholePrefixes(prefix);
  OffloadedPrefix result;
  for (size_t w = 0; w < windows_.size(); ++w) result.blocks += windows_[w]->Offload(matches[w]);
  EndOperation();
  result.ready = ready_;
  return result;
}

absl::StatusOr<PrefetchedPrefix> BlockManager::PrefetchPrefix(const Prompt& prefix,
                                                              absl::Time now) {
  BeginOperation(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  context_.tenant = tenants_.OwnerOf(prefix.name_space);
  const std::vector<Match> matches = FindWholePrefixes(prefix);
  PrefetchedPrefix result{.matched_tokens = matches.front().tokens};
  for (size_t w = 0; w < windows_.size(); ++w) result.blocks += windows_[w]->Prefetch(matches[w]);
  EndOperation();
  result.ready = ready_;
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

absl::StatusOr<PinnedPrefix> BlockManager::PinPrefix(SessionId session, const Prompt& prefix,
                                                     absl::Duration lease, absl::Time now) {
  BeginOperation(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  PinEntry entry{.info = {}, .tenant = TenantOf(session), .blocks = {}};
  const absl::StatusOr<absl::Duration> given = PinLease(entry.tenant, lease);
  if (!given.ok()) return given.status();
  const std::vector<Match> matches = FindWholePrefixes(prefix);
  if (matches.front().tokens == 0) {
    EndOperation();
    return PinnedPrefix{};
  }
  uint32_t blocks = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    entry.blocks.push_back(windows_[w]->PinnableBlocks(matches[w]));
    blocks += static_cast<uint32_t>(entry.blocks.back().size());
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
  context_.EndsAt(entry.info.expires);
  const PinId pin = pins_.Add(std::move(entry));
  const PinEntry& added = *pins_.Find(pin);
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->Pin(pin, added.tenant, added.blocks[w]);
  }
  EndOperation();
  return PinnedPrefix{
      .pin = pin, .pinned_tokens = added.info.pinned_tokens, .blocks = added.info.blocks};
}

absl::Status BlockManager::UnpinPrefix(PinId pin, absl::Time now, TenantId tenant) {
  BeginOperation(now);
  const PinEntry* entry = pins_.Find(pin);
  if (entry == nullptr || (tenant != kCommons && entry->tenant != tenant)) {
    return MakeError(Reason::kUnknownPin, absl::StrCat("pin ", pin.value(),
                                                       " was never made, or has ended: it was "
                                                       "unpinned, its lease ran out, or its prefix "
                                                       "left the cache"));
  }
  EndPin(pin, PinEnd::kUnpinned);
  EndOperation();
  return absl::OkStatus();
}

void BlockManager::EndPin(PinId pin, PinEnd why, std::optional<RemovalReason> removal) {
  const PinEntry entry = pins_.Take(pin);
  const WindowBlockManager& largest = *windows_.back();
  const BlockId last = entry.blocks.back().back();
  recorder_.PinEnded(largest.window(), last, largest.hash(last),
                     {.pin = pin, .why = why, .removal = removal}, entry.tenant);
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->Unpin(pin, entry.tenant, entry.blocks[w]);
  }
}

void BlockManager::EndPinOfLeaving(PinId pin, RemovalReason removal) {
  EndPin(pin, PinEnd::kPrefixLeft, removal);
}

void BlockManager::ExpirePins() {
  while (const std::optional<PinId> pin = pins_.FirstExpired(context_.now)) {
    EndPin(*pin, PinEnd::kExpired);
  }
  context_.EndsAt(pins_.next_deadline());
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
  BeginOperation(now);
  if (absl::Status status = CheckPrompt(prefix); !status.ok()) return status;
  const std::vector<TokenExtra> extras = MakeExtras(prefix);
  uint64_t removed = 0;
  for (const auto& window : windows_) {
    removed += window->Invalidate(prefix.name_space, KeyOf(prefix, extras));
  }
  EndOperation();
  return removed;
}

absl::StatusOr<uint32_t> BlockManager::SetRetention(const Prompt& prefix,
                                                    const SequenceRetention& retention,
                                                    absl::Time now) {
  BeginOperation(now);
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  if (absl::Status status = CheckRetention(retention); !status.ok()) return status;
  const std::vector<Match> matches = FindWholePrefixes(prefix);
  uint32_t named = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    named += windows_[w]->SetRetention(matches[w], retention);
  }
  EndOperation();
  return named;
}

}  // namespace pagoda
