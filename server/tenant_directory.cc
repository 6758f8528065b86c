#include "server/tenant_directory.h"

#include "absl/strings/str_cat.h"
#include "pools/error.h"

namespace pagoda::server {

TenantDirectory::TenantDirectory(const std::vector<Config::Tenant>& tenants) {
  tenants_.push_back({.name = "", .shares = true});
  for (const Config::Tenant& tenant : tenants) {
    ids_.emplace(tenant.name, TenantId(static_cast<TenantId::rep>(tenants_.size())));
    tenants_.push_back(tenant);
  }
}

absl::StatusOr<TenantId> TenantDirectory::Find(const std::string& name) const {
  const auto found = ids_.find(name);
  if (found != ids_.end()) return found->second;
  return MakeError(Reason::kUnknownTenant, absl::StrCat("there is no tenant '", name, "'"));
}

absl::StatusOr<NamespaceKey> TenantDirectory::Confine(TenantId tenant,
                                                      const NamespaceKey& asked) const {
  NamespaceKey meant = asked;
  if (tenant == kCommons) return meant;
  const Config::Tenant& own = (*this)[tenant];
  if (!asked.tenant.empty() && asked.tenant != own.name) {
    return MakeError(Reason::kPermissionDenied, "the namespace is another tenant's");
  }
  meant.tenant = own.shares ? "" : own.name;
  return meant;
}

}  // namespace pagoda::server
