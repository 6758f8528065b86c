#include "server/config/byte_rate_key.h"

#include <array>
#include <limits>
#include <optional>

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

// The largest first. "B" ends the others, so it is tried last.
constexpr std::array kUnits = {Unit{"TiB", uint64_t{1} << 40},
                               Unit{"TB", 1'000'000'000'000},
                               Unit{"GiB", uint64_t{1} << 30},
                               Unit{"GB", 1'000'000'000},
                               Unit{"MiB", uint64_t{1} << 20},
                               Unit{"MB", 1'000'000},
                               Unit{"KiB", uint64_t{1} << 10},
                               Unit{"KB", 1'000},
                               Unit{"B", 1}};

std::optional<uint64_t> BytesFrom(absl::string_view text) {
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

// The shortest of the forms that read back to the same number.
std::string Print(uint64_t bytes) {
  std::string shortest = absl::StrCat(bytes);
  if (bytes == 0) return shortest;
  for (const Unit& unit : kUnits) {
    if (bytes % unit.bytes != 0) continue;
    std::string text = absl::StrCat(bytes / unit.bytes, unit.suffix);
    if (text.size() < shortest.size()) shortest = std::move(text);
  }
  return shortest;
}

}  // namespace

ConfigKey ByteRateKey(std::string name, uint64_t* field) {
  auto read = [=](const YAML::Node& node) {
    const std::optional<uint64_t> bytes = node.IsScalar() ? BytesFrom(node.Scalar()) : std::nullopt;
    if (!bytes.has_value()) {
      return WrongValue(node, name,
                        "bytes such as 44MB or 42MiB (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB), or "
                        "0 for no limit");
    }
    *field = *bytes;
    return absl::OkStatus();
  };
  return {name, read, [field](YAML::Emitter& out) { out << Print(*field); }};
}

}  // namespace pagoda::server
