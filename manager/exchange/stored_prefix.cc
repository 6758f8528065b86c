#include "manager/exchange/stored_prefix.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/byte_codec.h"
#include "manager/restart/slot_stamps.h"

namespace pagoda {

size_t BytesOf(const StoredPrompt& prompt) {
  return sizeof(prompt) + prompt.name_space.cache_salt.size() + prompt.tenant.size() +
         prompt.tokens.size() * sizeof(TokenId) + prompt.extra_token_ids.size() * sizeof(uint64_t) +
         prompt.multimodal_items.size() * sizeof(MultimodalItem) +
         prompt.keys.size() * sizeof(ClientKey);
}

StoredPrompt FirstOf(const StoredPrompt& prompt, TokensPerBlock tokens_per_block, uint32_t count) {
  StoredPrompt first = prompt;
  if (prompt.name_space.keyed) {
    first.keys.erase(first.keys.begin() + count / tokens_per_block.value(), first.keys.end());
    return first;
  }
  first.tokens.resize(count);
  if (!first.extra_token_ids.empty()) first.extra_token_ids.resize(count);
  std::erase_if(first.multimodal_items,
                [count](const MultimodalItem& item) { return item.token_start >= count; });
  for (MultimodalItem& item : first.multimodal_items) {
    item.token_count = std::min(item.token_count, count - item.token_start);
  }
  return first;
}

ContentDigest StoredLayout(const CacheLayout& layout, uint32_t window_index) {
  const WindowLayout& window = layout.windows()[window_index];
  std::vector<std::byte> bytes;
  ByteWriter out(&bytes);
  out.PutText("pagoda store 1");
  out.PutText(layout.spec().model_fingerprint);
  out.Put(window.window.value());
  for (const PoolLayout& pool : window.pools) {
    PutShape(pool, out);
    out.Put(static_cast<uint8_t>(pool.content));
    out.Put(pool.bytes_per_block);
  }
  return ContentDigester().OfBytes(bytes);
}

std::vector<ContentDigest> DigestsOf(const StoredPrompt& prompt, TokensPerBlock tokens_per_block,
                                     uint32_t max_blocks) {
  const PromptKey key = prompt.key(tokens_per_block);
  const uint32_t blocks = std::min(max_blocks, prompt.whole_blocks(tokens_per_block));
  std::vector<ContentDigest> digests;
  digests.reserve(blocks);
  std::vector<TokenExtra> scratch;
  ContentDigester digester;
  ContentDigest parent = digester.OfNamespace(prompt.name_space);
  for (uint32_t i = 0; i < blocks; ++i) {
    const size_t first = size_t{i} * tokens_per_block.value();
    parent = digester.OfBlock(parent, key.Block(first, tokens_per_block.value(), &scratch));
    digests.push_back(parent);
  }
  return digests;
}

}  // namespace pagoda
