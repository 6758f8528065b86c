// The content of a block: its tokens and the other inputs that the model reads at their places, or
// the key that its client gave it.
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

// Tokens [token_start, token_start + token_count) of a prompt or a block stand for consecutive
// places of a multimodal item. The first one is the item's place `item_offset`.
struct MultimodalItem {
  ItemDigest digest = {};
  uint32_t token_start = 0;
  uint32_t token_count = 0;
  uint32_t item_offset = 0;
  friend bool operator==(const MultimodalItem&, const MultimodalItem&) = default;
};

// The content of one token besides its id: an extra id (0: none), and its place in a multimodal
// item.
struct TokenExtra {
  uint64_t extra_id = 0;
  ItemDigest digest = {};
  uint32_t item_offset = 0;
  bool in_item = false;
  friend bool operator==(const TokenExtra&, const TokenExtra&) = default;
};

// The part of a block's identity that its parent does not have. Does not own its arrays.
//
// `extras` is empty, or as long as `tokens`. Empty extras equal extras that are all TokenExtra{}.
//
// For a keyed block, `tokens` are the words of its ClientKey (client_key.h), and there are no
// extras. Below one parent all blocks are keyed or none is, so two keys that are compared are of
// the same kind.
struct BlockKey {
  absl::Span<const TokenId> tokens;
  absl::Span<const TokenExtra> extras;
  bool keyed = false;

  bool has_extras() const { return !extras.empty(); }
  // Its first `count` tokens.
  BlockKey First(size_t count) const {
    return {tokens.first(count), has_extras() ? extras.first(count) : extras, keyed};
  }
  // Its tokens [begin, begin + count), or fewer if it has fewer.
  BlockKey Sub(size_t begin, size_t count) const {
    return {tokens.subspan(begin, count), has_extras() ? extras.subspan(begin, count) : extras,
            keyed};
  }
};

// The length of the longest common prefix of two keys. Tokens are equal if ids and extras are.
uint32_t CommonTokens(const BlockKey& a, const BlockKey& b);

// Whether two runs of `size` token ids are equal. Compares 64 bytes at a time, because memcmp of a
// constant size is a few inline instructions. This matters in a walk that compares hundreds of
// blocks.
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

// The runs of item places in `extras`. token_start counts from the span's begin.
std::vector<MultimodalItem> ItemsOf(absl::Span<const TokenExtra> extras);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_BLOCK_KEY_H_
