// A prompt as a router looks it up: the hashes of its chunks.
#ifndef PAGODA_CLIENTS_ROUTER_CHUNK_HASHES_H_
#define PAGODA_CLIENTS_ROUTER_CHUNK_HASHES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "pools/types.h"

namespace pagoda {

// Everything that names a prompt's blocks, as in AddSequence. Does not own what it points to.
struct RoutedPrompt {
  NamespaceKey name_space = {};
  absl::Span<const TokenId> tokens = {};
  // One for each token, 0 for none; or empty.
  absl::Span<const uint64_t> extra_token_ids = {};
  // Ascending, not overlapping, within the tokens.
  absl::Span<const MultimodalItem> multimodal_items = {};
  // In a keyed namespace: the blocks' keys, instead of the other three.
  absl::Span<const ClientKey> keys = {};

  // Its length in tokens.
  size_t size(TokensPerBlock tokens_per_block) const {
    return tokens.size() + keys.size() * tokens_per_block.value();
  }
  // The most of its tokens that can be reused. The last token of a prompt is always computed,
  // because its computation gives the logits.
  size_t reusable(TokensPerBlock tokens_per_block) const {
    const size_t last = tokens.empty() ? 0 : 1;
    return size(tokens_per_block) - last;
  }
};

// The hashes of the prompt's whole chunks, in order: each that of the block that ends the chunk.
// REQUIRES: chunk_tokens is a positive multiple of tokens_per_block. Cost: O(tokens).
std::vector<BlockHash> ChunkHashes(const RoutedPrompt& prompt, TokensPerBlock tokens_per_block,
                                   uint32_t chunk_tokens);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_CHUNK_HASHES_H_
