#include "server/tenant_options.h"

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
  std::vector<TenantOptions> tenants;
  for (const Config::Tenant& tenant : config.tenants) {
    const Config::Quota& quota = tenant.quota;
    tenants.push_back(
        {.name = tenant.name,
         .shares = tenant.shares,
         .share = quota.share,
         .quota_blocks = {OrNone(quota.primary_blocks), OrNone(quota.secondary_blocks)},
         .max_sequences = OrNone(quota.max_sequences),
         .max_sequence_bytes = OrNone(quota.max_sequence_bytes),
         .max_priority = static_cast<int32_t>(tenant.max_priority)});
  }
  return tenants;
}

}  // namespace pagoda::server
