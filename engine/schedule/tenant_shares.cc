#include "engine/schedule/tenant_shares.h"

#include <algorithm>
#include <limits>

namespace pagoda {
namespace {

constexpr size_t kMaxKeptTenants = 4096;

}  // namespace

void TenantShares::Enter(const std::string& tenant) {
  const uint64_t least = LeastService();
  ++requests_;
  Tenant& entered = tenants_[tenant];
  if (entered.requests++ == 0) entered.service = std::max(entered.service, least);
}

void TenantShares::Leave(const std::string& tenant) {
  --tenants_.at(tenant).requests;
  --requests_;
  // Without requests no tenant is owed any service.
  if (requests_ == 0) tenants_.clear();
  if (tenants_.size() <= kMaxKeptTenants) return;
  std::erase_if(tenants_, [](const auto& entry) { return entry.second.requests == 0; });
}

void TenantShares::Charge(const std::string& tenant, uint64_t cost) {
  tenants_.at(tenant).service += cost;
}

uint64_t TenantShares::LeastService() const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.requests > 0) least = std::min(least, tenant.service);
  }
  return least == std::numeric_limits<uint64_t>::max() ? 0 : least;
}

}  // namespace pagoda
