// The tiers of the caches that tests make.
#ifndef PAGODA_TESTS_MANAGER_HOST_TIERS_H_
#define PAGODA_TESTS_MANAGER_HOST_TIERS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "manager/words/tier_spec.h"

namespace pagoda {

// Tiers in host memory with their default names: one, and a second one unless `secondary` is empty.
// Blocks by window.
inline std::vector<TierSpec> HostTiers(std::vector<uint32_t> primary,
                                       std::vector<uint32_t> secondary = {}) {
  std::vector<TierSpec> tiers = {
      {.name = DefaultTierName(Tier::kPrimary), .blocks = std::move(primary)}};
  if (!secondary.empty()) {
    tiers.push_back({.name = DefaultTierName(Tier::kSecondary), .blocks = std::move(secondary)});
  }
  return tiers;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_HOST_TIERS_H_
