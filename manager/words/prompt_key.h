// The key by which a prompt is looked up: its tokens, with extra ids and multimodal items as its
// client sent them, or the client's keys of its blocks.
#ifndef PAGODA_MANAGER_WORDS_PROMPT_KEY_H_
#define PAGODA_MANAGER_WORDS_PROMPT_KEY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "pools/types.h"

namespace pagoda {

// Writes the extras of tokens [begin, begin + count) of a prompt to `out`, and replaces its
// content. False if no token has any. `extra_ids`: one for each token, or none. `items`: ascending,
// not overlapping. Cost: O(count + log items).
bool ExtrasOf(absl::Span<const uint64_t> extra_ids, absl::Span<const MultimodalItem> items,
              size_t begin, size_t count, std::vector<TokenExtra>* out);

// Makes the keys of a prompt's blocks one at a time. So the cost of a search depends on what it
// finds, not on the prompt's length: a TokenExtra takes 56 bytes, and a request of 14 MiB can hold
// millions of tokens. Does not own the data that it points to.
class PromptKey {
 public:
  PromptKey() = default;
  // `extra_ids`: one for each token, or none. `items`: ascending, not overlapping, within the
  // tokens.
  PromptKey(absl::Span<const TokenId> tokens, absl::Span<const uint64_t> extra_ids,
            absl::Span<const MultimodalItem> items)
      : tokens_(tokens),
        extra_ids_(extra_ids),
        items_(items),
        size_(tokens.size()),
        bare_(extra_ids.empty() && items.empty()) {}
  // For tokens with computed extras.
  PromptKey(const BlockKey& key)  // NOLINT(google-explicit-constructor): it says the same.
      : tokens_(key.tokens),
        extras_(key.extras),
        size_(key.tokens.size()),
        bare_(key.extras.empty()) {}
  // For whole blocks of `tokens_per_block` tokens, which these keys name.
  PromptKey(absl::Span<const ClientKey> keys, TokensPerBlock tokens_per_block)
      : keys_(keys),
        tokens_per_block_(tokens_per_block.value()),
        size_(keys.size() * tokens_per_block.value()),
        bare_(false) {}

  // In tokens.
  size_t size() const { return size_; }
  // Whether it names whole blocks by keys. Then no part of a block matches it.
  bool keyed() const { return tokens_per_block_ != 0; }
  // The first `count` tokens. REQUIRES: in a keyed prompt, these are whole blocks.
  PromptKey First(size_t count) const {
    PromptKey first = *this;
    if (keyed()) {
      first.keys_ = keys_.first(count / tokens_per_block_);
    } else {
      first.tokens_ = tokens_.first(count);
    }
    first.size_ = count;
    return first;
  }

  // Tokens [begin, begin + count); count is cut to the prompt's end. The key can refer to
  // `scratch`, whose content is replaced. In a keyed prompt it is the key of the block that begins
  // at `begin`, or nothing behind the last one. Cost: O(count + log items).
  BlockKey Block(size_t begin, size_t count, std::vector<TokenExtra>* scratch) const {
    // Built in place: a copy would read 16 bytes that were just written as twice 8, and the
    // processor stalls on that. It took 4 ns for each block of a match.
    if (bare_) [[likely]] {
      return {tokens_.subspan(begin, count), {}};
    }
    return BlockBeside(begin, count, scratch);
  }

 private:
  BlockKey BlockBeside(size_t begin, size_t count, std::vector<TokenExtra>* scratch) const;

  absl::Span<const TokenId> tokens_;
  absl::Span<const uint64_t> extra_ids_;
  absl::Span<const MultimodalItem> items_;
  absl::Span<const TokenExtra> extras_;
  absl::Span<const ClientKey> keys_;
  uint32_t tokens_per_block_ = 0;  // 0 unless keyed.
  size_t size_ = 0;
  bool bare_ = true;  // Tokens without extras.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_PROMPT_KEY_H_
