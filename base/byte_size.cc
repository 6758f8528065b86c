#include "base/byte_size.h"

#include <array>
#include <limits>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace pagoda {
namespace {

struct Unit {
  const char* suffix;
  uint64_t bytes;
};

// The largest first. "B" is a suffix of the others, so it is tried last. The second name of 1000
// bytes is only read.
constexpr std::array kUnits = {Unit{"PiB", uint64_t{1} << 50},
                               Unit{"PB", 1'000'000'000'000'000},
                               Unit{"TiB", uint64_t{1} << 40},
                               Unit{"TB", 1'000'000'000'000},
                               Unit{"GiB", uint64_t{1} << 30},
                               Unit{"GB", 1'000'000'000},
                               Unit{"MiB", uint64_t{1} << 20},
                               Unit{"MB", 1'000'000},
                               Unit{"KiB", uint64_t{1} << 10},
                               Unit{"KB", 1'000},
                               Unit{"kB", 1'000},
                               Unit{"B", 1}};

// A decimal number: `digits` divided by `scale`, a power of ten.
struct Decimal {
  uint64_t digits = 0;
  uint64_t scale = 1;
};

std::optional<Decimal> ParseDecimal(absl::string_view text) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  Decimal number;
  bool has_digit = false;
  bool has_point = false;
  for (const char c : text) {
    if (c == '.' && !has_point) {
      has_point = true;
      continue;
    }
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
    const auto digit = static_cast<uint64_t>(c - '0');
    if (number.digits > (kMost - digit) / 10 || number.scale > kMost / 10) return std::nullopt;
    has_digit = true;
    number.digits = number.digits * 10 + digit;
    if (has_point) number.scale *= 10;
  }
  if (!has_digit) return std::nullopt;
  return number;
}

// nullopt unless `text` is a number, and the size is below 2^64 bytes.
std::optional<uint64_t> ParseUnits(absl::string_view text, uint64_t unit_bytes) {
  const std::optional<Decimal> number = ParseDecimal(text);
  if (!number.has_value() || (unit_bytes == 1 && absl::StrContains(text, '.'))) return std::nullopt;
  const absl::uint128 bytes =
      (absl::uint128(number->digits) * unit_bytes + number->scale - 1) / number->scale;
  if (absl::Uint128High64(bytes) != 0) return std::nullopt;
  return absl::Uint128Low64(bytes);
}

}  // namespace

std::optional<uint64_t> ParseByteSizeWithUnit(absl::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!absl::ConsumeSuffix(&text, unit.suffix)) continue;
    absl::ConsumeSuffix(&text, " ");
    return ParseUnits(text, unit.bytes);
  }
  return std::nullopt;
}

std::optional<uint64_t> ParseByteSize(absl::string_view text) {
  return absl::EndsWith(text, "B") ? ParseByteSizeWithUnit(text) : ParseUnits(text, 1);
}

std::string ByteSizeTextWithUnit(uint64_t bytes) {
  std::string shortest = absl::StrCat(bytes, "B");
  if (bytes == 0) return shortest;
  for (const Unit& unit : kUnits) {
    if (bytes % unit.bytes != 0) continue;
    std::string text = absl::StrCat(bytes / unit.bytes, unit.suffix);
    if (text.size() < shortest.size()) shortest = std::move(text);
  }
  return shortest;
}

std::string ByteSizeText(uint64_t bytes) {
  std::string with_unit = ByteSizeTextWithUnit(bytes);
  std::string bare = absl::StrCat(bytes);
  return with_unit.size() < bare.size() ? with_unit : bare;
}

}  // namespace pagoda
