// The methods of texts that change or test the kinds of characters.
#include <unicode/uchar.h>

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/python/methods.h"
#include "engine/text/jinja/python/python_space.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/python/text_edit.h"

namespace pagoda::jinja {
namespace {

template <std::string (*kEdit)(absl::string_view)>
Value Edit(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "a method of str", arguments, {});
  if (!run.WorkOnBytes(4 * self.bytes().size())) return {};
  return run.NewText(kEdit(self.bytes()), self.text().markup);
}

std::string SwapCase(absl::string_view text) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(ReadUtf8(text).size)) {
    const absl::string_view c = text.substr(0, ReadUtf8(text).size);
    const bool upper = u_isUUppercase(static_cast<UChar32>(ReadUtf8(c).code_point)) != 0;
    out += upper ? LowerCase(c) : UpperCase(c);
  }
  return out;
}

std::string FoldCase(absl::string_view text) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(ReadUtf8(text).size)) {
    const char32_t c = ReadUtf8(text).code_point;
    if (c == 0xDF) {
      out += "ss";
    } else {
      AppendUtf8(static_cast<char32_t>(u_foldCase(static_cast<UChar32>(c), U_FOLD_CASE_DEFAULT)),
                 out);
    }
  }
  return out;
}

template <typename Matches>
bool AllOf(absl::string_view text, const Matches& matches) {
  if (text.empty()) return false;
  for (; !text.empty(); text.remove_prefix(ReadUtf8(text).size)) {
    if (!matches(static_cast<UChar32>(ReadUtf8(text).code_point))) return false;
  }
  return true;
}

bool IsDecimal(UChar32 c) { return u_charType(c) == U_DECIMAL_DIGIT_NUMBER; }

bool IsDigit(UChar32 c) {
  const int32_t type = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}

bool HasNumber(UChar32 c) { return u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) != U_NT_NONE; }

bool IsLetter(UChar32 c) {
  const int8_t type = u_charType(c);
  return type == U_UPPERCASE_LETTER || type == U_LOWERCASE_LETTER || type == U_TITLECASE_LETTER ||
         type == U_MODIFIER_LETTER || type == U_OTHER_LETTER;
}

bool IsSpaceCharacter(UChar32 c) { return IsPythonSpace(static_cast<char32_t>(c)); }

bool IsAlphanumeric(UChar32 c) { return IsLetter(c) || IsDecimal(c) || HasNumber(c); }

template <bool (*kMatches)(UChar32)>
bool All(absl::string_view text) {
  return AllOf(text, kMatches);
}

// At least one cased character, and none of the other case.
template <bool kUpper>
bool HasCase(absl::string_view text) {
  bool found = false;
  for (; !text.empty(); text.remove_prefix(ReadUtf8(text).size)) {
    const auto c = static_cast<UChar32>(ReadUtf8(text).code_point);
    const bool upper = u_isUUppercase(c) != 0;
    const bool lower = u_isULowercase(c) != 0;
    if (u_istitle(c) != 0 || (kUpper ? lower : upper)) return false;
    found |= kUpper ? upper : lower;
  }
  return found;
}

bool IsTitle(absl::string_view text) {
  bool found = false;
  bool in_word = false;
  for (; !text.empty(); text.remove_prefix(ReadUtf8(text).size)) {
    const auto c = static_cast<UChar32>(ReadUtf8(text).code_point);
    if (u_isUUppercase(c) != 0 || u_istitle(c) != 0) {
      if (in_word) return false;
      in_word = found = true;
    } else if (u_isULowercase(c) != 0) {
      if (!in_word) return false;
      found = true;
    } else {
      in_word = false;
    }
  }
  return found;
}

bool IsAsciiText(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

bool IsPrintableText(absl::string_view text) {
  return text.empty() ||
         AllOf(text, [](UChar32 c) { return IsPrintable(static_cast<char32_t>(c)); });
}

bool IsIdentifier(absl::string_view text) {
  if (text.empty()) return false;
  const auto first = static_cast<UChar32>(ReadUtf8(text).code_point);
  if (first != '_' && u_hasBinaryProperty(first, UCHAR_XID_START) == 0) return false;
  return AllOf(text, [](UChar32 c) { return u_hasBinaryProperty(c, UCHAR_XID_CONTINUE) != 0; });
}

template <bool (*kTest)(absl::string_view)>
Value Test(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "a method of str", arguments, {});
  if (!run.WorkOnBytes(4 * self.bytes().size())) return {};
  return Value::Of(kTest(self.bytes()));
}

}  // namespace

MethodTable TextCaseMethods() {
  static constexpr std::pair<absl::string_view, MethodCall> kMethods[] = {
      {"capitalize", Edit<Capitalized>},
      {"casefold", Edit<FoldCase>},
      {"isalnum", Test<All<IsAlphanumeric>>},
      {"isalpha", Test<All<IsLetter>>},
      {"isascii", Test<IsAsciiText>},
      {"isdecimal", Test<All<IsDecimal>>},
      {"isdigit", Test<All<IsDigit>>},
      {"isidentifier", Test<IsIdentifier>},
      {"islower", Test<HasCase<false>>},
      {"isnumeric", Test<All<HasNumber>>},
      {"isprintable", Test<IsPrintableText>},
      {"isspace", Test<All<IsSpaceCharacter>>},
      {"istitle", Test<IsTitle>},
      {"isupper", Test<HasCase<true>>},
      {"lower", Edit<LowerCase>},
      {"swapcase", Edit<SwapCase>},
      {"title", Edit<TitleCase>},
      {"upper", Edit<UpperCase>}};
  return kMethods;
}

}  // namespace pagoda::jinja
