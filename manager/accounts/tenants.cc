#include "manager/accounts/tenants.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

absl::StatusOr<TenantTable> TenantTable::Create(std::vector<TenantOptions> tenants,
                                                uint32_t default_tenant_share) {
  if (tenants.size() > kMaxTenants) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(tenants.size(), " tenants; at most ",
                                                            kMaxTenants, " are possible"));
  }
  TenantTable table;
  table.tenants_.push_back({.name = "", .shares = true, .share = default_tenant_share});
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
                       absl::StrCat("tenant '", tenant.name, "' is named twice"));
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
  if (!any() || name_space.tenant.empty()) return kDefaultTenant;
  const auto it = ids_.find(name_space.tenant);
  return it == ids_.end() ? kDefaultTenant : it->second;
}

absl::StatusOr<NamespaceKey> TenantTable::Confine(TenantId tenant,
                                                  const NamespaceKey& asked) const {
  NamespaceKey meant = asked;
  if (tenant == kDefaultTenant) return meant;
  const TenantOptions& options = (*this)[tenant];
  if (!asked.tenant.empty() && asked.tenant != options.name) {
    return MakeError(Reason::kPermissionDenied, "the namespace is another tenant's");
  }
  meant.tenant = options.shares ? "" : options.name;
  return meant;
}

absl::StatusOr<TenantId> TenantTable::Charged(TenantId tenant, const NamespaceKey& name_space,
                                              std::string_view named) const {
  const TenantId owner = OwnerOf(name_space);
  if (named.empty()) return owner == kDefaultTenant ? tenant : owner;
  if (tenant != kDefaultTenant && named != (*this)[tenant].name) {
    return MakeError(Reason::kPermissionDenied,
                     "only an operator may have a sequence charged to another tenant");
  }
  const absl::StatusOr<TenantId> charged = Find(named);
  if (!charged.ok() || owner == kDefaultTenant || owner == *charged) return charged;
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("a sequence in the namespace of the tenant '", (*this)[owner].name,
                                "' cannot be charged to '", (*this)[*charged].name, "'"));
}

absl::Status TenantTable::CheckOwn(TenantId tenant, const NamespaceKey& name_space) const {
  if (tenant == kDefaultTenant || OwnerOf(name_space) == tenant) return absl::OkStatus();
  return MakeError(Reason::kPermissionDenied,
                   "the prefix is shared with other tenants; only an operator may do that");
}

TenantAccounts::TenantAccounts(const TenantTable* tenants, uint32_t num_ids)
    : tenants_(tenants), any_(tenants->any()) {
  if (!any_) return;
  owners_ = BigArray<uint16_t>(num_ids);
  holders_ = BigArray<uint16_t>(num_ids);
  for (auto& accounts : accounts_) accounts.resize(tenants->size());
}

// Called if the block's only holder is another tenant, or if it has several holders.
void TenantAccounts::HoldBesideOthers(BlockId id, Tier tier, TenantId tenant, uint32_t holds) {
  uint16_t& holder = holders_[id.value()];
  auto& parts = parts_[id];
  if (holder != kSeveral) {
    parts.push_back({.tenant = TenantId{holder}, .holds = holds});
    holder = kSeveral;
  }
  for (Part& part : parts) {
    if (part.tenant != tenant) continue;
    ++part.holds;
    return;
  }
  parts.push_back({.tenant = tenant, .holds = 1});
  ++At(ChargedTier(id, tier, tenant), tenant).held;
}

void TenantAccounts::EndHoldBesideOthers(BlockId id, Tier tier, TenantId tenant) {
  const auto found = parts_.find(id);
  PAGODA_CHECK(found != parts_.end(), "a block that several tenants hold has its parts");
  auto& parts = found->second;
  const auto part =
      std::find_if(parts.begin(), parts.end(), [=](const Part& of) { return of.tenant == tenant; });
  PAGODA_CHECK(part != parts.end(), "a block is let go by one of its holders");
  if (--part->holds != 0) return;
  --At(ChargedTier(id, tier, tenant), tenant).held;
  parts.erase(part);
  if (parts.size() > 1) return;
  holders_[id.value()] = parts.front().tenant.value();
  parts_.erase(found);
}

void TenantAccounts::Move(BlockId id, Tier from, Tier to) {
  if (!any() || !Holds(id, owner(id), 1)) return;
  --At(from, owner(id)).held;
  ++At(to, owner(id)).held;
}

bool TenantAccounts::Holds(BlockId id, TenantId tenant, uint32_t holds) const {
  if (!any() || holds == 0) return false;
  const uint16_t holder = holders_[id.value()];
  if (holder != kSeveral) return holder == tenant.value();
  const auto& parts = parts_.at(id);
  return std::any_of(parts.begin(), parts.end(),
                     [=](const Part& part) { return part.tenant == tenant; });
}

uint32_t TenantAccounts::Left(Tier tier, TenantId tenant) const {
  if (!any()) return kNoQuota;
  const uint32_t quota = QuotaOf(tier, tenant);
  return quota - std::min(quota, held(tier, tenant));
}

bool TenantAccounts::GivesBefore(Tier tier, TenantId a, TenantId b) const {
  return uint64_t{used(tier, a)} * (*tenants_)[b].share >
         uint64_t{used(tier, b)} * (*tenants_)[a].share;
}

}  // namespace pagoda
