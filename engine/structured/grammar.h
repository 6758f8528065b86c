// What a grammar allows a model to say next.
#ifndef PAGODA_ENGINE_STRUCTURED_GRAMMAR_H_
#define PAGODA_ENGINE_STRUCTURED_GRAMMAR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pools/types.h"

namespace pagoda {

// What the text of an answer must be.
struct StructuredOutput {
  enum class Kind : uint8_t {
    kJsonSchema,  // JSON that conforms to the schema `text`.
    kJsonObject,  // Any JSON object; `text` is empty.
    kRegex,       // A whole match of the regular expression `text`.
    kGrammar,     // What the rule `root` of the EBNF grammar `text` derives.
  };
  Kind kind = Kind::kJsonObject;
  std::string text;
};

// Bit i % 32 of word i / 32: whether token i is allowed. Tokens behind the last word are not.
using TokenMask = std::vector<uint32_t>;

// Whether a token below `size` is allowed.
inline bool AllowsAnyBelow(const TokenMask& mask, size_t size) {
  const size_t words = std::min(mask.size(), size / 32);
  if (std::any_of(mask.begin(), mask.begin() + static_cast<ptrdiff_t>(words),
                  [](uint32_t word) { return word != 0; })) {
    return true;
  }
  return words < mask.size() && (mask[words] & ((uint32_t{1} << (size % 32)) - 1)) != 0;
}

inline bool Allows(const TokenMask& mask, TokenId token) {
  return token / 32 < mask.size() && (mask[token / 32] >> (token % 32) & 1) != 0;
}

// Follows one answer through a grammar. Thread-compatible.
//
// Invariants
// 1. The text of the accepted tokens begins a text of the grammar; with an end token behind it, it
//    is a whole one.
// 2. Mask allows exactly the tokens that Accept accepts, and at least one.
// 3. After an error it gives the same error again.
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  // The tokens that can come next, until the next Accept. REQUIRES: !has_ended(). Errors:
  // INVALID_ARGUMENT if no token of the model can continue the text, or if the grammar takes more
  // than 0.2 s of processor time or 64 MiB of memory here; QUEUE_FULL if the matchers of other
  // answers use the memory of all. Cost: some microseconds to some hundred, by the vocabulary and
  // the grammar. Repeated calls are free.
  virtual absl::StatusOr<const TokenMask*> Mask() = 0;

  // Goes on behind the token. REQUIRES: Mask() allows it. Errors: as Mask, for the tokens behind
  // it.
  virtual absl::Status Accept(TokenId token) = 0;

  // Whether the answer is complete and nothing can follow: an end token was accepted, or there are
  // no end tokens and the grammar allows no further text.
  virtual bool has_ended() const = 0;
};

// A grammar over a model's vocabulary. Immutable; thread-safe.
class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;

  // A matcher before the first token. `end_tokens` are in ascending order and outlive it: they end
  // the answer, and are allowed only where the grammar is complete. The grammar outlives it too.
  // A mask has a bit for the largest end token.
  virtual std::unique_ptr<GrammarMatcher> NewMatcher(
      absl::Span<const TokenId> end_tokens) const = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_GRAMMAR_H_
