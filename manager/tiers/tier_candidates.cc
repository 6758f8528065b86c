#include "manager/tiers/tier_candidates.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pagoda {

TierCandidates::TierCandidates(const ResidencyContext& context, TierPolicies policies,
                               const TierSlots* slots, const TierCounts* counts,
                               const FileSlots* file_slots)
    : sliding_(context.options.sliding()),
      num_tenants_(context.options.tenants->size()),
      store_(context.store),
      tree_(context.tree),
      slots_(*slots),
      counts_(*counts),
      accounts_(counts->accounts()),
      file_slots_(*file_slots) {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    TierPolicy& tier = tiers_[t];
    tier.policies = std::move(policies[t]);
    if (!tier.policies.empty()) tier.default_tenant_policy = tier.policies.front().get();
    for (const auto& policy : tier.policies) {
      tier.follows_contents = tier.follows_contents || policy->follows_contents();
    }
  }
  if (!slots_.has_disk()) return;
  children_on_disk_ = BigArray<uint32_t>(store_.num_ids());
  listed_on_disk_.resize(slots_.num_slots(slots_.disk()));
}

bool TierCandidates::IsCandidate(BlockId id) const {
  if (sliding_) return true;
  return !tree_.has_near_children(id, store_[id].tier());
}

void TierCandidates::ChildLeft(OperationScope& op, NodeRef parent, Tier tier) {
  if (sliding_ || parent.is_root()) return;
  const BlockId above = parent.block();
  const Block& block = store_[above];
  if (block.refs == 0 && block.tier() == tier && !slots_.IsOnDisk(tier) && IsCandidate(above)) {
    policy(tier, above).Unparked(Facts(op, above));
  }
}

BlockId TierCandidates::Victim(Tier tier, TenantId tenant) const {
  if (!accounts_.any()) return Victim(tier);
  const auto& policies = At(tier).policies;
  if (accounts_.AtQuota(tier, tenant)) return OwnerOfVictim(tier, *policies[tenant.value()]);
  SlotIndex victim = kNoSlot;
  TenantId gives;
  const auto num_tenants = static_cast<uint16_t>(policies.size());
  for (uint16_t i = 0; i < num_tenants; ++i) {
    // The accounts are checked first: they lie side by side, and few tenants pass.
    if (victim != kNoSlot && !accounts_.GivesBefore(tier, TenantId{i}, gives)) continue;
    const SlotIndex own = policies[i]->Victim();
    if (own == kNoSlot) continue;
    victim = own;
    gives = TenantId{i};
  }
  return victim == kNoSlot ? kNoBlock : slots_.OwnerOf({tier, victim});
}

// --- Copies on disk ---

bool TierCandidates::IsDiskCandidate(BlockId id, SlotIndex slot) const {
  const Block& block = store_[id];
  if (slots_.IsOnDisk(block.tier()) && block.refs != 0) return false;
  return !file_slots_.IsInUse(slot) && !HasChildrenOnDisk(id);
}

void TierCandidates::ListOnDisk(OperationScope& op, BlockId id, DiskListing why) {
  const SlotIndex slot = slots_.CopyOnDisk(id);
  if (slot == kNoSlot || listed_on_disk_[slot.value()]) return;
  if (!IsDiskCandidate(id, slot)) return UnlistOnDisk(op, id);
  listed_on_disk_[slot.value()] = true;
  if (!slots_.IsOnDisk(store_[id].tier())) NotifyInheritedOnDisk(op, id, slot, store_.slot(id));
  EvictionPolicy& policy_on_disk = policy(slots_.disk(), id);
  const BlockFacts facts = FactsIn(op, id, slot);
  why == DiskListing::kUnparked ? policy_on_disk.Unparked(facts) : policy_on_disk.Released(facts);
}

void TierCandidates::UnlistOnDisk(OperationScope& op, BlockId id) {
  const SlotIndex slot = slots_.CopyOnDisk(id);
  if (slot == kNoSlot || !listed_on_disk_[slot.value()]) return;
  listed_on_disk_[slot.value()] = false;
  policy(slots_.disk(), id).Withdrawn(FactsIn(op, id, slot));
}

void TierCandidates::CountChildOnDisk(OperationScope& op, BlockId child, int change,
                                      DiskListing why) {
  const NodeRef parent = tree_.parent(child);
  if (parent.is_root()) return;
  const BlockId above = parent.block();
  children_on_disk_[above.value()] += static_cast<uint32_t>(change);
  if (HasChildrenOnDisk(above)) {
    UnlistOnDisk(op, above);
  } else {
    ListOnDisk(op, above, why);
  }
}

// --- For tests ---

void TierCandidates::CheckInvariants() const {
  std::array<uint32_t, kMaxTiers> candidates = {};
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const Block& block = store_[BlockId{i}];
    if (block.state() != BlockState::kCached || block.refs != 0) continue;
    if (IsCandidate(BlockId{i})) ++candidates[block.tier().value()];
  }
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const Tier tier(t);
    if (accounts_.any()) CheckVictimsOfTenants(tier);
    if (tiers_[t].policies.empty() || slots_.IsOnDisk(tier)) continue;
    const BlockId victim = Victim(tier, kDefaultTenant);
    PAGODA_CHECK((candidates[t] == 0) == (victim == kNoBlock),
                 "rule 13: blocks that nothing holds can be evicted");
    PAGODA_CHECK((counts_.evictable(tier) == 0) == (candidates[t] == 0),
                 "rule 13: leaves first, but all");
    if (victim == kNoBlock) continue;
    const Block& block = store_[victim];
    PAGODA_CHECK(block.state() == BlockState::kCached && block.refs == 0 && block.tier() == tier &&
                     IsCandidate(victim),
                 "rule 13: a victim is a candidate");
  }
}

void TierCandidates::CheckVictimsOfTenants(Tier tier) const {
  const auto& policies = At(tier).policies;
  for (uint16_t i = 0; i < num_tenants_; ++i) {
    const TenantId tenant{i};
    const BlockId victim = policies.empty() ? kNoBlock : OwnerOfVictim(tier, *policies[i]);
    PAGODA_CHECK(
        slots_.IsOnDisk(tier) || (victim == kNoBlock) == (accounts_.cached(tier, tenant) == 0),
        "a tenant's blocks that nothing holds can be evicted");
    PAGODA_CHECK(victim == kNoBlock || accounts_.owner(victim) == tenant,
                 "a tenant owns its victim");
  }
}

void TierCandidates::CheckDisk(const std::vector<uint32_t>& children) const {
  ptrdiff_t listed = 0;
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    PAGODA_CHECK(children_on_disk_[i] == children[i],
                 "rule 13: the children that have a copy on disk are counted");
    const SlotIndex slot = slots_.CopyOnDisk(id);
    if (slot == kNoSlot) continue;
    PAGODA_CHECK(listed_on_disk_[slot.value()] == IsDiskCandidate(id, slot),
                 "rule 13: a candidate of the disk has no child there");
    if (listed_on_disk_[slot.value()]) ++listed;
  }
  PAGODA_CHECK(listed == std::count(listed_on_disk_.begin(), listed_on_disk_.end(), true),
               "only copies are listed");
}

}  // namespace pagoda
