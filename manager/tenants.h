// Who shares the cache: tenants, what each may have, and what each has.
#ifndef PAGODA_MANAGER_TENANTS_H_
#define PAGODA_MANAGER_TENANTS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "events/block_hash.h"
#include "events/tenant_id.h"
#include "manager/big_array.h"
#include "pools/types.h"

namespace pagoda {

inline constexpr uint32_t kNoQuota = 0xFFFF'FFFF;
// What the commons are called beside tenants. No tenant may be called so.
inline constexpr char kCommonsLabel[] = "(the commons)";
// Room is made in time proportional to the tenants.
inline constexpr size_t kMaxTenants = 256;

struct TenantOptions {
  std::string name;  // 1 to kMaxTenantBytes bytes.
  // What it publishes is the commons', and it matches what is there; else it has a namespace of
  // its own, which nobody else sees.
  bool shares = false;
  // Its weight where blocks are scarce: of those who have cached blocks, the one with the most
  // blocks for its weight gives one up.
  uint32_t share = 1;
  // The most blocks it may have in each window, by tier: held or cached, the commons' not counted.
  std::array<uint32_t, kNumTiers> quota_blocks = {kNoQuota, kNoQuota};
  // The highest priority that its requests to the bundled engine may have: the daemon's doors look.
  int32_t max_priority = 0;
};

// The tenants by id and name. Immutable.
class TenantTable {
 public:
  // `commons_share`: the weight of what is nobody's. Errors: INVALID_ARGUMENT (a name that is
  // empty, too long or there twice; a share of 0; more than kMaxTenants).
  static absl::StatusOr<TenantTable> Create(std::vector<TenantOptions> tenants,
                                            uint32_t commons_share);

  // Whether there are any; without, everything is the commons'.
  bool any() const { return tenants_.size() > 1; }
  // The commons and the tenants: ids are below this.
  uint16_t size() const { return static_cast<uint16_t>(tenants_.size()); }
  // kCommons has an empty name.
  const TenantOptions& operator[](TenantId id) const { return tenants_[id.value()]; }
  // Errors: UNKNOWN_TENANT.
  absl::StatusOr<TenantId> Find(std::string_view name) const;

  // Whose the blocks of a namespace are.
  TenantId OwnerOf(const NamespaceKey& name_space) const;
  // The namespace that a tenant means: its own, or the commons' where it shares. The commons' own
  // sessions, which are trusted, mean what they say. Errors: PERMISSION_DENIED (another tenant's).
  absl::StatusOr<NamespaceKey> Confine(TenantId tenant, const NamespaceKey& asked) const;
  // What the tenant's weight among all gives it of `whole`; all of it where there are no tenants.
  uint64_t ShareOf(TenantId tenant, uint64_t whole) const {
    return any() ? whole * (*this)[tenant].share / total_share_ : whole;
  }
  // Whether what is stored in the namespace is the tenant's own, for it to destroy. Of the commons
  // every block is somebody else's too, so only the commons' own sessions may. Errors:
  // PERMISSION_DENIED.
  absl::Status CheckOwn(TenantId tenant, const NamespaceKey& name_space) const;
  // Whether a tenant may see what is `owner`'s.
  bool MaySee(TenantId tenant, TenantId owner) const {
    return tenant == owner || tenant == kCommons ||
           (owner == kCommons && tenants_[tenant.value()].shares);
  }

 private:
  TenantTable() = default;

  std::vector<TenantOptions> tenants_;  // By id.
  uint64_t total_share_ = 0;            // The commons' among them.
  absl::flat_hash_map<std::string, TenantId> ids_;
};

// Whose each block of a window is, and how many each tenant has. Costs nothing without tenants.
// Thread-compatible.
//
// Invariants, by tier and tenant: used = blocks of the tenant that own a slot; unheld = those of
// them that nobody holds.
class TenantAccounts {
 public:
  // `tenants` outlives the accounts.
  TenantAccounts(const TenantTable* tenants, uint32_t num_ids);

  bool any() const { return any_; }
  TenantId owner(BlockId id) const { return any() ? TenantId{owners_[id.value()]} : kCommons; }
  uint32_t used(Tier tier, TenantId tenant) const { return At(tier, tenant).used; }
  uint32_t unheld(Tier tier, TenantId tenant) const { return At(tier, tenant).unheld; }

  // A block got a slot: it is `tenant`'s, or its owner's as before.
  void Charge(BlockId id, Tier tier, TenantId tenant) {
    if (!any()) return;
    owners_[id.value()] = tenant.value();
    ++At(tier, tenant).used;
  }
  void Charge(BlockId id, Tier tier) { Charge(id, tier, owner(id)); }
  // A block without a slot is `tenant`'s.
  void SetOwner(BlockId id, TenantId tenant) {
    if (any()) owners_[id.value()] = tenant.value();
  }
  // It has no slot in the tier any more.
  void Discharge(BlockId id, Tier tier) {
    if (any()) --At(tier, owner(id)).used;
  }
  // Nobody holds the block any more, or somebody does again.
  void CountUnheld(BlockId id, Tier tier, int change) {
    if (any()) At(tier, owner(id)).unheld += static_cast<uint32_t>(change);
  }

  // Whether the tenant has as much as it may: one block more means one less.
  bool AtQuota(Tier tier, TenantId tenant) const {
    return any() && used(tier, tenant) >= QuotaOf(tier, tenant);
  }
  // Blocks that it may hold more, with its unheld ones given up.
  uint32_t Left(Tier tier, TenantId tenant) const;
  uint32_t QuotaOf(Tier tier, TenantId tenant) const {
    return (*tenants_)[tenant].quota_blocks[static_cast<size_t>(tier)];
  }
  // Whether `a` is to give up a block before `b`.
  bool GivesBefore(Tier tier, TenantId a, TenantId b) const;

 private:
  struct Account {
    uint32_t used = 0;
    uint32_t unheld = 0;
  };
  Account& At(Tier tier, TenantId tenant) {
    return accounts_[static_cast<size_t>(tier)][tenant.value()];
  }
  const Account& At(Tier tier, TenantId tenant) const {
    return accounts_[static_cast<size_t>(tier)][tenant.value()];
  }

  const TenantTable* const tenants_;
  const bool any_;
  BigArray<uint16_t> owners_;  // By id; none without tenants.
  std::array<std::vector<Account>, kNumTiers> accounts_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TENANTS_H_
