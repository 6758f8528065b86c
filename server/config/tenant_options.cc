#include "server/config/tenant_options.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace pagoda::server {
namespace {

template <class Number>
Number OrNone(Number most) {
  return most == 0 ? std::numeric_limits<Number>::max() : most;
}
static_assert(kNoQuota == std::numeric_limits<uint32_t>::max());

}  // namespace

std::vector<TenantOptions> TenantsOf(const Config& config) {
  const std::vector<Config::Cache::TierConfig> tiers = config.cache.AllTiers();
  std::vector<TenantOptions> tenants;
  for (const Config::Tenant& tenant : config.tenants) {
    const Config::Quota& quota = tenant.quota;
    tenants.push_back({.name = tenant.name,
                       .shares = tenant.shares,
                       .share = quota.share,
                       .max_sequences = OrNone(quota.max_sequences),
                       .max_sequence_bytes = OrNone(quota.max_sequence_bytes),
                       .max_priority = static_cast<int32_t>(tenant.max_priority)});
    // Tiers that the configuration does not name have no quota.
    std::array<uint32_t, kMaxTiers>& most = tenants.back().quota_blocks;
    most[0] = OrNone(quota.primary_blocks);
    for (size_t t = 0; t < std::min(tiers.size(), most.size()); ++t) {
      for (const Config::Quota::OfTier& of_tier : quota.tiers) {
        if (of_tier.tier == tiers[t].name) most[t] = OrNone(of_tier.blocks);
      }
    }
  }
  return tenants;
}

}  // namespace pagoda::server
