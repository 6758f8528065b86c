// The extra ids of a sequence's first tokens.
#ifndef PAGODA_MANAGER_ACCOUNTS_SEQUENCE_EXTRAS_H_
#define PAGODA_MANAGER_ACCOUNTS_SEQUENCE_EXTRAS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "events/block_key.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/words/prompt_key.h"

namespace pagoda {

// Kept as the client sent it: a TokenExtra takes 56 bytes, and a prompt of a million tokens may
// have one image. Immutable and shared, so a fork costs a pointer and a cut nothing.
// Thread-compatible.
//
// Invariant: the first tokens_ tokens have the extras of prompt_. Later tokens have none.
class SequenceExtras {
 public:
  struct Prompt {
    std::vector<uint64_t> extra_ids;    // One for each token, or none at all.
    std::vector<MultimodalItem> items;  // Ascending, not overlapping.
  };

  SequenceExtras() = default;  // No token has extras.
  // For a prompt of `tokens` tokens.
  SequenceExtras(size_t tokens, Charged<Prompt> prompt)
      : tokens_(tokens), prompt_(std::make_shared<Charged<Prompt>>(std::move(prompt))) {}

  // The extras of tokens [begin, begin + count). Empty if none has any. Otherwise the result refers
  // to `scratch`, which is overwritten. Cost: O(count + log items).
  absl::Span<const TokenExtra> OfBlock(size_t begin, size_t count,
                                       std::vector<TokenExtra>* scratch) const {
    if (prompt_ == nullptr || begin >= tokens_) return {};
    const Prompt& prompt = prompt_->value;
    const size_t known = std::min(count, tokens_ - begin);
    if (!ExtrasOf(prompt.extra_ids, prompt.items, begin, known, scratch)) return {};
    scratch->resize(count);
    return *scratch;
  }

  // Bytes that forks share count too.
  uint64_t bytes() const { return prompt_ == nullptr ? 0 : prompt_->charge.bytes(); }

  // Tokens after the first `tokens` lose their extras.
  void Cut(size_t tokens) { tokens_ = std::min(tokens_, tokens); }
  // Calls `visit` with the value that forks share, if there is one.
  template <class Visitor>
  void VisitShared(Visitor&& visit) const {
    if (prompt_ != nullptr) visit(prompt_);
  }

 private:
  size_t tokens_ = 0;
  // Owned by the sequence and its forks.
  std::shared_ptr<const Charged<Prompt>> prompt_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_ACCOUNTS_SEQUENCE_EXTRAS_H_
