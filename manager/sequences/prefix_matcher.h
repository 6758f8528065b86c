// Finds the cached prefix of a prompt, over all windows together.
#ifndef PAGODA_MANAGER_SEQUENCES_PREFIX_MATCHER_H_
#define PAGODA_MANAGER_SEQUENCES_PREFIX_MATCHER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "events/block_key.h"
#include "manager/api/operation.h"
#include "manager/api/sequence_calls.h"
#include "manager/window/prefix_match.h"
#include "manager/window/window_prefixes.h"
#include "manager/window/window_set.h"
#include "manager/words/prompt_key.h"
#include "pools/types.h"

namespace pagoda {

// Errors: INVALID_ARGUMENT (a salt or tenant that is too long, or content that CheckContent
// refuses), KEYS_AND_TOKENS (it has both, or the kind that its namespace does not have).
absl::Status CheckPrompt(const SequencePrompt& prompt);
// Errors: INVALID_COUNT (no tokens and no keys), and those of CheckPrompt.
absl::Status CheckPrefix(const SequencePrompt& prefix);

// The key by which a prompt is looked up. It refers to `prompt`.
inline PromptKey KeyOf(const SequencePrompt& prompt, TokensPerBlock tokens_per_block) {
  if (prompt.name_space.keyed) return {prompt.keys, tokens_per_block};
  return {prompt.tokens, prompt.extra_token_ids, prompt.multimodal_items};
}
// The most tokens that a sequence can match. A token must be computed to get logits, so the last
// one is not looked for. A keyed prompt can match whole.
inline size_t MatchLimit(const PromptKey& key) {
  return key.keyed() || key.size() == 0 ? key.size() : key.size() - 1;
}

// Changes nothing and owns nothing. Matches hold no blocks: they are valid until a window changes.
//
// Invariant: a length is valid only if it is valid in every window (rule 7).
class PrefixMatcher {
 public:
  using Match = PrefixMatch;

  // `windows` outlives the matcher.
  explicit PrefixMatcher(const WindowSet& windows) : windows_(windows) {}
  PrefixMatcher(const PrefixMatcher&) = delete;
  PrefixMatcher& operator=(const PrefixMatcher&) = delete;

  using Reach = WindowPrefixes::Reach;

  // The cached prefixes in each window. A sequence can continue only from blocks in memory.
  std::vector<Match> FindPrefixes(const NamespaceKey& name_space, const PromptKey& key,
                                  Reach reach = Reach::kMemory) const;
  // How many of the prompt's tokens behind a match of `matched` tokens are cached on disk. With
  // `whole_blocks_only`, counts whole blocks only.
  uint32_t TokensBelow(const std::vector<Match>& matches, const NamespaceKey& name_space,
                       const PromptKey& key, uint32_t matched, bool whole_blocks_only) const;
  // The largest length up to `limit` that is valid in every window, and a whole number of blocks if
  // `key` is keyed. `matches` are the matches of `key`.
  uint32_t LengthOf(const std::vector<Match>& matches, const PromptKey& key, size_t limit) const {
    const auto most = static_cast<uint32_t>(limit);
    return key.keyed() ? ValidBlocks(matches, most) : ValidLength(matches, most);
  }
  // The largest length up to `limit` that is valid in every window.
  uint32_t ValidLength(const std::vector<Match>& matches, uint32_t limit) const;
  // The largest such length that ends with a block.
  uint32_t ValidBlocks(const std::vector<Match>& matches, uint32_t limit) const;
  void CutMatches(std::vector<Match>& matches, uint32_t tokens) const;
  // The cached part of the prefix, as it is: whole blocks and a whole tail.
  std::vector<Match> FindWholePrefixes(const SequencePrompt& prefix) const;

 private:
  // Extends the matches, which have equally many whole blocks, by the longest prefix of `rest` that
  // is cached as it is in every window. False if there is none. Cost: O(tails there).
  bool FindWholeTail(std::vector<Match>& matches, const BlockKey& rest) const;

  const WindowSet& windows_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_PREFIX_MATCHER_H_
