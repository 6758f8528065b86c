#include "engine/text/jinja/python/python_space.h"

#include "absl/strings/match.h"
#include "engine/text/encoding/utf8.h"

namespace pagoda::jinja {
namespace {

// The last character of a text that is not empty.
absl::string_view Last(absl::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return text.substr(at);
}

template <typename Removes>
absl::string_view Left(absl::string_view text, const Removes& removes) {
  while (!text.empty()) {
    const absl::string_view first = text.substr(0, ReadUtf8(text).size);
    if (!removes(first)) break;
    text.remove_prefix(first.size());
  }
  return text;
}

template <typename Removes>
absl::string_view Right(absl::string_view text, const Removes& removes) {
  while (!text.empty() && removes(Last(text))) text.remove_suffix(Last(text).size());
  return text;
}

bool IsSpace(absl::string_view character) { return IsPythonSpace(ReadUtf8(character).code_point); }

}  // namespace

bool IsPythonSpace(char32_t code_point) {
  // Python also counts ASCII's four separators.
  return IsWhitespace(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

absl::string_view StripLeft(absl::string_view text) { return Left(text, IsSpace); }
absl::string_view StripRight(absl::string_view text) { return Right(text, IsSpace); }

absl::string_view StripLeft(absl::string_view text, absl::string_view set) {
  return Left(text, [&](absl::string_view c) { return absl::StrContains(set, c); });
}

absl::string_view StripRight(absl::string_view text, absl::string_view set) {
  return Right(text, [&](absl::string_view c) { return absl::StrContains(set, c); });
}

}  // namespace pagoda::jinja
