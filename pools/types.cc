#include "pools/types.h"

#include "absl/strings/str_cat.h"

namespace pagoda {

std::string WindowName(WindowSize window) {
  return window == kFullAttention ? "full" : absl::StrCat(window.value());
}

std::string_view TierName(Tier tier) {
  switch (tier) {
    case Tier::kPrimary:
      return "primary";
    case Tier::kSecondary:
      return "secondary";
  }
  return "unknown";
}

}  // namespace pagoda
