// The tenants that share the cache: their limits, and the blocks charged to each.
#ifndef PAGODA_MANAGER_ACCOUNTS_TENANTS_H_
#define PAGODA_MANAGER_ACCOUNTS_TENANTS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/big_array.h"
#include "base/check.h"
#include "events/block_hash.h"
#include "events/tenant_id.h"
#include "manager/words/tenant_options.h"
#include "pools/types.h"

namespace pagoda {

// The tenants by id and name. Immutable.
class TenantTable {
 public:
  // `default_tenant_share`: the weight of the default tenant. Errors: INVALID_ARGUMENT (a name that
  // is empty, too long or used twice; a share of 0; more than kMaxTenants).
  static absl::StatusOr<TenantTable> Create(std::vector<TenantOptions> tenants,
                                            uint32_t default_tenant_share);

  // Whether there are tenants besides the default one. If not, the default tenant owns everything.
  bool any() const { return tenants_.size() > 1; }
  // The number of tenants, with the default tenant. Ids are below this.
  uint16_t size() const { return static_cast<uint16_t>(tenants_.size()); }
  // kDefaultTenant has an empty name.
  const TenantOptions& operator[](TenantId id) const { return tenants_[id.value()]; }
  // Errors: UNKNOWN_TENANT.
  absl::StatusOr<TenantId> Find(std::string_view name) const;

  // The tenant that owns the blocks of a namespace.
  TenantId OwnerOf(const NamespaceKey& name_space) const;
  // The namespace in which the tenant's request runs: its own, or the default tenant's if the
  // tenant shares. Sessions of the default tenant are trusted: their namespace does not change.
  // Errors: PERMISSION_DENIED (another tenant's namespace).
  absl::StatusOr<NamespaceKey> Confine(TenantId tenant, const NamespaceKey& asked) const;
  // The tenant that a sequence in the namespace is charged to, for a session of `tenant`. Without
  // `named`: the namespace's owner, or `tenant` if that is the default tenant. With `named`: the
  // named tenant. A session of the default tenant may name any tenant, because it can work for
  // others, as the bundled engine does. Other sessions may name only their own. Errors:
  // PERMISSION_DENIED (another tenant), UNKNOWN_TENANT, INVALID_ARGUMENT (another tenant owns the
  // namespace; only that one can hold its blocks).
  absl::StatusOr<TenantId> Charged(TenantId tenant, const NamespaceKey& name_space,
                                   std::string_view named) const;
  // The tenant's part of `whole`, by its weight among all; all of it without tenants.
  uint64_t ShareOf(TenantId tenant, uint64_t whole) const {
    return any() ? whole * (*this)[tenant].share / total_share_ : whole;
  }
  // Whether the tenant may destroy content of the namespace: only if it owns the namespace. Tenants
  // share the default tenant's blocks, so only the default tenant's sessions may destroy them.
  // Errors: PERMISSION_DENIED.
  absl::Status CheckOwn(TenantId tenant, const NamespaceKey& name_space) const;
  // Whether a tenant may see content that `owner` owns.
  bool MaySee(TenantId tenant, TenantId owner) const {
    return tenant == owner || tenant == kDefaultTenant ||
           (owner == kDefaultTenant && tenants_[tenant.value()].shares);
  }

 private:
  TenantTable() = default;

  std::vector<TenantOptions> tenants_;  // By id.
  uint64_t total_share_ = 0;            // The default tenant's included.
  absl::flat_hash_map<std::string, TenantId> ids_;
};

// Which tenants are charged for which blocks of a window, and each tenant's totals. Costs nothing
// without tenants. Thread-compatible.
//
// A block that has a slot is charged once to each tenant that holds it. A block that nothing holds
// is charged to its owner. It makes no difference who else shares the block, or whether it is in
// the tree. Only Hold, EndHold, CountCached and Move change an account.
//
// Invariants
// 1. The owner of a block in the tree is its namespace's tenant. The owner of any other block is
// the tenant that took it. If a block leaves the tree while it is held, its owner is its only
// holder, or the default tenant if several tenants hold it.
// 2. Only the owner holds a tenant's own blocks. Any tenant can hold the default tenant's.
// 3. held = blocks that the tenant holds. Its own blocks count in the tier in which they lie. The
// default tenant's blocks count in the primary tier, because a match can onboard them at any time.
// 4. cached = blocks that the tenant owns and nothing holds, by tier.
// 5. used = held + cached <= quota.
class TenantAccounts {
 public:
  // `tenants` outlives the accounts.
  TenantAccounts(const TenantTable* tenants, uint32_t num_ids);

  bool any() const { return any_; }
  TenantId owner(BlockId id) const {
    return any() ? TenantId{owners_[id.value()]} : kDefaultTenant;
  }
  uint32_t held(Tier tier, TenantId tenant) const { return At(tier, tenant).held; }
  uint32_t cached(Tier tier, TenantId tenant) const { return At(tier, tenant).cached; }
  uint32_t used(Tier tier, TenantId tenant) const {
    return held(tier, tenant) + cached(tier, tenant);
  }

  // REQUIRES: nothing holds the block, or it lies in the primary tier, where each holder is charged
  // whoever owns the block.
  void SetOwner(BlockId id, TenantId tenant) {
    if (any()) owners_[id.value()] = tenant.value();
  }
  // The block left the tree while it was held (invariant 1). REQUIRES: it lies in the primary tier.
  void GiveToHolder(BlockId id) {
    if (!any()) return;
    const uint16_t holder = holders_[id.value()];
    SetOwner(id, holder == kSeveral ? kDefaultTenant : TenantId{holder});
  }
  // `tenant` adds a hold of the block, which lies in `tier`. `holds`: the number of holds before.
  void Hold(BlockId id, Tier tier, TenantId tenant, uint32_t holds) {
    if (!any()) return;
    uint16_t& holder = holders_[id.value()];
    if (holds != 0) {
      if (holder != tenant.value()) HoldBesideOthers(id, tier, tenant, holds);
      return;
    }
    holder = tenant.value();
    ++At(ChargedTier(id, tier, tenant), tenant).held;
  }
  // `tenant` gives up a hold of the block. `holds`: the number of holds that are left.
  void EndHold(BlockId id, Tier tier, TenantId tenant, uint32_t holds) {
    if (!any()) return;
    if (holders_[id.value()] == kSeveral) return EndHoldBesideOthers(id, tier, tenant);
    PAGODA_CHECK(holders_[id.value()] == tenant.value(), "a block is let go by its holder");
    if (holds == 0) --At(ChargedTier(id, tier, tenant), tenant).held;
  }
  // +1: nothing holds the block any more. -1: it is about to be held again.
  void CountCached(BlockId id, Tier tier, int change) {
    if (any()) At(tier, owner(id)).cached += static_cast<uint32_t>(change);
  }
  // A held block moves from one tier to another.
  void Move(BlockId id, Tier from, Tier to);

  // Whether the tenant holds the block, which has `holds` holds.
  bool Holds(BlockId id, TenantId tenant, uint32_t holds) const;
  // Whether the tenant can hold a primary block that has `holds` holds, within its quota.
  bool MayHold(BlockId id, TenantId tenant, uint32_t holds) const {
    return !any() || owner(id) == tenant || !AtQuota(kPrimaryTier, tenant) ||
           Holds(id, tenant, holds);
  }

  // Whether the tenant has used its quota: for one more block it has to give one up.
  bool AtQuota(Tier tier, TenantId tenant) const {
    return any() && used(tier, tenant) >= QuotaOf(tier, tenant);
  }
  bool AboveQuota(Tier tier, TenantId tenant) const {
    return any() && used(tier, tenant) > QuotaOf(tier, tenant);
  }
  // Blocks that the tenant may hold in addition if it gives up its cached ones.
  uint32_t Left(Tier tier, TenantId tenant) const;
  uint32_t QuotaOf(Tier tier, TenantId tenant) const {
    return (*tenants_)[tenant].quota_blocks[tier.value()];
  }
  // Whether `a` gives up a block before `b` does: it has more blocks for its share.
  bool GivesBefore(Tier tier, TenantId a, TenantId b) const;

 private:
  struct Account {
    uint32_t held = 0;
    uint32_t cached = 0;
  };
  // A tenant's holds of a block that other tenants hold too.
  struct Part {
    TenantId tenant;
    uint32_t holds;
  };
  // Marks a block that several tenants hold: see parts_.
  static constexpr uint16_t kSeveral = 0xFFFF;
  static_assert(kMaxTenants < kSeveral);

  Account& At(Tier tier, TenantId tenant) { return accounts_[tier.value()][tenant.value()]; }
  const Account& At(Tier tier, TenantId tenant) const {
    return accounts_[tier.value()][tenant.value()];
  }
  Tier ChargedTier(BlockId id, Tier tier, TenantId tenant) const {
    return owner(id) == tenant ? tier : kPrimaryTier;
  }
  void HoldBesideOthers(BlockId id, Tier tier, TenantId tenant, uint32_t holds);
  void EndHoldBesideOthers(BlockId id, Tier tier, TenantId tenant);

  const TenantTable* const tenants_;
  const bool any_;
  BigArray<uint16_t> owners_;  // By id. Empty without tenants.
  // By id: the tenant that holds the block, or kSeveral. Any value if nothing holds it.
  BigArray<uint16_t> holders_;
  absl::flat_hash_map<BlockId, absl::InlinedVector<Part, 2>> parts_;
  std::array<std::vector<Account>, kMaxTiers> accounts_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_ACCOUNTS_TENANTS_H_
