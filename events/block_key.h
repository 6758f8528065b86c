// What makes a block's content: its tokens, and what else the model reads at their places; or a key
// that its client named it by.
#ifndef PAGODA_EVENTS_BLOCK_KEY_H_
#define PAGODA_EVENTS_BLOCK_KEY_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "pools/types.h"

namespace pagoda {

// Digest of a multimodal item (an image, an audio clip), made by the client: 32 bytes as four
// little-endian words.
using ItemDigest = std::array<uint64_t, 4>;

// Tokens [token_start, token_start + token_count) of a prompt or a block are places of a multimodal
// item, beginning with the item's place `item_offset`.
struct MultimodalItem {
  ItemDigest digest = {};
  uint32_t token_start = 0;
  uint32_t token_count = 0;
  uint32_t item_offset = 0;
  friend bool operator==(const MultimodalItem&, const MultimodalItem&) = default;
};

// What one token has beside its id: an extra id (0: none), and its place in a multimodal item.
struct TokenExtra {
  uint64_t extra_id = 0;
  ItemDigest digest = {};
  uint32_t item_offset = 0;
  bool in_item = false;
  friend bool operator==(const TokenExtra&, const TokenExtra&) = default;
};

// A block's own part of its identity. `extras` is empty, or as long as `tokens`; empty and all
// TokenExtra{} mean the same. Does not own what it points to.
//
// Of a keyed block `tokens` are the words of its ClientKey (client_key.h), without extras. Below
// one parent all blocks are keyed or none is, so keys that are compared are of one kind.
struct BlockKey {
  absl::Span<const TokenId> tokens;
  absl::Span<const TokenExtra> extras;
  bool keyed = false;

  bool has_extras() const { return !extras.empty(); }
  // The first `count` tokens of it.
  BlockKey First(size_t count) const {
    return {tokens.first(count), has_extras() ? extras.first(count) : extras, keyed};
  }
  // Tokens [begin, begin + count) of it; count is cut to what there is.
  BlockKey Sub(size_t begin, size_t count) const {
    return {tokens.subspan(begin, count), has_extras() ? extras.subspan(begin, count) : extras,
            keyed};
  }
};

// How many first tokens two keys share, ids and extras alike.
uint32_t CommonTokens(const BlockKey& a, const BlockKey& b);

// Whether two runs of `size` token ids are equal. Compares 64 bytes at a time: of a constant size,
// memcmp is a few instructions in line, which shows where a walk compares hundreds of blocks.
inline bool SameTokens(const TokenId* a, const TokenId* b, size_t size) {
  constexpr size_t kRun = 64 / sizeof(TokenId);
  for (; size >= kRun; size -= kRun, a += kRun, b += kRun) {
    if (std::memcmp(a, b, kRun * sizeof(TokenId)) != 0) return false;
  }
  for (; size > 0; --size, ++a, ++b) {
    if (*a != *b) return false;
  }
  return true;
}
inline bool SameKey(const BlockKey& a, const BlockKey& b) {
  if (a.tokens.size() != b.tokens.size()) return false;
  if (a.has_extras() || b.has_extras()) return CommonTokens(a, b) == a.tokens.size();
  return SameTokens(a.tokens.data(), b.tokens.data(), a.tokens.size());
}

// The runs of item places in `extras`: token_start counts from the span's begin.
std::vector<MultimodalItem> ItemsOf(absl::Span<const TokenExtra> extras);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_BLOCK_KEY_H_
