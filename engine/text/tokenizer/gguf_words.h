// Cuts a text into words as the pre-tokenizers that GGUF files name.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_WORDS_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_WORDS_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/text/split/pattern.h"
#include "engine/text/tokenizer/gguf_pre_tokenizers.h"

namespace pagoda {

// Thread-safe.
class GgufWords {
 public:
  static GgufWords For(const GgufPreTokenizer& pre_tokenizer);

  // The words, which together are the text. REQUIRES: the text is UTF-8. Errors: as
  // Pattern::FindAll.
  absl::StatusOr<std::vector<TextRange>> Split(absl::string_view text, absl::Time deadline) const;

 private:
  // Nothing: groups of three digits from the right.
  std::vector<std::optional<Pattern>> steps_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_WORDS_H_
