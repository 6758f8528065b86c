#include "pools/types.h"

#include "absl/strings/str_cat.h"

namespace pagoda {

std::string WindowName(WindowSize window) {
  return window == kFullAttention ? "full" : absl::StrCat(window.value());
}

std::string DefaultTierName(Tier tier) {
  // Many caches have two tiers; these have names of their own.
  if (tier == kPrimaryTier) return "primary";
  return tier == Tier(1) ? "secondary" : absl::StrCat("tier", tier.value());
}

std::string_view MediumName(Medium medium) {
  switch (medium) {
    case Medium::kGpu:
      return "gpu";
    case Medium::kHost:
      return "host";
    case Medium::kDisk:
      return "disk";
  }
  return "unknown";
}

std::optional<Medium> MediumFromName(std::string_view name) {
  for (const Medium medium : kAllMedia) {
    if (name == MediumName(medium)) return medium;
  }
  return std::nullopt;
}

}  // namespace pagoda
