// Normalizes a text, the first step after added tokens.
#ifndef PAGODA_ENGINE_TEXT_SPLIT_NORMALIZER_H_
#define PAGODA_ENGINE_TEXT_SPLIT_NORMALIZER_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace pagoda {

// The `normalizer` of a tokenizer.json: Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend,
// Lowercase, Strip. Thread-safe.
class Normalizer {
 public:
  // Null: changes nothing. Errors: INVALID_CHECKPOINT, which names the unsupported part.
  static absl::StatusOr<Normalizer> Parse(const nlohmann::json* json);

  // REQUIRES: `text` is UTF-8. Errors: INVALID_PROMPT (as Pattern::FindAll; or the text grows
  // beyond kMaxBytes).
  absl::StatusOr<std::string> Apply(absl::string_view text, absl::Time deadline) const;

  // Whether the beginning of the text is removed.
  bool DropsBeginning(absl::string_view text) const;

  static constexpr size_t kMaxBytes = 256 << 20;

 private:
  using Step =
      std::function<absl::StatusOr<std::string>(const std::string& text, absl::Time deadline)>;

  absl::Status Add(const nlohmann::json& json, int depth);
  absl::Status AddReplace(const nlohmann::json& json);

  std::vector<Step> steps_;
  bool strips_left_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_SPLIT_NORMALIZER_H_
