// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_PRE_TOKENIZERS_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_PRE_TOKENIZERS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pagoda {

// Stands for an expression: the groups of three digits of a number, from the right.
inline constexpr char kDigitGroups[] = "digit groups";

// What llama.cpp derives from a name.
struct GgufPreTokenizer {
  // Each is applied to the words that the one before it makes. In ICU's syntax.
  std::vector<std::string> expressions;
  bool ignore_merges = false;   // A word that is a token is that token.
  bool adds_bos = false;        // Unless the file says otherwise.
  bool has_default_bos = true;  // Id 11, if the file names none.
  // Like SentencePiece: spaces are visible, other bytes are as they are.
  bool has_visible_spaces = false;
  bool joins_newlines = false;  // A word of newlines that is a token is that token.
};

// Null for an unknown name. "" is "default". Valid for ever.
const GgufPreTokenizer* FindGgufPreTokenizer(absl::string_view name);

// All names, for messages and tests.
std::vector<std::string> GgufPreTokenizerNames();

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_PRE_TOKENIZERS_H_
