// Who shares the cache: tenants, what each may have, and what each has.
#ifndef PAGODA_MANAGER_TENANTS_H_
#define PAGODA_MANAGER_TENANTS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "events/block_hash.h"
#include "events/tenant_id.h"
#include "manager/big_array.h"
#include "manager/tenant_options.h"
#include "pools/types.h"

namespace pagoda {

// The tenants by id and name. Immutable.
class TenantTable {
 public:
  // `default_tenant_share`: the weight of what is nobody's. Errors: INVALID_ARGUMENT (a name that
  // is empty, too long or there twice; a share of 0; more than kMaxTenants).
  static absl::StatusOr<TenantTable> Create(std::vector<TenantOptions> tenants,
                                            uint32_t default_tenant_share);

  // Whether there are any; without, everything is the default tenant's.
  bool any() const { return tenants_.size() > 1; }
  // The default tenant and the tenants: ids are below this.
  uint16_t size() const { return static_cast<uint16_t>(tenants_.size()); }
  // kDefaultTenant has an empty name.
  const TenantOptions& operator[](TenantId id) const { return tenants_[id.value()]; }
  // Errors: UNKNOWN_TENANT.
  absl::StatusOr<TenantId> Find(std::string_view name) const;

  // Whose the blocks of a namespace are.
  TenantId OwnerOf(const NamespaceKey& name_space) const;
  // The namespace that a tenant means: its own, or the default tenant's where it shares. The
  // default tenant's own sessions, which are trusted, mean what they say. Errors: PERMISSION_DENIED
  // (another tenant's).
  absl::StatusOr<NamespaceKey> Confine(TenantId tenant, const NamespaceKey& asked) const;
  // Whom a sequence in the namespace is charged to, for a session of `tenant`: the namespace's
  // owner, and where that is the default tenant, the tenant; or whom `named` names. A session of
  // the commons may name any tenant, because it works for others, as the bundled engine does; any
  // other only its own. Errors: PERMISSION_DENIED (another tenant), UNKNOWN_TENANT,
  // INVALID_ARGUMENT (the namespace has another owner, and nobody else holds its blocks).
  absl::StatusOr<TenantId> Charged(TenantId tenant, const NamespaceKey& name_space,
                                   std::string_view named) const;
  // What the tenant's weight among all gives it of `whole`; all of it where there are no tenants.
  uint64_t ShareOf(TenantId tenant, uint64_t whole) const {
    return any() ? whole * (*this)[tenant].share / total_share_ : whole;
  }
  // Whether what is stored in the namespace is the tenant's own, for it to destroy. Of the default
  // tenant every block is somebody else's too, so only the default tenant's own sessions may.
  // Errors: PERMISSION_DENIED.
  absl::Status CheckOwn(TenantId tenant, const NamespaceKey& name_space) const;
  // Whether a tenant may see what is `owner`'s.
  bool MaySee(TenantId tenant, TenantId owner) const {
    return tenant == owner || tenant == kDefaultTenant ||
           (owner == kDefaultTenant && tenants_[tenant.value()].shares);
  }

 private:
  TenantTable() = default;

  std::vector<TenantOptions> tenants_;  // By id.
  uint64_t total_share_ = 0;            // The default tenant's among them.
  absl::flat_hash_map<std::string, TenantId> ids_;
};

// Who is charged for which block of a window, and what each tenant has. Costs nothing without
// tenants. Thread-compatible.
//
// A block that has a slot is charged to each tenant that holds it, once however often it holds it;
// where nobody holds it, to its owner. So what a tenant holds counts, whoever may share it and
// whether it is in the tree or left the tree meanwhile: only Hold, LetGo and CountCached change an
// account.
//
// Invariants
// 1. The owner of a block in the tree is its namespace's tenant. The owner of any other block is
// the tenant that took it. Where it left the tree while it was held, its owner is the tenant that
// alone held it then, or the default tenant where several did.
// 2. A tenant's own blocks are held by that tenant alone; the default tenant's by anybody.
// 3. held = blocks that the tenant holds. Its own count in the tier where they are, those of the
// commons in the primary tier: a match may bring them up at any time.
// 4. cached = blocks that the tenant owns and nobody holds, by tier.
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

  // REQUIRES: nobody holds the block, or it lies in the primary tier, where each holder is charged
  // for it whoever owns it.
  void SetOwner(BlockId id, TenantId tenant) {
    if (any()) owners_[id.value()] = tenant.value();
  }
  // The block left the tree while it was held (invariant 1). REQUIRES: it lies in the primary tier.
  void GiveToHolder(BlockId id) {
    if (!any()) return;
    const uint16_t holder = holders_[id.value()];
    SetOwner(id, holder == kSeveral ? kDefaultTenant : TenantId{holder});
  }
  // `tenant` holds the block, which lies in `tier`, once more. `holds`: how often it was held.
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
  // `tenant` holds it once less; it is still held `holds` times.
  void LetGo(BlockId id, Tier tier, TenantId tenant, uint32_t holds) {
    if (!any()) return;
    if (holders_[id.value()] == kSeveral) return LetGoBesideOthers(id, tier, tenant);
    PAGODA_CHECK(holders_[id.value()] == tenant.value(), "a block is let go by its holder");
    if (holds == 0) --At(ChargedTier(id, tier, tenant), tenant).held;
  }
  // Nobody holds the block any more, or somebody is about to again.
  void CountCached(BlockId id, Tier tier, int change) {
    if (any()) At(tier, owner(id)).cached += static_cast<uint32_t>(change);
  }
  // A block that is held lies in `to` from now on.
  void Move(BlockId id, Tier from, Tier to);

  // Whether the tenant holds the block, which is held `holds` times.
  bool Holds(BlockId id, TenantId tenant, uint32_t holds) const;
  // Whether the tenant can hold a block of the primary tier, held `holds` times, within its quota.
  bool MayHold(BlockId id, TenantId tenant, uint32_t holds) const {
    return !any() || owner(id) == tenant || !AtQuota(Tier::kPrimary, tenant) ||
           Holds(id, tenant, holds);
  }

  // Whether the tenant has as much as it may: one block more means one less.
  bool AtQuota(Tier tier, TenantId tenant) const {
    return any() && used(tier, tenant) >= QuotaOf(tier, tenant);
  }
  bool AboveQuota(Tier tier, TenantId tenant) const {
    return any() && used(tier, tenant) > QuotaOf(tier, tenant);
  }
  // Blocks that it may hold more, with its cached ones given up.
  uint32_t Left(Tier tier, TenantId tenant) const;
  uint32_t QuotaOf(Tier tier, TenantId tenant) const {
    return (*tenants_)[tenant].quota_blocks[static_cast<size_t>(tier)];
  }
  // Whether `a` is to give up a block before `b`.
  bool GivesBefore(Tier tier, TenantId a, TenantId b) const;

 private:
  struct Account {
    uint32_t held = 0;
    uint32_t cached = 0;
  };
  // How often a tenant holds a block that others hold, too.
  struct Part {
    TenantId tenant;
    uint32_t holds;
  };
  // Of a block that several tenants hold: see parts_.
  static constexpr uint16_t kSeveral = 0xFFFF;
  static_assert(kMaxTenants < kSeveral);

  Account& At(Tier tier, TenantId tenant) {
    return accounts_[static_cast<size_t>(tier)][tenant.value()];
  }
  const Account& At(Tier tier, TenantId tenant) const {
    return accounts_[static_cast<size_t>(tier)][tenant.value()];
  }
  Tier ChargedTier(BlockId id, Tier tier, TenantId tenant) const {
    return owner(id) == tenant ? tier : Tier::kPrimary;
  }
  void HoldBesideOthers(BlockId id, Tier tier, TenantId tenant, uint32_t holds);
  void LetGoBesideOthers(BlockId id, Tier tier, TenantId tenant);

  const TenantTable* const tenants_;
  const bool any_;
  BigArray<uint16_t> owners_;  // By id; none without tenants.
  // By id: the tenant that holds the block, or kSeveral; of a block that nobody holds, anything.
  BigArray<uint16_t> holders_;
  absl::flat_hash_map<BlockId, absl::InlinedVector<Part, 2>> parts_;
  std::array<std::vector<Account>, kMaxTiers> accounts_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TENANTS_H_
