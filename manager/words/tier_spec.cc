#include "manager/words/tier_spec.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/words/retention.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

absl::Status CheckTier(const TierSpec& tier, bool is_first, size_t num_windows) {
  if (absl::Status status = CheckTierName(tier.name); !status.ok()) return status;
  const bool none = tier.blocks.empty() && !is_first;
  if (!none && tier.blocks.size() != num_windows) {
    return InvalidArgument(absl::StrCat("tier '", tier.name, "' has ",
                                        Counted(tier.blocks.size(), "block count"), " for ",
                                        Counted(num_windows, "window")));
  }
  for (const uint32_t blocks : tier.blocks) {
    if (blocks <= kMaxBlocks && (blocks > 0 || !is_first)) continue;
    return InvalidArgument(absl::StrCat("a window of ", Counted(blocks, "block"), " in tier '",
                                        tier.name, "'; ", is_first ? "1" : "0", " to ", kMaxBlocks,
                                        " are possible"));
  }
  if (tier.min_priority.value() > kMaxPriority || tier.watermark_permille > 1000) {
    return InvalidArgument(absl::StrCat(
        "tier '", tier.name, "' has min_priority ", static_cast<int>(tier.min_priority.value()),
        " and a watermark of ", tier.watermark_permille, " thousandths; at most ",
        static_cast<int>(kMaxPriority), " and 1000 are possible"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTierName(std::string_view name) {
  bool good = !name.empty() && name.size() <= kMaxTierName;
  for (const char c : name) {
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_');
  }
  if (good) return absl::OkStatus();
  return InvalidArgument(absl::StrCat("'", absl::string_view(name.data(), name.size()),
                                      "' is not a tier name: use 1 to ", kMaxTierName,
                                      " letters, digits, '-' and '_'"));
}

absl::Status CheckTiers(absl::Span<const TierSpec> tiers, size_t num_windows) {
  if (tiers.empty() || tiers.size() > kMaxTiers) {
    return InvalidArgument(absl::StrCat(tiers.size(), " tiers; a cache has 1 to ", kMaxTiers));
  }
  for (size_t t = 0; t < tiers.size(); ++t) {
    if (absl::Status status = CheckTier(tiers[t], t == 0, num_windows); !status.ok()) {
      return status;
    }
    for (size_t other = 0; other < t; ++other) {
      if (tiers[other].name != tiers[t].name) continue;
      return InvalidArgument(absl::StrCat("two tiers are called '", tiers[t].name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace pagoda
