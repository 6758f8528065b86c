#include "server/cache/pool_pages.h"

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace pagoda::server {
namespace {

// The page size that `asked` names; none if it leaves the choice to the system.
std::optional<MemoryPages> NamedPages(HugePages asked) {
  switch (asked) {
    case HugePages::k2MiB:
      return MemoryPages::k2MiB;
    case HugePages::k1GiB:
      return MemoryPages::k1GiB;
    case HugePages::kAuto:
    case HugePages::kOff:
      return std::nullopt;
  }
  return std::nullopt;
}

// "8 MiB in plain pages, 1024 MiB in huge pages of 2 MiB".
std::string BytesText(const std::array<uint64_t, kNumMemoryPages>& bytes) {
  std::string text;
  for (size_t p = 0; p < bytes.size(); ++p) {
    if (bytes[p] == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", (bytes[p] + (1 << 20) - 1) >> 20, " MiB in ",
                    std::string(PagesText(static_cast<MemoryPages>(p))));
  }
  return text;
}

}  // namespace

std::vector<PagesLine> DescribePages(const PoolSet& pools,
                                     const std::vector<std::string>& tier_names, HugePages asked) {
  PAGODA_CHECK(tier_names.size() >= pools.num_tiers(), "a name for each tier");
  const std::optional<MemoryPages> named = NamedPages(asked);
  std::vector<PagesLine> lines;
  for (size_t t = 0; t < pools.num_tiers(); ++t) {
    const Tier tier(t);
    const std::array<uint64_t, kNumMemoryPages> bytes = pools.BytesByPages(tier);
    const std::string text = BytesText(bytes);
    if (text.empty()) continue;
    PagesLine line{.text = absl::StrCat("the pools of tier ", tier_names[t], ": ", text)};
    bool all_named = true;
    for (size_t p = 0; p < bytes.size(); ++p) {
      all_named &= bytes[p] == 0 || static_cast<MemoryPages>(p) == named;
    }
    const bool some_plain = bytes[static_cast<size_t>(MemoryPages::kPlain)] > 0;
    const bool falls_short = named.has_value() && !all_named;
    if (falls_short) {
      line.level = LogLevel::kWarning;
      absl::StrAppend(&line.text, ", and cache.huge_pages is ", std::string(PagesName(*named)));
    }
    const std::string why = pools.PagesShortfall(tier);
    if ((falls_short || some_plain) && !why.empty()) absl::StrAppend(&line.text, ": ", why);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace pagoda::server
