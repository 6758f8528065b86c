// What the first tokens of a sequence have beside their ids.
#ifndef PAGODA_MANAGER_SEQUENCE_EXTRAS_H_
#define PAGODA_MANAGER_SEQUENCE_EXTRAS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "events/block_key.h"
#include "manager/sequence_accounts.h"

namespace pagoda {

// Immutable parts, so that a fork costs two pointers and a cut one block. Thread-compatible.
//
// Invariant: the first whole_tokens_ tokens, whole blocks of them, have what prompt_ says; those of
// the next block have what cut_ says, or nothing where there is none; later tokens have nothing.
class SequenceExtras {
 public:
  using Part = Charged<std::vector<TokenExtra>>;

  SequenceExtras() = default;  // No token has any.
  // By token, padded to whole blocks.
  explicit SequenceExtras(Part prompt)
      : whole_tokens_(prompt.value.size()), prompt_(std::make_shared<Part>(std::move(prompt))) {}

  // Of tokens [begin, begin + count) of one block; `begin` is its first token. Empty where none
  // has any.
  absl::Span<const TokenExtra> OfBlock(size_t begin, size_t count) const {
    if (begin < whole_tokens_) return absl::MakeConstSpan(prompt_->value).subspan(begin, count);
    if (begin == whole_tokens_ && cut_ != nullptr) {
      return absl::MakeConstSpan(cut_->value).first(count);
    }
    return {};
  }

  // Whether a cut behind the first `tokens` tokens keeps a part of a block, which costs a copy of
  // it.
  bool CutCopies(size_t tokens, uint32_t tokens_per_block) const {
    return tokens % tokens_per_block != 0 &&
           !OfBlock(tokens - tokens % tokens_per_block, 1).empty();
  }
  // Tokens behind the first `tokens` have nothing any more. `charge`: for a block, where
  // CutCopies().
  void Cut(size_t tokens, uint32_t tokens_per_block, SequenceAccounts::Charge charge) {
    const size_t begin = tokens - tokens % tokens_per_block;
    if (CutCopies(tokens, tokens_per_block)) {
      const absl::Span<const TokenExtra> kept = OfBlock(begin, tokens - begin);
      Part part{.value = {kept.begin(), kept.end()}, .charge = std::move(charge)};
      part.value.resize(tokens_per_block);
      cut_ = std::make_shared<Part>(std::move(part));
    } else if (begin <= whole_tokens_) {
      cut_ = nullptr;
    }
    if (begin >= whole_tokens_) return;
    whole_tokens_ = begin;
    if (begin == 0) prompt_ = nullptr;
  }

 private:
  size_t whole_tokens_ = 0;
  // Owned by the sequence and its forks, likewise.
  std::shared_ptr<const Part> prompt_;
  std::shared_ptr<const Part> cut_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCE_EXTRAS_H_
