#include "engine/text/tokenizer/gguf_words.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/text/encoding/utf8.h"

namespace pagoda {
namespace {

// Cuts each run of numeric characters into groups of three, of which the first can be shorter.
std::vector<TextRange> GroupDigits(absl::string_view text, const std::vector<TextRange>& ranges) {
  std::vector<TextRange> parts;
  std::vector<size_t> digits;  // Where those of a run begin.
  for (const TextRange& range : ranges) {
    size_t done = range.begin;
    const auto end_run = [&](size_t end) {
      if (digits.empty()) return;
      if (digits[0] > done) parts.push_back({done, digits[0]});
      size_t first = digits.size() % 3;
      if (first > 0) parts.push_back({digits[0], first < digits.size() ? digits[first] : end});
      for (; first < digits.size(); first += 3) {
        parts.push_back({digits[first], first + 3 < digits.size() ? digits[first + 3] : end});
      }
      digits.clear();
      done = end;
    };
    for (size_t at = range.begin; at < range.end;) {
      const Utf8Prefix prefix = ReadUtf8(text.substr(at));
      if (IsNumeric(prefix.code_point)) {
        digits.push_back(at);
      } else {
        end_run(at);
      }
      at += prefix.size;
    }
    end_run(range.end);
    if (done < range.end) parts.push_back({done, range.end});
  }
  return parts;
}

}  // namespace

GgufWords GgufWords::For(const GgufPreTokenizer& pre_tokenizer) {
  GgufWords words;
  for (const std::string& expression : pre_tokenizer.expressions) {
    if (expression == kDigitGroups) {
      words.steps_.emplace_back(std::nullopt);
      continue;
    }
    absl::StatusOr<Pattern> pattern = Pattern::Regex(expression);
    PAGODA_CHECK(pattern.ok(), "the expressions of known pre-tokenizers are valid");
    words.steps_.emplace_back(*std::move(pattern));
  }
  return words;
}

absl::StatusOr<std::vector<TextRange>> GgufWords::Split(absl::string_view text,
                                                        absl::Time deadline) const {
  std::vector<TextRange> words;
  if (!text.empty()) words.push_back({0, text.size()});
  for (const std::optional<Pattern>& step : steps_) {
    if (!step.has_value()) {
      words = GroupDigits(text, words);
      continue;
    }
    absl::StatusOr<std::vector<TextRange>> next = step->SplitEach(text, words, deadline);
    if (!next.ok()) return next.status();
    words = *std::move(next);
  }
  return words;
}

}  // namespace pagoda
