#include "base/printable.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace pagoda {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the text does not begin with a whole UTF-8 character.
};

uint8_t ByteAt(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

// Refuses long forms and surrogates, because a decoder behind this could accept them.
Character FirstCharacter(std::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) return {.code = lead, .bytes = 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((ByteAt(text, i) & 0xc0) != 0x80) return {};
    code = code << 6 | (ByteAt(text, i) & 0x3f);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kSmallest[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {.code = code, .bytes = bytes};
}

bool IsHarmful(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) return true;
  return code == 0x061c || code == 0x200e || code == 0x200f || code == 0x2028 || code == 0x2029 ||
         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void AppendEscape(std::string& to, uint32_t code) {
  switch (code) {
    case '\n':
      to += "\\n";
      return;
    case '\r':
      to += "\\r";
      return;
    case '\t':
      to += "\\t";
      return;
    default:
      break;
  }
  char escape[sizeof("\\uffff")];
  std::snprintf(escape, sizeof(escape), "\\u%04x", code & 0xffffu);
  to += escape;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    if (character.bytes == 0) {
      char escape[sizeof("\\xff")];
      std::snprintf(escape, sizeof(escape), "\\x%02x", unsigned{ByteAt(text, 0)});
      printable += escape;
      text.remove_prefix(1);
      continue;
    }
    if (IsHarmful(character.code)) {
      AppendEscape(printable, character.code);
    } else {
      printable.append(text.substr(0, character.bytes));
    }
    text.remove_prefix(character.bytes);
  }
  return printable;
}

}  // namespace pagoda
