// Searches for a tokenizer's patterns in a text.
#ifndef PAGODA_ENGINE_TEXT_SPLIT_PATTERN_H_
#define PAGODA_ENGINE_TEXT_SPLIT_PATTERN_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace pagoda {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;  // In bytes.
};

// INVALID_PROMPT: the text takes too long.
absl::Status TooLongToSplit();

// A string or a regular expression. Regular expressions of tokenizers are valid in ICU's syntax.
// Thread-safe; copies share the compiled expression, which is immutable.
class Pattern {
 public:
  // {"String": " "} or {"Regex": "\\p{L}+"}. Errors: INVALID_CHECKPOINT with `path`.
  static absl::StatusOr<Pattern> Parse(const nlohmann::json& json, const std::string& path);
  // Errors: INVALID_CHECKPOINT if ICU does not understand the expression.
  static absl::StatusOr<Pattern> Regex(const std::string& expression);
  static Pattern String(std::string text);

  // The matches, from left to right, without overlaps. REQUIRES: `text` is UTF-8. Errors:
  // INVALID_PROMPT if an expression runs beyond the deadline or needs too much memory.
  absl::StatusOr<std::vector<TextRange>> FindAll(absl::string_view text, absl::Time deadline) const;

  // Cuts each of the ranges, as if it were a whole text, into the matches and what is between them.
  // An empty match cuts too. The result has no empty ranges. REQUIRES: `ranges` are ascending and
  // do not overlap; the expression does not look behind, because ICU would see the text in front of
  // a range. Errors: as FindAll.
  absl::StatusOr<std::vector<TextRange>> SplitEach(absl::string_view text,
                                                   const std::vector<TextRange>& ranges,
                                                   absl::Time deadline) const;

 private:
  struct Compiled;  // Hides ICU's headers.
  Pattern() = default;

  std::string text_;                          // If compiled_ is null.
  std::shared_ptr<const Compiled> compiled_;  // Owned by all copies.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_SPLIT_PATTERN_H_
