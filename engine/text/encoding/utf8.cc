#include "engine/text/encoding/utf8.h"

#include <unicode/uchar.h>

namespace pagoda {
namespace {

// By a character's first byte: the character's length and the range of its second byte (Unicode 15,
// table 3-7). Length 0: no character begins with this byte.
struct Lead {
  size_t size = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {.size = 1};
  if (byte < 0xC2) return {.size = 0};
  if (byte < 0xE0) return {.size = 2};
  if (byte == 0xE0) return {.size = 3, .low = 0xA0};
  if (byte == 0xED) return {.size = 3, .high = 0x9F};
  if (byte < 0xF0) return {.size = 3};
  if (byte == 0xF0) return {.size = 4, .low = 0x90};
  if (byte < 0xF4) return {.size = 4};
  if (byte == 0xF4) return {.size = 4, .high = 0x8F};
  return {.size = 0};
}

}  // namespace

Utf8Prefix ReadUtf8(absl::string_view text) {
  using Kind = Utf8Prefix::Kind;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = LeadOf(byte(0));
  if (lead.size == 0) return {.kind = Kind::kInvalid, .size = 1};
  if (lead.size == 1) return {.kind = Kind::kCharacter, .size = 1, .code_point = byte(0)};
  char32_t code_point = byte(0) & (0x7F >> lead.size);
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == text.size()) return {.kind = Kind::kIncomplete, .size = i};
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {.kind = Kind::kInvalid, .size = i};
    code_point = (code_point << 6) | (byte(i) & 0x3F);
  }
  return {.kind = Kind::kCharacter, .size = lead.size, .code_point = code_point};
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8(text);
    if (prefix.kind != Utf8Prefix::Kind::kCharacter) return false;
    text.remove_prefix(prefix.size);
  }
  return true;
}

void AppendUtf8(char32_t code_point, std::string& text) {
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
    return;
  }
  const int more = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  constexpr uint8_t kLeads[] = {0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(kLeads[more] | (code_point >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) {
    text += static_cast<char>(0x80 | ((code_point >> (6 * i)) & 0x3F));
  }
}

bool IsWhitespace(char32_t code_point) {
  return u_isUWhiteSpace(static_cast<UChar32>(code_point)) != 0;
}

bool IsNumeric(char32_t code_point) {
  return (U_GET_GC_MASK(static_cast<UChar32>(code_point)) & U_GC_N_MASK) != 0;
}

bool IsWordCharacter(char32_t code_point) {
  const uint32_t mask = U_GET_GC_MASK(static_cast<UChar32>(code_point));
  return u_isUAlphabetic(static_cast<UChar32>(code_point)) != 0 ||
         (mask & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

}  // namespace pagoda
