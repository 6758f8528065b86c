// The content of a sequence: its token ids or, for a keyed sequence, the keys of its whole blocks.
#ifndef PAGODA_MANAGER_WORDS_SEQUENCE_CONTENT_H_
#define PAGODA_MANAGER_WORDS_SEQUENCE_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "events/client_key.h"
#include "pools/types.h"

namespace pagoda {

// One of the two is empty.
struct SequenceContent {
  std::vector<TokenId> tokens;
  std::vector<ClientKey> keys;
};

// A part of such content, by reference. Lengths are in tokens; for keys they are whole blocks.
class ContentSpan {
 public:
  // REQUIRES: `tokens` or `keys` is empty.
  ContentSpan(absl::Span<const TokenId> tokens, absl::Span<const ClientKey> keys,
              TokensPerBlock tokens_per_block)
      : tokens_(tokens), keys_(keys), tokens_per_block_(tokens_per_block) {}
  ContentSpan(const SequenceContent& content, TokensPerBlock tokens_per_block)
      : ContentSpan(content.tokens, content.keys, tokens_per_block) {}

  uint64_t size() const {
    return tokens_.size() + uint64_t{keys_.size()} * tokens_per_block_.value();
  }
  bool empty() const { return tokens_.empty() && keys_.empty(); }
  absl::Span<const TokenId> tokens() const { return tokens_; }
  absl::Span<const ClientKey> keys() const { return keys_; }

  // Tokens [begin, begin + count). REQUIRES: they exist.
  ContentSpan Sub(uint64_t begin, uint64_t count) const {
    if (keys_.empty()) return {tokens_.subspan(begin, count), {}, tokens_per_block_};
    return {{},
            keys_.subspan(tokens_per_block_.BlockForToken(begin),
                          tokens_per_block_.BlockForToken(count)),
            tokens_per_block_};
  }
  // All from `begin` to the end.
  ContentSpan From(uint64_t begin) const { return Sub(begin, size() - begin); }
  SequenceContent Copy() const {
    return {{tokens_.begin(), tokens_.end()}, {keys_.begin(), keys_.end()}};
  }

 private:
  absl::Span<const TokenId> tokens_;
  absl::Span<const ClientKey> keys_;
  TokensPerBlock tokens_per_block_;
};

// The bytes that a sequence pays for `tokens` tokens without a place.
inline uint64_t ContentBytes(uint64_t tokens, bool keyed, TokensPerBlock tokens_per_block) {
  return keyed ? tokens_per_block.BlocksFor(tokens) * uint64_t{sizeof(ClientKey)}
               : tokens * sizeof(TokenId);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_SEQUENCE_CONTENT_H_
