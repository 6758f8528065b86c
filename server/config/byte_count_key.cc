#include "server/config/byte_count_key.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace pagoda::server {
namespace {

struct Unit {
  const char* suffix;
  uint64_t bytes;
};

// The largest first. "B" is a suffix of the others, so it is tried last.
constexpr std::array kUnits = {Unit{"TiB", uint64_t{1} << 40},
                               Unit{"TB", 1'000'000'000'000},
                               Unit{"GiB", uint64_t{1} << 30},
                               Unit{"GB", 1'000'000'000},
                               Unit{"MiB", uint64_t{1} << 20},
                               Unit{"MB", 1'000'000},
                               Unit{"KiB", uint64_t{1} << 10},
                               Unit{"KB", 1'000},
                               Unit{"B", 1}};

}  // namespace

std::optional<uint64_t> BytesFromText(const std::string& whole) {
  // SimpleAtoi would ignore blanks.
  if (std::any_of(whole.begin(), whole.end(),
                  [](unsigned char c) { return absl::ascii_isspace(c); })) {
    return std::nullopt;
  }
  absl::string_view text = whole;
  uint64_t unit_bytes = 1;
  for (const Unit& unit : kUnits) {
    if (!absl::ConsumeSuffix(&text, unit.suffix)) continue;
    unit_bytes = unit.bytes;
    break;
  }
  uint64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) ||
      count > std::numeric_limits<uint64_t>::max() / unit_bytes) {
    return std::nullopt;
  }
  return count * unit_bytes;
}

std::string BytesToText(uint64_t bytes) {
  std::string shortest = absl::StrCat(bytes);
  if (bytes == 0) return shortest;
  for (const Unit& unit : kUnits) {
    if (bytes % unit.bytes != 0) continue;
    std::string text = absl::StrCat(bytes / unit.bytes, unit.suffix);
    if (text.size() < shortest.size()) shortest = std::move(text);
  }
  return shortest;
}

ConfigKey ByteCountKey(std::string name, uint64_t* field, std::string zero) {
  auto read = [=](const YAML::Node& node) {
    const std::optional<uint64_t> bytes =
        node.IsScalar() ? BytesFromText(node.Scalar()) : std::nullopt;
    if (!bytes.has_value()) {
      return WrongValue(node, name,
                        absl::StrCat("bytes such as 44MB or 42MiB (B, KB, MB, GB, TB, KiB, MiB, "
                                     "GiB, TiB), or 0 for ",
                                     zero));
    }
    *field = *bytes;
    return absl::OkStatus();
  };
  return {name, read, [field](YAML::Emitter& out) { out << BytesToText(*field); }};
}

}  // namespace pagoda::server
