#include "engine/text/encoding/byte_level.h"

#include <array>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "engine/text/encoding/utf8.h"

namespace pagoda {
namespace {

struct Tables {
  std::array<char32_t, 256> visible = {};
  // By character; the largest is 0x100 + 67. -1: the character stands for no byte.
  std::array<int16_t, 0x200> bytes = {};
};

constexpr bool IsVisible(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Tables MakeTables() {
  Tables tables;
  for (int16_t& byte : tables.bytes) byte = -1;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t visible = IsVisible(byte) ? static_cast<char32_t>(byte) : next++;
    tables.visible[byte] = visible;
    tables.bytes[visible] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

int HexDigit(char digit) {
  if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) return -1;
  return absl::ascii_isdigit(static_cast<unsigned char>(digit))
             ? digit - '0'
             : absl::ascii_tolower(static_cast<unsigned char>(digit)) - 'a' + 10;
}

}  // namespace

std::string BytesToVisible(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) AppendUtf8(kTables.visible[static_cast<uint8_t>(byte)], text);
  return text;
}

std::optional<std::string> VisibleToBytes(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8(text);
    if (prefix.kind != Utf8Prefix::Kind::kCharacter || prefix.code_point >= kTables.bytes.size() ||
        kTables.bytes[prefix.code_point] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(kTables.bytes[prefix.code_point]);
    text.remove_prefix(prefix.size);
  }
  return bytes;
}

std::optional<char> ByteOfToken(absl::string_view token) {
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') return std::nullopt;
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

}  // namespace pagoda
