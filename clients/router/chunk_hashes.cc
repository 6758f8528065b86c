#include "clients/router/chunk_hashes.h"

#include "base/check.h"
#include "manager/words/prompt_key.h"

namespace pagoda {

std::vector<BlockHash> ChunkHashes(const RoutedPrompt& prompt, TokensPerBlock tokens_per_block,
                                   uint32_t chunk_tokens) {
  const uint32_t block_tokens = tokens_per_block.value();
  PAGODA_CHECK(chunk_tokens > 0 && chunk_tokens % block_tokens == 0, "a chunk is whole blocks");
  const PromptKey key = prompt.keys.empty() ? PromptKey(prompt.tokens, prompt.extra_token_ids,
                                                        prompt.multimodal_items)
                                            : PromptKey(prompt.keys, tokens_per_block);
  const size_t chunks = key.size() / chunk_tokens;
  std::vector<BlockHash> hashes;
  hashes.reserve(chunks);
  std::vector<TokenExtra> scratch;
  BlockHash hash = HashNamespace(prompt.name_space);
  for (size_t begin = 0; begin < chunks * chunk_tokens; begin += block_tokens) {
    hash = HashBlock(hash, key.Block(begin, block_tokens, &scratch));
    if ((begin + block_tokens) % chunk_tokens == 0) hashes.push_back(hash);
  }
  return hashes;
}

}  // namespace pagoda
