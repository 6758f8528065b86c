// Pairs that merge by the scores of their tokens (Kudo and Richardson, "SentencePiece", 2018).
#ifndef PAGODA_ENGINE_TEXT_VOCABULARY_SCORE_BPE_H_
#define PAGODA_ENGINE_TEXT_VOCABULARY_SCORE_BPE_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/text/vocabulary/token_table.h"
#include "engine/text/vocabulary/word_cache.h"
#include "pools/types.h"

namespace pagoda {

// A SentencePiece vocabulary, by llama.cpp's rules: two neighbours merge if their text is a token,
// the token with the highest score first, and of equal scores the leftmost. A character that is no
// token becomes the tokens of its bytes ("<0x41>", or the byte itself). Thread-safe.
class ScoreBpe {
 public:
  // `scores` are by id, one for each token; none is NaN. `unknown` is the token of a byte that has
  // none; without it such a byte is left out.
  ScoreBpe(TokenTable tokens, std::vector<float> scores, std::optional<TokenId> unknown);

  // Appends the tokens of a text in which SentencePiece's visible character replaces spaces.
  // REQUIRES: UTF-8. Cost: O(n log n) in the longest word, if tokens have spaces only at their
  // beginning, as real ones do; otherwise in the whole text. Short words are cached.
  // Errors: INVALID_PROMPT after the deadline; `out` then has no meaning.
  absl::Status Encode(absl::string_view text, absl::Time deadline, std::vector<TokenId>& out) const;

  const TokenTable& tokens() const { return tokens_; }

 private:
  class Merger;

  absl::Status EncodeWord(absl::string_view word, absl::Time deadline,
                          std::vector<TokenId>& out) const;

  const TokenTable tokens_;
  const std::vector<float> scores_;
  std::vector<std::optional<TokenId>> bytes_;  // By byte: its token, or the unknown one.
  bool merges_across_words_ = false;
  mutable WordCache cache_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_VOCABULARY_SCORE_BPE_H_
