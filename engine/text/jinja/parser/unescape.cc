// Unescape: Python's escapes in string literals.
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/parser/token.h"

namespace pagoda::jinja {
namespace {

// The digits at the beginning, at most `most`.
size_t ReadNumber(absl::string_view text, uint32_t base, size_t most, uint32_t* value) {
  size_t size = 0;
  *value = 0;
  for (; size < most && size < text.size(); ++size) {
    const char c = text[size];
    const uint32_t digit = c >= '0' && c <= '9'   ? static_cast<uint32_t>(c - '0')
                           : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                           : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                                  : base;
    if (digit >= base) break;
    *value = *value * base + digit;
  }
  return size;
}

// One letter for one character.
const char* Simple(char c) {
  switch (c) {
    case '\n':
      return "";
    case '\\':
      return "\\";
    case '\'':
      return "'";
    case '"':
      return "\"";
    case 'a':
      return "\a";
    case 'b':
      return "\b";
    case 'f':
      return "\f";
    case 'n':
      return "\n";
    case 'r':
      return "\r";
    case 't':
      return "\t";
    case 'v':
      return "\v";
    default:
      return nullptr;
  }
}

}  // namespace

absl::StatusOr<std::string> Unescape(absl::string_view inside) {
  std::string out;
  while (!inside.empty()) {
    const size_t slash = inside.find('\\');
    absl::StrAppend(&out, inside.substr(0, slash));
    if (slash == absl::string_view::npos) break;
    inside.remove_prefix(slash + 1);
    if (inside.empty()) return absl::InvalidArgumentError("a string ends within an escape");
    const char letter = inside[0];
    if (const char* simple = Simple(letter)) {
      out += simple;
      inside.remove_prefix(1);
      continue;
    }
    uint32_t value = 0;
    if (letter >= '0' && letter <= '7') {
      inside.remove_prefix(ReadNumber(inside, 8, 3, &value));
      AppendUtf8(value, out);
      continue;
    }
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (letter == 'N') return absl::InvalidArgumentError("escapes with names are not supported");
    if (digits == 0) {
      out += '\\';  // An unknown escape stands for itself.
      continue;
    }
    if (ReadNumber(inside.substr(1), 16, digits, &value) != digits || value > 0x10FFFF ||
        (value >= 0xD800 && value < 0xE000)) {
      return absl::InvalidArgumentError(absl::StrCat("a bad \\", inside.substr(0, 1), " escape"));
    }
    AppendUtf8(value, out);
    inside.remove_prefix(1 + digits);
  }
  return out;
}

}  // namespace pagoda::jinja
