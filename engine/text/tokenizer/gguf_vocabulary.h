// The vocabulary in the metadata of a GGUF file: the keys "tokenizer.ggml...".
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_VOCABULARY_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf/gguf_values.h"
#include "engine/text/tokenizer/gguf_pre_tokenizers.h"
#include "engine/text/vocabulary/token_table.h"
#include "pools/types.h"

namespace pagoda {

// Numbered by the format.
enum class GgufTokenType : uint8_t {
  kUndefined,
  kNormal,
  kUnknown,
  kControl,
  kUserDefined,
  kUnused,
  kByte,
};

// The values with llama.cpp's defaults and its corrections of known mistakes in files. Refers to
// the metadata and to the file.
struct GgufVocabulary {
  enum class Model : uint8_t { kBytePairs, kSentencePiece };

  // Errors: INVALID_CHECKPOINT, which names the key: an unsupported model or pre-tokenizer, values
  // of a wrong type or number, two equal tokens. INVALID_ARGUMENT: the file has no vocabulary.
  static absl::StatusOr<GgufVocabulary> Read(const GgufMetadata& metadata);

  Model model = Model::kBytePairs;
  const GgufPreTokenizer* pre_tokenizer = nullptr;  // Only for kBytePairs.
  TokenTable tokens{0, 0};                          // Every id has a token.
  std::vector<GgufTokenType> types;                 // By id.
  std::vector<float> scores;                        // By id; of kSentencePiece. None is NaN.
  std::vector<absl::string_view> merges;            // Only for kBytePairs.
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  bool drops_spaces_behind_special = false;  // Phi 3.
  std::vector<TokenId> end_tokens;           // Any of these ends an answer. Ascending.
};

// INVALID_CHECKPOINT about the vocabulary.
absl::Status BadVocabulary(absl::string_view what);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_VOCABULARY_H_
