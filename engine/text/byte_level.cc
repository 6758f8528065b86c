#include "engine/text/byte_level.h"

#include <array>
#include <cstdint>

#include "engine/text/utf8.h"

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

}  // namespace pagoda
