#include "clients/command_line/terminal/format.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/counted.h"

namespace pagoda {

std::string FormatCount(uint64_t count) {
  std::string digits = absl::StrCat(count);
  for (size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string FormatCounted(uint64_t count, const std::string& noun) {
  if (count == 1) return absl::StrCat("1 ", noun);
  return absl::StrCat(FormatCount(count), " ", Plural(noun));
}

std::string FormatCached(uint64_t count, const std::string& noun) {
  return absl::StrCat(FormatCounted(count, noun), count == 1 ? " is cached" : " are cached");
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string FormatBlocks(uint64_t count) { return FormatCounted(count, "block"); }

std::string FormatParts(const std::vector<std::pair<std::string, uint64_t>>& parts) {
  std::string text;
  for (const auto& [where, amount] : parts) {
    if (amount == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", FormatCount(amount), " in ", where);
  }
  return text;
}

std::string FormatShare(double share) { return absl::StrFormat("%.2f %%", share * 100); }

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return absl::StrFormat("%.1f %s", value, unit);
}

std::string FormatElapsed(absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.2f ms", seconds * 1e3);
  if (seconds < 60) return absl::StrFormat("%.2f s", seconds);
  const int64_t minutes = static_cast<int64_t>(seconds) / 60;
  if (minutes < 60)
    return absl::StrFormat("%d min %d s", minutes, static_cast<int64_t>(seconds) % 60);
  return absl::StrFormat("%d h %d min", minutes / 60, minutes % 60);
}

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string Bar(const Terminal& terminal, double share, int width) {
  const double clamped = std::clamp(share, 0.0, 1.0);
  int filled = static_cast<int>(std::floor(clamped * width));
  if (clamped > 0) filled = std::max(filled, 1);
  const char* full = terminal.unicode ? "█" : "#";
  const char* empty = terminal.unicode ? "░" : ".";
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < filled ? full : empty;
  return bar;
}

}  // namespace pagoda
