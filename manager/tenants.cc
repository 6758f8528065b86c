#include "manager/tenants.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "manager/fault.h"
#include "pools/error.h"

namespace pagoda {

absl::StatusOr<TenantTable> TenantTable::Create(std::vector<TenantOptions> tenants,
                                                uint32_t commons_share) {
  if (tenants.size() > kMaxTenants) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(tenants.size(), " tenants; at most ",
                                                            kMaxTenants, " are served"));
  }
  TenantTable table;
  table.tenants_.push_back({.name = "", .shares = true, .share = commons_share});
  for (TenantOptions& tenant : tenants) table.tenants_.push_back(std::move(tenant));
  for (uint16_t id = 0; id < table.size(); ++id) {
    const TenantOptions& tenant = table.tenants_[id];
    if (tenant.share == 0) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("tenant '", tenant.name, "' has a share of 0"));
    }
    table.total_share_ += tenant.share;
    if (id == 0) continue;
    if (tenant.name.empty() || tenant.name.size() > kMaxTenantBytes) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("a tenant's name of ", tenant.name.size(), " bytes; 1 to ",
                                    kMaxTenantBytes, " are allowed"));
    }
    if (!table.ids_.emplace(tenant.name, TenantId{id}).second) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("tenant '", tenant.name, "' is there twice"));
    }
  }
  return table;
}

absl::StatusOr<TenantId> TenantTable::Find(std::string_view name) const {
  const auto it = ids_.find(absl::string_view(name.data(), name.size()));
  if (it != ids_.end()) return it->second;
  return MakeError(Reason::kUnknownTenant,
                   absl::StrCat("there is no tenant '", std::string(name), "'"));
}

TenantId TenantTable::OwnerOf(const NamespaceKey& name_space) const {
  if (!any() || name_space.tenant.empty()) return kCommons;
  const auto it = ids_.find(name_space.tenant);
  return it == ids_.end() ? kCommons : it->second;
}

absl::StatusOr<NamespaceKey> TenantTable::Confine(TenantId tenant,
                                                  const NamespaceKey& asked) const {
  NamespaceKey meant = asked;
  if (tenant == kCommons) return meant;
  const TenantOptions& options = (*this)[tenant];
  if (!asked.tenant.empty() && asked.tenant != options.name) {
    return MakeError(Reason::kPermissionDenied, "the namespace is another tenant's");
  }
  meant.tenant = options.shares ? "" : options.name;
  return meant;
}

absl::Status TenantTable::CheckOwn(TenantId tenant, const NamespaceKey& name_space) const {
  if (tenant == kCommons || OwnerOf(name_space) == tenant) return absl::OkStatus();
  return MakeError(Reason::kPermissionDenied,
                   "the prefix is shared with other tenants; only an operator may forget it");
}

TenantAccounts::TenantAccounts(const TenantTable* tenants, uint32_t num_ids)
    : tenants_(tenants), any_(tenants->any()) {
  if (!any_) return;
  owners_ = BigArray<uint16_t>(num_ids);
  for (auto& accounts : accounts_) accounts.resize(tenants->size());
}

uint32_t TenantAccounts::Left(Tier tier, TenantId tenant) const {
  if (!any()) return kNoQuota;
  const Account& account = At(tier, tenant);
  const uint32_t held = account.used - account.unheld;
  const uint32_t quota = PAGODA_FAULT(QuotaIgnored) ? kNoQuota : QuotaOf(tier, tenant);
  return quota > held ? quota - held : 0;
}

bool TenantAccounts::GivesBefore(Tier tier, TenantId a, TenantId b) const {
  return uint64_t{used(tier, a)} * (*tenants_)[b].share >
         uint64_t{used(tier, b)} * (*tenants_)[a].share;
}

}  // namespace pagoda
