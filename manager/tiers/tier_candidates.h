// The candidates for eviction in each tier of one window, and the policies that choose among them.
#ifndef PAGODA_MANAGER_TIERS_TIER_CANDIDATES_H_
#define PAGODA_MANAGER_TIERS_TIER_CANDIDATES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/big_array.h"
#include "events/event.h"
#include "manager/accounts/tenants.h"
#include "manager/policy/eviction_policy.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/file_slots.h"
#include "manager/tiers/residency_context.h"
#include "manager/tiers/tier_counts.h"
#include "manager/tiers/tier_slots.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "manager/words/block_facts.h"
#include "pools/types.h"

namespace pagoda {

// A part of TierResidency. It alone calls the eviction policies. Thread-compatible.
//
// Invariants
// 1. The policies of a tier in memory have as candidates the cached blocks there that nothing holds
// and that have no children in the way (IsCandidate).
// 2. The disk's policies have as candidates the copies there whose blocks have no child with a copy
// on disk or a backup under way (IsDiskCandidate). Nearer copies of the block do not matter. So the
// disk gives up no copy through which a restart reaches another.
// 3. A block is a candidate of its owner's policy.
class TierCandidates {
 public:
  // The parts outlive the candidates. `policies`: over the slots of each tier
  // (ResidencyOptions::TierOptions::num_slots).
  TierCandidates(const ResidencyContext& context, TierPolicies policies, const TierSlots* slots,
                 const TierCounts* counts, const FileSlots* file_slots);

  // Whether a cached block that nothing holds can be evicted (rule 13).
  bool IsCandidate(BlockId id) const;
  // List makes the block a candidate at its nearest copy, if nothing holds it and it qualifies.
  // Unlist ends that. The block's slot is the copy's current slot.
  void List(OperationScope& op, BlockId id) {
    if (slots_.IsOnDisk(store_[id].tier())) return ListOnDisk(op, id);
    if (IsCandidate(id)) policy(store_[id].tier(), id).Released(Facts(op, id));
  }
  void Unlist(OperationScope& op, BlockId id) {
    if (slots_.IsOnDisk(store_[id].tier())) return UnlistOnDisk(op, id);
    if (IsCandidate(id)) policy(store_[id].tier(), id).Withdrawn(Facts(op, id));
  }
  // A child of `parent` left `tier`: the parent can now be a candidate.
  void ChildLeft(OperationScope& op, NodeRef parent, Tier tier);
  // See EvictionPolicy::Passed. REQUIRES: the block is evictable.
  void Passed(OperationScope& op, BlockId id) {
    const Tier tier = store_[id].tier();
    if (!slots_.IsOnDisk(tier)) policy(tier, id).Passed(Facts(op, id));
  }

  // --- Which block is evicted next ---

  // The block that gives up its slot for a block of `tenant`. At its quota the tenant gives up a
  // block of its own. Otherwise the tenant with the most blocks for its share does. kNoBlock if
  // there is no candidate.
  BlockId Victim(Tier tier, TenantId tenant) const;
  // The victim in a cache without tenants; kNoBlock if there is no candidate.
  BlockId Victim(Tier tier) const { return OwnerOfVictim(tier, *At(tier).default_tenant_policy); }
  // See EvictionPolicy::Evicted. Returns the next Victim(tier). REQUIRES: a cache without tenants.
  BlockId Evicted(Tier tier, const BlockFacts& victim, const BlockFacts* unparked) {
    const SlotIndex next = At(tier).default_tenant_policy->Evicted(victim, unparked);
    return next == kNoSlot ? kNoBlock : slots_.OwnerOf({tier, next});
  }

  // --- What the policies are told of contents ---

  bool follows_contents(Tier tier) const { return At(tier).follows_contents; }
  // The policy of the block's owner.
  EvictionPolicy& policy(Tier tier, BlockId id) const {
    const TierPolicy& at = At(tier);
    return accounts_.any() ? *at.policies[accounts_.owner(id).value()] : *at.default_tenant_policy;
  }
  // The facts of a block in the tree, for the policies.
  BlockFacts Facts(const OperationScope& op, BlockId id) const {
    return FactsIn(op, id, store_[id].slot);
  }
  // The facts of a block in the tree with `slot`, which it had before it moved.
  BlockFacts FactsIn(const OperationScope& op, BlockId id, SlotIndex slot) const {
    return FactsOf(op, id, store_[id], slot, tree_, accounts_.owner(id));
  }
  // The same, for callers that know the block and the tree.
  static BlockFacts FactsOf(const OperationScope& op, BlockId id, const Block& block,
                            SlotIndex slot, const PrefixTree& tree, TenantId owner) {
    return {.slot = slot,
            .block = id,
            .hash = tree.hash(id),
            .time = op.now,
            .tenant = owner,
            .priority = block.priority(),
            .uses = static_cast<uint8_t>(block.uses),
            .content = tree.facts(id)};
  }
  void NotifyTouched(OperationScope& op, BlockId id) {
    const Tier tier = store_[id].tier();
    if (follows_contents(tier)) policy(tier, id).Touched(Facts(op, id));
  }
  void NotifyInserted(OperationScope& op, BlockId id) {
    const Tier tier = store_[id].tier();
    if (follows_contents(tier)) policy(tier, id).Inserted(Facts(op, id));
  }
  void NotifyInserted(Tier tier, const BlockFacts& block) {
    if (follows_contents(tier)) policy(tier, block.block).Inserted(block);
  }
  void NotifyRecovered(OperationScope& op, BlockId id) {
    const Tier tier = store_[id].tier();
    if (follows_contents(tier)) policy(tier, id).Recovered(Facts(op, id));
  }
  // The block left `slot`.
  void NotifyRemoved(OperationScope& op, BlockId id, SlotRef slot) {
    if (!follows_contents(slot.tier)) return;
    policy(slot.tier, id).Removed(FactsIn(op, id, slot.slot));
  }
  // The block has left the disk for memory, and its copy in `file` stays there.
  void NotifyInheritedFromDisk(OperationScope& op, BlockId id, SlotRef file) {
    const Tier tier = store_[id].tier();
    if (follows_contents(tier)) policy(tier, id).Inherited(Facts(op, id), file);
  }
  // The block's copy on disk is one of a block that lies, or lay until now, in `memory` too.
  void NotifyInheritedOnDisk(OperationScope& op, BlockId id, SlotIndex slot, SlotRef memory) {
    if (!follows_contents(slots_.disk())) return;
    policy(slots_.disk(), id).Inherited(FactsIn(op, id, slot), memory);
  }

  // --- Copies on disk. REQUIRE: there is a tier on disk ---

  // Why the disk can give up a copy from now on. See EvictionPolicy::Released and Unparked.
  enum class DiskListing : uint8_t { kReleased, kUnparked };
  // List or unlist the block's copy on disk, if it has one, by invariant 2.
  void ListOnDisk(OperationScope& op, BlockId id, DiskListing why = DiskListing::kReleased);
  void UnlistOnDisk(OperationScope& op, BlockId id);
  // The child's parent has one more or less child on disk, or about to be.
  void CountChildOnDisk(OperationScope& op, BlockId child, int change,
                        DiskListing why = DiskListing::kReleased);
  bool HasChildrenOnDisk(BlockId id) const { return children_on_disk_[id.value()] != 0; }

  // --- For tests ---

  // Stops the process unless invariants 1 and 3 hold.
  void CheckInvariants() const;
  // Stops the process unless invariant 2 holds. `children`: by block id, its children with a copy
  // on disk or a backup under way.
  void CheckDisk(const std::vector<uint32_t>& children) const;

 private:
  struct TierPolicy {
    EvictionPolicy* default_tenant_policy = nullptr;
    bool follows_contents = false;                          // Whether any policy does.
    std::vector<std::unique_ptr<EvictionPolicy>> policies;  // By TenantId.
  };

  const TierPolicy& At(Tier tier) const { return tiers_[tier.value()]; }
  // The block in the slot that the policy names; kNoBlock if it names none.
  BlockId OwnerOfVictim(Tier tier, const EvictionPolicy& policy) const {
    const SlotIndex victim = policy.Victim();
    return victim == kNoSlot ? kNoBlock : slots_.OwnerOf({tier, victim});
  }
  bool IsDiskCandidate(BlockId id, SlotIndex slot) const;
  void CheckVictimsOfTenants(Tier tier) const;

  const bool sliding_;
  const uint16_t num_tenants_;
  const BlockStore& store_;
  const PrefixTree& tree_;
  const TierSlots& slots_;
  const TierCounts& counts_;
  const TenantAccounts& accounts_;
  const FileSlots& file_slots_;
  std::array<TierPolicy, kMaxTiers> tiers_;
  // By block id: its children with a copy on disk or a backup under way. Empty without a disk.
  BigArray<uint32_t> children_on_disk_;
  std::vector<bool> listed_on_disk_;  // By slot: a candidate of its owner's policy.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_TIER_CANDIDATES_H_
