// Cuts a text into words, which the model encodes one by one.
#ifndef PAGODA_ENGINE_TEXT_SPLIT_PRE_TOKENIZER_H_
#define PAGODA_ENGINE_TEXT_SPLIT_PRE_TOKENIZER_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace pagoda {

struct Word {
  std::string text;
  bool begins_text = false;  // It is at the beginning of the text.
};

// The `pre_tokenizer` of a tokenizer.json: Sequence, ByteLevel, Split, Metaspace, Digits.
// Thread-safe.
class PreTokenizer {
 public:
  // Null: a text is one word. Errors: INVALID_CHECKPOINT, which names the unsupported part.
  static absl::StatusOr<PreTokenizer> Parse(const nlohmann::json* json);

  // REQUIRES: the text is UTF-8. Errors: those of Pattern::FindAll.
  absl::StatusOr<std::vector<Word>> Apply(Word text, absl::Time deadline) const;

 private:
  // Appends the words that a word becomes, except empty ones.
  using Step = std::function<absl::Status(Word word, absl::Time deadline, std::vector<Word>& out)>;

  absl::Status Add(const nlohmann::json& json, int depth);
  absl::Status AddByteLevel(const nlohmann::json& json);
  absl::Status AddSplit(const nlohmann::json& json);
  absl::Status AddMetaspace(const nlohmann::json& json);
  absl::Status AddDigits(const nlohmann::json& json);

  std::vector<Step> steps_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_SPLIT_PRE_TOKENIZER_H_
