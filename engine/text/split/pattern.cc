#include "engine/text/split/pattern.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/text/encoding/bounded_json.h"

namespace pagoda {
namespace {

// ICU counts steps, of about a millisecond each. This limit is checked within a match, the deadline
// between matches.
constexpr int32_t kMatchTimeLimit = 2000;
constexpr int32_t kMatchStackBytes = 64 << 20;

icu::UnicodeString Utf16(absl::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

// Converts ascending positions between the same text in UTF-16 and in UTF-8.
class Utf8Cursor {
 public:
  explicit Utf8Cursor(absl::string_view text) : text_(text) {}

  size_t At(int32_t utf16) {
    while (units_ < utf16) Advance();
    return bytes_;
  }

  int32_t UnitsAt(size_t bytes) {
    while (bytes_ < bytes) Advance();
    return units_;
  }

 private:
  void Advance() {
    const auto lead = static_cast<uint8_t>(text_[bytes_]);
    bytes_ += lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    units_ += lead < 0xF0 ? 1 : 2;
  }

  const absl::string_view text_;
  size_t bytes_ = 0;
  int32_t units_ = 0;
};

std::vector<TextRange> FindString(const std::string& wanted, absl::string_view text) {
  std::vector<TextRange> ranges;
  if (wanted.empty()) return ranges;
  for (size_t at = text.find(wanted); at != absl::string_view::npos;
       at = text.find(wanted, at + wanted.size())) {
    ranges.push_back({at, at + wanted.size()});
  }
  return ranges;
}

}  // namespace

absl::Status TooLongToSplit() {
  return MakeError(Reason::kInvalidPrompt,
                   "the model's tokenizer takes too long to split the text into words");
}

struct Pattern::Compiled {
  std::unique_ptr<icu::RegexPattern> regex;
};

Pattern Pattern::String(std::string text) {
  Pattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::Regex(const std::string& expression) {
  UErrorCode error = U_ZERO_ERROR;
  UParseError where = {};
  auto compiled = std::make_shared<Compiled>();
  compiled->regex.reset(icu::RegexPattern::compile(Utf16(expression), 0, where, error));
  if (U_FAILURE(error) != 0) {
    return BadTokenizer(absl::StrCat("the regular expression '", expression.substr(0, 200),
                                     "' is not valid: ", u_errorName(error)));
  }
  Pattern pattern;
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::Parse(const nlohmann::json& json, const std::string& path) {
  JsonFields fields(json, path);
  const std::string text = fields.String("String", "");
  const std::string regex = fields.String("Regex", "");
  if (!fields.status().ok()) return fields.status();
  if (text.empty() == regex.empty()) {
    return BadTokenizer(absl::StrCat(path, " is neither a String nor a Regex"));
  }
  if (!text.empty()) return String(text);
  return Regex(regex);
}

absl::StatusOr<std::vector<TextRange>> Pattern::FindAll(absl::string_view text,
                                                        absl::Time deadline) const {
  if (compiled_ == nullptr) return FindString(text_, text);
  if (text.size() > std::numeric_limits<int32_t>::max()) return TooLongToSplit();
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString utf16 = Utf16(text);
  const std::unique_ptr<icu::RegexMatcher> matcher(compiled_->regex->matcher(utf16, error));
  if (U_FAILURE(error) != 0) return TooLongToSplit();
  matcher->setTimeLimit(kMatchTimeLimit, error);
  matcher->setStackLimit(kMatchStackBytes, error);
  Utf8Cursor cursor(text);
  std::vector<TextRange> ranges;
  while (matcher->find(error) != 0) {
    if (absl::Now() > deadline) return TooLongToSplit();
    const size_t begin = cursor.At(matcher->start(error));
    ranges.push_back({begin, cursor.At(matcher->end(error))});
  }
  if (U_FAILURE(error) != 0) return TooLongToSplit();
  return ranges;
}

absl::StatusOr<std::vector<TextRange>> Pattern::SplitEach(absl::string_view text,
                                                          const std::vector<TextRange>& ranges,
                                                          absl::Time deadline) const {
  std::vector<TextRange> parts;
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end) parts.push_back({begin, end});
  };
  if (compiled_ == nullptr) {
    for (const TextRange& range : ranges) {
      size_t done = range.begin;
      for (const TextRange& match :
           FindString(text_, text.substr(range.begin, range.end - range.begin))) {
        add(done, range.begin + match.begin);
        done = range.begin + match.end;
        add(range.begin + match.begin, done);
      }
      add(done, range.end);
    }
    return parts;
  }
  if (text.size() > std::numeric_limits<int32_t>::max()) return TooLongToSplit();
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString utf16 = Utf16(text);
  const std::unique_ptr<icu::RegexMatcher> matcher(compiled_->regex->matcher(utf16, error));
  if (U_FAILURE(error) != 0) return TooLongToSplit();
  matcher->setTimeLimit(kMatchTimeLimit, error);
  matcher->setStackLimit(kMatchStackBytes, error);
  Utf8Cursor region(text);
  Utf8Cursor cursor(text);
  for (const TextRange& range : ranges) {
    const int32_t begin = region.UnitsAt(range.begin);
    // Anchors and what looks ahead see the region alone.
    matcher->region(begin, region.UnitsAt(range.end), error);
    size_t done = range.begin;
    while (U_SUCCESS(error) != 0 && matcher->find(error) != 0) {
      if (absl::Now() > deadline) return TooLongToSplit();
      const size_t match = cursor.At(matcher->start(error));
      add(done, match);
      done = cursor.At(matcher->end(error));
      add(match, done);
    }
    if (U_FAILURE(error) != 0) return TooLongToSplit();
    add(done, range.end);
  }
  return parts;
}

}  // namespace pagoda
