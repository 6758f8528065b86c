// What is cached of a prompt, in all windows together.
#ifndef PAGODA_MANAGER_PREFIX_MATCHER_H_
#define PAGODA_MANAGER_PREFIX_MATCHER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "events/block_key.h"
#include "manager/operation.h"
#include "manager/prompt_key.h"
#include "manager/sequence_calls.h"
#include "manager/window_block_manager.h"
#include "manager/window_set.h"
#include "pools/types.h"

namespace pagoda {

// INVALID_ARGUMENT: `prompt` has a salt or tenant that is too long, or what CheckContent refuses.
// KEYS_AND_TOKENS: it has both, or those that its namespace has not.
absl::Status CheckPrompt(const SequencePrompt& prompt);
// INVALID_COUNT without tokens and keys; else CheckPrompt.
absl::Status CheckPrefix(const SequencePrompt& prefix);

// What a prompt is found by. Refers to it.
inline PromptKey KeyOf(const SequencePrompt& prompt, TokensPerBlock tokens_per_block) {
  if (prompt.name_space.keyed) return {prompt.keys, tokens_per_block};
  return {prompt.tokens, prompt.extra_token_ids, prompt.multimodal_items};
}
// The most that a sequence may match of it: a token must be computed to get logits, so the last one
// is not looked for. Of a keyed prompt, all.
inline size_t MatchLimit(const PromptKey& key) {
  return key.keyed() || key.size() == 0 ? key.size() : key.size() - 1;
}

// Changes nothing and owns nothing. Matches hold nothing: they are valid until a window changes.
//
// Invariant: a length is valid only where every window has it (rule 7).
class PrefixMatcher {
 public:
  using Match = WindowBlockManager::Match;

  // `windows` outlives the matcher.
  explicit PrefixMatcher(const WindowSet& windows) : windows_(windows) {}
  PrefixMatcher(const PrefixMatcher&) = delete;
  PrefixMatcher& operator=(const PrefixMatcher&) = delete;

  using Reach = WindowBlockManager::Reach;

  // The cached prefixes, as found in each window. What a sequence can go on from lies in memory.
  std::vector<Match> FindPrefixes(const NamespaceKey& name_space, const PromptKey& key,
                                  Reach reach = Reach::kMemory) const;
  // How many of the prompt's tokens behind a match of `matched` are cached on disk. Of whole blocks
  // alone, where that is wanted.
  uint32_t TokensBelow(const std::vector<Match>& matches, const NamespaceKey& name_space,
                       const PromptKey& key, uint32_t matched, bool whole_blocks_only) const;
  // The largest length up to `limit` that `key`, which the matches are of, can go on from: valid in
  // every window, and where it is keyed whole blocks.
  uint32_t LengthOf(const std::vector<Match>& matches, const PromptKey& key, size_t limit) const {
    const auto most = static_cast<uint32_t>(limit);
    return key.keyed() ? ValidBlocks(matches, most) : ValidLength(matches, most);
  }
  // The largest length up to `limit` that is valid in every window.
  uint32_t ValidLength(const std::vector<Match>& matches, uint32_t limit) const;
  // The largest of these that ends with a block.
  uint32_t ValidBlocks(const std::vector<Match>& matches, uint32_t limit) const;
  void CutMatches(std::vector<Match>& matches, uint32_t tokens) const;
  // What is cached of the prefix as it is: whole blocks and a whole tail.
  std::vector<Match> FindWholePrefixes(const SequencePrompt& prefix) const;

  // As BlockManager's methods of the same names.
  uint32_t MatchPrefix(const SequencePrompt& prompt, std::vector<BlockHandle>* blocks) const;
  MatchedPrefix DescribeMatch(const SequencePrompt& prompt, size_t num_tiers) const;

 private:
  // Lets the matches, which have as many whole blocks, end in the longest beginning of `rest` that
  // is cached as it is in every window. False where there is none. Cost: O(tails there).
  bool FindWholeTail(std::vector<Match>& matches, const BlockKey& rest) const;

  const WindowSet& windows_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_PREFIX_MATCHER_H_
