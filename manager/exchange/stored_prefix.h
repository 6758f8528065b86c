// The names of a prefix's blocks in a store.
#ifndef PAGODA_MANAGER_EXCHANGE_STORED_PREFIX_H_
#define PAGODA_MANAGER_EXCHANGE_STORED_PREFIX_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "manager/restart/content_digest.h"
#include "manager/words/prompt_key.h"
#include "pools/layout.h"
#include "pools/types.h"

namespace pagoda {

// The tokens of a prompt, or its client's keys, as the identity of its blocks. Owns its arrays.
struct StoredPrompt {
  NamespaceKey name_space;
  std::string tenant = {};  // Who is charged: see AddSequence.
  std::vector<TokenId> tokens = {};
  std::vector<uint64_t> extra_token_ids = {};  // One for each token, or none.
  std::vector<MultimodalItem> multimodal_items = {};
  std::vector<ClientKey> keys = {};  // One for each block, instead of tokens.

  PromptKey key(TokensPerBlock tokens_per_block) const {
    return name_space.keyed ? PromptKey(keys, tokens_per_block)
                            : PromptKey(tokens, extra_token_ids, multimodal_items);
  }
  uint32_t whole_blocks(TokensPerBlock tokens_per_block) const {
    return static_cast<uint32_t>(key(tokens_per_block).size() / tokens_per_block.value());
  }
};

// The memory that the prompt takes.
size_t BytesOf(const StoredPrompt& prompt);

// The prompt's first `count` tokens. REQUIRES: count is within it; whole blocks if it is keyed.
StoredPrompt FirstOf(const StoredPrompt& prompt, TokensPerBlock tokens_per_block, uint32_t count);

// What the caches of two machines must have in common to share blocks of a window: SHA-256 of the
// model's fingerprint, the window and the layout of its pools. The name of the cache and its tiers
// do not matter.
ContentDigest StoredLayout(const CacheLayout& layout, uint32_t window_index);

// The digests of the prompt's first whole blocks, at most `max_blocks`, in order. Cost: O(tokens).
std::vector<ContentDigest> DigestsOf(const StoredPrompt& prompt, TokensPerBlock tokens_per_block,
                                     uint32_t max_blocks);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EXCHANGE_STORED_PREFIX_H_
