// Characters in UTF-8.
#ifndef PAGODA_ENGINE_TEXT_ENCODING_UTF8_H_
#define PAGODA_ENGINE_TEXT_ENCODING_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace pagoda {

// U+FFFD, which replaces invalid bytes.
inline constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";

// The first character of a text.
struct Utf8Prefix {
  enum class Kind : uint8_t {
    kCharacter,
    kIncomplete,  // The whole text is the beginning of a character.
    kInvalid,     // The first `size` bytes cannot begin a character.
  };
  Kind kind = Kind::kInvalid;
  size_t size = 0;
  char32_t code_point = 0;  // The character's code point, for kCharacter.
};

// REQUIRES: !text.empty(). Invalid bytes are counted by the Unicode Standard's "substitution of
// maximal subparts" (3.9), so that each such run is one replacement character.
Utf8Prefix ReadUtf8(absl::string_view text);

bool IsUtf8(absl::string_view text);
void AppendUtf8(char32_t code_point, std::string& text);

// The White_Space property; the categories Nd, Nl and No; \w of regular expressions.
bool IsWhitespace(char32_t code_point);
bool IsNumeric(char32_t code_point);
bool IsWordCharacter(char32_t code_point);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_ENCODING_UTF8_H_
