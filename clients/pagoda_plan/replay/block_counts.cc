#include "clients/pagoda_plan/replay/block_counts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

absl::Status InvalidCounts(const std::string& message) {
  return MakeError(Reason::kInvalidArgument, message);
}

absl::StatusOr<uint32_t> ParseCount(absl::string_view text) {
  uint32_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count > kMaxBlocks) {
    return InvalidCounts(
        absl::StrCat("\"", text, "\" is no number of blocks from 0 to ", kMaxBlocks));
  }
  return count;
}

absl::Status AppendRange(const std::vector<std::string>& parts, std::vector<uint32_t>& counts) {
  const absl::StatusOr<uint32_t> first = ParseCount(parts[0]);
  if (!first.ok()) return first.status();
  const absl::StatusOr<uint32_t> last = ParseCount(parts[1]);
  if (!last.ok()) return last.status();
  absl::string_view text = parts[2];
  double factor = 0;
  if (!absl::ConsumePrefix(&text, "x") || !absl::SimpleAtod(text, &factor) || !(factor > 1)) {
    return InvalidCounts(absl::StrCat("\"", parts[2], "\" is no factor above 1, such as x2"));
  }
  if (*first == 0 || *first >= *last) {
    return InvalidCounts(
        absl::StrCat("the range from ", *first, " to ", *last, " does not rise from 1"));
  }
  // Each count is above the one before, however small the factor is.
  for (double count = *first; count < *last;
       count = std::max(count * factor, std::floor(count) + 1)) {
    const auto rounded = static_cast<uint32_t>(std::lround(count));
    if (counts.empty() || counts.back() != rounded) counts.push_back(rounded);
    if (counts.size() > kMaxBlockCounts) break;
  }
  if (counts.back() != *last) counts.push_back(*last);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseBlockCounts(const std::string& text) {
  std::vector<uint32_t> counts;
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    const std::vector<std::string> parts = absl::StrSplit(entry, ':');
    if (parts.size() == 3) {
      if (const absl::Status status = AppendRange(parts, counts); !status.ok()) return status;
    } else {
      const absl::StatusOr<uint32_t> count = ParseCount(entry);
      if (!count.ok()) return count.status();
      counts.push_back(*count);
    }
    if (counts.size() > kMaxBlockCounts) {
      return InvalidCounts(absl::StrCat("more than ", kMaxBlockCounts, " capacities"));
    }
  }
  return counts;
}

std::string CheckBlockCounts(const std::string& text) {
  return std::string(ParseBlockCounts(text).status().message());
}

}  // namespace pagoda
