// The part of BlockManager that finds prefixes, and works on them by name.
#include <algorithm>
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

absl::Status CheckPrefix(const NamespaceKey& name_space, absl::Span<const TokenId> tokens) {
  if (tokens.empty()) return MakeError(Reason::kInvalidCount, "a prefix needs a token");
  return CheckNamespace(name_space);
}

}  // namespace

absl::Status BlockManager::CheckPrompt(const Prompt& prompt) const {
  if (absl::Status status = CheckNamespace(prompt.name_space); !status.ok()) return status;
  if (prompt.content_check != nullptr) return *prompt.content_check;
  return CheckContent(prompt.tokens.size(), prompt.extra_token_ids.size(), prompt.multimodal_items,
                      prompt.retention);
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

std::vector<BlockManager::Match> BlockManager::FindWholePrefixes(
    const NamespaceKey& name_space, absl::Span<const TokenId> tokens) const {
  std::vector<Match> matches = FindPrefixes(name_space, BlockKey{tokens, {}});
  // A shorter length may end in a part of a block again: beside a hole of a sliding window.
  for (auto limit = static_cast<uint32_t>(tokens.size());;) {
    const uint32_t length = ValidLength(matches, limit);
    CutMatches(matches, length);
    const bool whole = std::equal(
        windows_.begin(), windows_.end(), matches.begin(),
        [](const auto& window, const Match& match) { return window->SourceIsWhole(match); });
    if (whole) return matches;
    limit = tokens_per_block_.BlockForToken(length) * tokens_per_block_.value();
    if (FindWholeTail(matches, name_space, tokens.subspan(limit), length - limit)) return matches;
  }
}

bool BlockManager::FindWholeTail(std::vector<Match>& matches, const NamespaceKey& name_space,
                                 absl::Span<const TokenId> rest, uint32_t limit) const {
  for (uint32_t n = limit; n > 0; --n) {
    std::vector<Match> shorter = matches;
    size_t found = 0;
    for (; found < windows_.size(); ++found) {
      Match& match = shorter[found];
      match.source = windows_[found]->FindTail(match, name_space, BlockKey{rest.first(n), {}});
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

absl::StatusOr<CapacityAnswer> BlockManager::QueryCapacity(SessionId session,
                                                           const struct QueryCapacity& query,
                                                           const NamespaceKey& name_space) const {
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
  if (absl::Status status = CheckPrefix(name_space, query.tokens); !status.ok()) return status;
  std::vector<Match> matches =
      FindPrefixes(name_space, BlockKey{query.tokens, {}}.First(query.tokens.size() - 1));
  answer.matched_tokens = ValidLength(matches, static_cast<uint32_t>(query.tokens.size() - 1));
  CutMatches(matches, answer.matched_tokens);
  const TenantId tenant = TenantFor(session, name_space);
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

absl::StatusOr<OffloadedPrefix> BlockManager::OffloadPrefix(const NamespaceKey& name_space,
                                                            absl::Span<const TokenId> tokens,
                                                            absl::Time now) {
  BeginOperation(now);
  if (absl::Status status = CheckPrefix(name_space, tokens); !status.ok()) return status;
  context_.tenant = tenants_.OwnerOf(name_space);
  const std::vector<Match> matches = FindWholePrefixes(name_space, tokens);
  OffloadedPrefix result;
  for (size_t w = 0; w < windows_.size(); ++w) result.blocks += windows_[w]->Offload(matches[w]);
  EndOperation();
  result.ready = ready_;
  return result;
}

absl::StatusOr<PrefetchedPrefix> BlockManager::PrefetchPrefix(const NamespaceKey& name_space,
                                                              absl::Span<const TokenId> tokens,
                                                              absl::Time now) {
  BeginOperation(now);
  if (absl::Status status = CheckPrefix(name_space, tokens); !status.ok()) return status;
  context_.tenant = tenants_.OwnerOf(name_space);
  const std::vector<Match> matches = FindWholePrefixes(name_space, tokens);
  PrefetchedPrefix result{.matched_tokens = matches.front().tokens};
  for (size_t w = 0; w < windows_.size(); ++w) result.blocks += windows_[w]->Prefetch(matches[w]);
  EndOperation();
  result.ready = ready_;
  return result;
}

// --- Pins ---

absl::StatusOr<PinnedPrefix> BlockManager::PinPrefix(SessionId session,
                                                     const NamespaceKey& name_space,
                                                     absl::Span<const TokenId> tokens,
                                                     absl::Duration lease, absl::Time now) {
  BeginOperation(now);
  if (absl::Status status = CheckPrefix(name_space, tokens); !status.ok()) return status;
  if (lease <= absl::ZeroDuration()) {
    return MakeError(Reason::kInvalidArgument, "a pin's lease must be positive");
  }
  const std::vector<Match> matches = FindWholePrefixes(name_space, tokens);
  if (matches.front().tokens == 0) {
    EndOperation();
    return PinnedPrefix{};
  }
  if (pins_.size() >= kMaxPins) {
    return MakeError(Reason::kPinBudgetExceeded,
                     absl::StrCat("there are ", pins_.size(), " pins, the most there may be"));
  }
  PinEntry entry;
  for (size_t w = 0; w < windows_.size(); ++w) {
    const WindowBlockManager& window = *windows_[w];
    entry.blocks.push_back(window.PinnableBlocks(matches[w]));
    const uint64_t pinned =
        uint64_t{window.pinned_blocks()} + window.UnpinnedAmong(entry.blocks.back());
    if (pinned > window.pin_budget_blocks()) {
      return MakeError(
          Reason::kPinBudgetExceeded,
          absl::StrCat(pinned, " blocks would be pinned in window ", WindowName(window.window()),
                       "; at most ", window.pin_budget_blocks(), " may be"));
    }
  }
  last_pin_ = PinId{last_pin_.value() + 1};
  entry.info = {.pin = last_pin_,
                .client_name = RequireSession(session).client_name,
                .name_space = name_space,
                .pinned_tokens = matches.front().tokens,
                .expires = now + lease};
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->Pin(entry.blocks[w]);
    entry.info.blocks += static_cast<uint32_t>(entry.blocks[w].size());
  }
  context_.EndsAt(entry.info.expires);
  const PinnedPrefix result{
      .pin = last_pin_, .pinned_tokens = entry.info.pinned_tokens, .blocks = entry.info.blocks};
  pins_.emplace(last_pin_, std::move(entry));
  EndOperation();
  return result;
}

absl::Status BlockManager::UnpinPrefix(PinId pin, absl::Time now, TenantId tenant) {
  BeginOperation(now);
  const auto it = pins_.find(pin);
  if (it == pins_.end() || !tenants_.MaySee(tenant, tenants_.OwnerOf(it->second.info.name_space))) {
    return MakeError(
        Reason::kUnknownPin,
        absl::StrCat("pin ", pin.value(), " was never made, was unpinned, or its lease ran out"));
  }
  EndPin(it);
  EndOperation();
  return absl::OkStatus();
}

void BlockManager::EndPin(std::map<PinId, PinEntry>::iterator pin) {
  for (size_t w = 0; w < windows_.size(); ++w) windows_[w]->Unpin(pin->second.blocks[w]);
  pins_.erase(pin);
}

void BlockManager::ExpirePins() {
  for (auto it = pins_.begin(); it != pins_.end();) {
    const auto pin = it++;
    if (pin->second.info.expires <= context_.now) {
      EndPin(pin);
    } else {
      context_.EndsAt(pin->second.info.expires);
    }
  }
}

ListedPins BlockManager::ListPins(TenantId tenant) const {
  ListedPins list;
  for (const auto& [id, pin] : pins_) {
    if (!tenants_.MaySee(tenant, tenants_.OwnerOf(pin.info.name_space))) continue;
    list.pins.push_back(pin.info);
    if (tenant != kCommons) list.pinned_blocks += pin.info.blocks;
  }
  for (const auto& window : windows_) {
    if (tenant == kCommons) list.pinned_blocks += window->pinned_blocks();
    list.budget_blocks += window->pin_budget_blocks();
  }
  return list;
}

// --- Forgetting and keeping ---

absl::StatusOr<uint64_t> BlockManager::InvalidatePrefix(const NamespaceKey& name_space,
                                                        absl::Span<const TokenId> tokens,
                                                        absl::Time now) {
  BeginOperation(now);
  if (absl::Status status = CheckNamespace(name_space); !status.ok()) return status;
  uint64_t removed = 0;
  for (const auto& window : windows_) {
    removed += window->Invalidate(name_space, BlockKey{tokens, {}});
  }
  EndOperation();
  return removed;
}

absl::StatusOr<uint32_t> BlockManager::SetRetention(const NamespaceKey& name_space,
                                                    absl::Span<const TokenId> tokens,
                                                    const SequenceRetention& retention,
                                                    absl::Time now,
                                                    const absl::Status* content_check) {
  BeginOperation(now);
  if (absl::Status status = CheckPrefix(name_space, tokens); !status.ok()) return status;
  const absl::Status checked =
      content_check != nullptr ? *content_check : CheckRetention(retention);
  if (!checked.ok()) return checked;
  const std::vector<Match> matches = FindWholePrefixes(name_space, tokens);
  uint32_t named = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    named += windows_[w]->SetRetention(matches[w], retention);
  }
  EndOperation();
  return named;
}

}  // namespace pagoda
