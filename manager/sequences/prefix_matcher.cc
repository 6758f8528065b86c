#include "manager/sequences/prefix_matcher.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/sequences/operation_checks.h"

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

absl::Status CheckKind(const SequencePrompt& prompt) {
  const bool has_tokens =
      !prompt.tokens.empty() || !prompt.extra_token_ids.empty() || !prompt.multimodal_items.empty();
  const bool has_keys = !prompt.keys.empty();
  const bool keyed = prompt.name_space.keyed;
  if (!(keyed ? has_tokens : has_keys)) return absl::OkStatus();
  return MakeError(Reason::kKeysAndTokens,
                   absl::StrCat(Counted(prompt.tokens.size(), "token"), ", ",
                                Counted(prompt.extra_token_ids.size(), "extra id"), ", ",
                                Counted(prompt.multimodal_items.size(), "item"), " and ",
                                Counted(prompt.keys.size(), "key"), " in a namespace that has ",
                                keyed ? "keys" : "tokens"));
}

}  // namespace

absl::Status CheckPrompt(const SequencePrompt& prompt) {
  if (absl::Status status = CheckNamespace(prompt.name_space); !status.ok()) return status;
  if (absl::Status status = CheckKind(prompt); !status.ok()) return status;
  if (prompt.content_check != nullptr) return *prompt.content_check;
  return CheckContent(prompt.tokens.size(), prompt.extra_token_ids.size(), prompt.multimodal_items,
                      prompt.retention);
}

absl::Status CheckPrefix(const SequencePrompt& prefix) {
  if (prefix.empty()) return MakeError(Reason::kInvalidCount, "a prefix needs a token or a key");
  return CheckPrompt(prefix);
}

std::vector<PrefixMatcher::Match> PrefixMatcher::FindPrefixes(const NamespaceKey& name_space,
                                                              const PromptKey& key,
                                                              Reach reach) const {
  std::vector<Match> matches;
  matches.reserve(windows_.size());
  for (const auto& window : windows_) {
    matches.push_back(window->prefixes().FindPrefix(name_space, key, reach));
  }
  return matches;
}

uint32_t PrefixMatcher::TokensBelow(const std::vector<Match>& matches,
                                    const NamespaceKey& name_space, const PromptKey& key,
                                    uint32_t matched, bool whole_blocks_only) const {
  const bool any = std::any_of(matches.begin(), matches.end(),
                               [](const Match& match) { return match.has_more_on_disk; });
  if (!any) return 0;
  const std::vector<Match> in_all = FindPrefixes(name_space, key, Reach::kAllTiers);
  const auto limit = static_cast<uint32_t>(key.size());
  const uint32_t cached =
      whole_blocks_only ? ValidBlocks(in_all, limit) : LengthOf(in_all, key, limit);
  return cached > matched ? cached - matched : 0;
}

// Shortens the length until all windows agree.
uint32_t PrefixMatcher::ValidLength(const std::vector<Match>& matches, uint32_t limit) const {
  uint32_t length = limit;
  for (bool agreed = false; !agreed;) {
    agreed = true;
    for (size_t w = 0; w < windows_.size(); ++w) {
      const uint32_t valid = windows_[w]->prefixes().ValidLength(matches[w], length);
      agreed = agreed && (valid == length || w == 0);
      length = valid;
    }
  }
  return length;
}

uint32_t PrefixMatcher::ValidBlocks(const std::vector<Match>& matches, uint32_t limit) const {
  const TokensPerBlock size = windows_.tokens_per_block();
  uint32_t length = ValidLength(matches, limit);
  while (size.OffsetInBlock(length) != 0) {
    length = ValidLength(matches, size.BlockForToken(length) * size.value());
  }
  return length;
}

void PrefixMatcher::CutMatches(std::vector<Match>& matches, uint32_t tokens) const {
  for (size_t w = 0; w < windows_.size(); ++w) windows_[w]->prefixes().CutMatch(matches[w], tokens);
}

std::vector<PrefixMatcher::Match> PrefixMatcher::FindWholePrefixes(
    const SequencePrompt& prefix) const {
  const PromptKey key = KeyOf(prefix, windows_.tokens_per_block());
  std::vector<Match> matches = FindPrefixes(prefix.name_space, key, Reach::kAllTiers);
  std::vector<TokenExtra> scratch;
  // Beside a hole of a sliding window, the shorter length can again end inside a block.
  for (auto limit = static_cast<uint32_t>(key.size());;) {
    const uint32_t length = LengthOf(matches, key, limit);
    CutMatches(matches, length);
    const bool whole = std::equal(windows_.begin(), windows_.end(), matches.begin(),
                                  [](const auto& window, const Match& match) {
                                    return window->prefixes().SourceIsWhole(match);
                                  });
    if (whole) return matches;
    limit = windows_.tokens_per_block().BlockForToken(length) * windows_.tokens_per_block().value();
    if (FindWholeTail(matches, key.Block(limit, length - limit, &scratch))) return matches;
  }
}

bool PrefixMatcher::FindWholeTail(std::vector<Match>& matches, const BlockKey& rest) const {
  const auto begin =
      static_cast<uint32_t>(matches.front().blocks.size()) * windows_.tokens_per_block().value();
  for (const uint32_t count : windows_.front()->prefixes().TailLengths(matches.front(), rest)) {
    if (ValidLength(matches, begin + count) != begin + count) continue;
    absl::InlinedVector<BlockId, 4> tails;
    for (size_t w = 0; w < windows_.size(); ++w) {
      tails.push_back(windows_[w]->prefixes().FindTail(matches[w], rest.First(count)));
    }
    if (std::find(tails.begin(), tails.end(), kNoBlock) != tails.end()) continue;
    for (size_t w = 0; w < windows_.size(); ++w) matches[w].source = tails[w];
    CutMatches(matches, begin + count);
    return true;
  }
  return false;
}

}  // namespace pagoda
