// The invariants of TierResidency, checked from scratch.
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "manager/tiers/tier_residency.h"

namespace pagoda {

void TierResidency::CheckInvariants(const Holders& holders) const {
  CheckAccounting();
  std::array<uint32_t, kMaxTiers> evictable = {}, held = {}, pinned = {};
  std::array<uint32_t, kMaxTiers> deferred = {}, deferred_and_pinned = {};
  std::array<PriorityCounts, kMaxTiers> by_priority = {};
  std::array<uint32_t, kMaxTiers> duplicates = {};
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    PAGODA_CHECK(static_cast<bool>(block.deferred) == (deferred_.of(id) > 0),
                 "a block with a deferred release is marked");
    if (!OwnsSlot(block.state())) continue;
    CheckCopies(id, &duplicates);
    const auto tier = static_cast<size_t>(block.tier());
    PAGODA_CHECK(OwnerOf(store_.slot(id)) == id, "rule 2: no two blocks share a slot");
    ++(block.refs > 0 ? held : evictable)[tier];
    if (block.refs == 0) ++by_priority[tier][block.priority_value];
    if (block.pinned) ++pinned[tier];
    if (block.deferred) ++deferred[tier];
    if (block.deferred && block.pinned) ++deferred_and_pinned[tier];
  }
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const TierState& tier = tiers_[t];
    PAGODA_CHECK(evictable[t] == tier.evictable && held[t] == tier.held &&
                     pinned[t] == tier.pinned && deferred[t] == tier.deferred &&
                     deferred_and_pinned[t] == tier.deferred_and_pinned &&
                     duplicates[t] == tier.duplicates.size(),
                 "rule 5: the counters match the blocks");
    PAGODA_CHECK(by_priority[t] == tier.evictable_by_priority,
                 "the evictable blocks are counted by their priority");
  }
  CheckCandidates();
  CheckDisk();
  CheckAccounts(holders);
  CheckSlotStates();
  for (const TierState& tier : tiers_) {
    PAGODA_CHECK(tier.spare == kNoSlot || tier.slots.owner(tier.spare) == kNoBlock,
                 "no block owns the spare");
  }
}

void TierResidency::CheckCopies(BlockId id, std::array<uint32_t, kMaxTiers>* duplicates) const {
  SlotRef slot = store_.slot(id);
  for (SlotRef lower = Lower(slot); lower.slot != kNoSlot; slot = lower, lower = Lower(slot)) {
    PAGODA_CHECK(lower.tier > slot.tier && OwnerOf(lower) == id &&
                     store_[id].state() == BlockState::kCached &&
                     At(lower.tier).duplicates.contains(lower.slot),
                 "a copy is in a farther tier, in a slot that the block owns");
    ++(*duplicates)[static_cast<size_t>(lower.tier)];
  }
}

void TierResidency::CheckCandidates() const {
  std::array<uint32_t, kMaxTiers> candidates = {};
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const Block& block = store_[BlockId{i}];
    if (block.state() != BlockState::kCached || block.refs != 0) continue;
    if (IsCandidate(BlockId{i})) ++candidates[static_cast<size_t>(block.tier())];
  }
  for (size_t t = 0; t < kMaxTiers; ++t) {
    if (tiers_[t].policies.empty() || t == disk_.tier) continue;
    const BlockId victim = Victim(static_cast<Tier>(t), kDefaultTenant);
    PAGODA_CHECK((candidates[t] == 0) == (victim == kNoBlock),
                 "rule 13: blocks that nothing holds can be evicted");
    PAGODA_CHECK((tiers_[t].evictable == 0) == (candidates[t] == 0),
                 "rule 13: leaves first, but all");
    if (victim == kNoBlock) continue;
    const Block& block = store_[victim];
    PAGODA_CHECK(block.state() == BlockState::kCached && block.refs == 0 &&
                     static_cast<size_t>(block.tier()) == t && IsCandidate(victim),
                 "rule 13: a victim is a candidate");
  }
}

// Invariants 8 and 9, and the slots in transit.
void TierResidency::CheckDisk() const {
  if (!has_disk()) return;
  std::vector<uint32_t> children(store_.num_ids());
  std::vector<bool> copies_at(OnDisk().slots.size());
  const auto count = [&](BlockId id) {
    const NodeRef parent = tree_.parent(id);
    if (!parent.is_root()) ++children[parent.block().value()];
  };
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const SlotIndex slot = CopyOnDisk(BlockId{i});
    if (slot == kNoSlot) continue;
    count(BlockId{i});
    copies_at[slot.value()] = true;
  }
  uint32_t in_transit = disk_.stats.retired_slots, fetching = 0;
  for (const Backup& backup : disk_.backups) {
    PAGODA_CHECK(OwnerOf(FileSlot(backup.file)) == kNoBlock, "a backup has its slot to itself");
    if (!backup.erased) ++in_transit;
    if (!backup.abandoned) count(backup.block.id);
  }
  for (const auto& [slot, use] : disk_.uses) {
    if (use.orphaned && !use.retired) ++in_transit;
    PAGODA_CHECK(use.orphaned != copies_at[slot.value()], "a copy is a block's, or on its way out");
  }
  for (const FetchJob& job : disk_.jobs) fetching += static_cast<uint32_t>(job.blocks.size());
  PAGODA_CHECK(in_transit == OnDisk().in_transit && fetching == disk_.fetching &&
                   fetching == tiers_[disk_.above].in_transit,
               "rule 5: a slot in transit belongs to a backup, a fetch or an erase");
  PAGODA_CHECK(
      disk_.staging.size() + disk_.backups.size() == options_.tiers[disk_.above].staging_slots,
      "a staging slot is free or belongs to a backup");
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    PAGODA_CHECK(disk_.entries[i].children == children[i],
                 "rule 13: the children that have a copy on disk are counted");
    const BlockId id{i};
    const SlotIndex slot = CopyOnDisk(id);
    if (slot == kNoSlot) continue;
    PAGODA_CHECK(disk_.listed[slot.value()] == IsDiskCandidate(id, slot),
                 "rule 13: a candidate of the disk has no child there");
    copies_at[slot.value()] = true;
  }
  for (size_t slot = 0; slot < copies_at.size(); ++slot) {
    PAGODA_CHECK(copies_at[slot] || !disk_.listed[slot], "only copies are listed");
  }
}

void TierResidency::CheckSlotStates() const {
  WindowStats stats;
  AddStats(&stats);
  for (size_t t = 0; t < kMaxTiers; ++t) {
    std::vector<SlotState> states(tiers_[t].slots.size());
    SlotStates(static_cast<Tier>(t), 0, absl::MakeSpan(states));
    const auto count = [&](SlotState state) {
      return static_cast<uint32_t>(std::count(states.begin(), states.end(), state));
    };
    const TierOccupancy& tier = stats.tiers[t];
    const PriorityCounts& priorities = stats.cached_by_priority[t];
    PAGODA_CHECK(
        std::accumulate(priorities.begin(), priorities.end(), tier.duplicates) == tier.cached,
        "the counts by priority add up to the cached blocks");
    PAGODA_CHECK(count(SlotState::kFree) == tier.free && count(SlotState::kCached) == tier.cached &&
                     count(SlotState::kActive) == tier.active &&
                     count(SlotState::kPinned) == tier.pinned &&
                     count(SlotState::kInFlight) == tier.in_flight,
                 "rule 5: the slots add up to the counters");
  }
}

void TierResidency::CheckAccounts(const Holders& holders) const {
  if (!accounts_.any()) return;
  const uint16_t tenants = options_.tenants->size();
  std::array<std::vector<uint32_t>, kMaxTiers> held, cached;
  for (size_t t = 0; t < kMaxTiers; ++t) {
    held[t].resize(tenants);
    cached[t].resize(tenants);
  }
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    if (!OwnsSlot(block.state())) continue;
    const auto tier = static_cast<size_t>(block.tier());
    std::vector<TenantId> by = holders[i];
    std::sort(by.begin(), by.end());
    by.erase(std::unique(by.begin(), by.end()), by.end());
    TenantId owner = kDefaultTenant;
    if (block.state() == BlockState::kCached) {
      owner = options_.tenants->OwnerOf(tree_.key(tree_.RootOf(id)));
      PAGODA_CHECK(owner == accounts_.owner(id), "a cached block is its namespace's tenant's");
      if (by.empty()) ++cached[tier][owner.value()];
    } else {
      // A block below the first tier was held by a pin when it left the tree. Its namespace is no
      // longer known.
      owner = block.tier() == Tier::kPrimary ? by.front() : accounts_.owner(id);
      PAGODA_CHECK(block.tier() != Tier::kPrimary || accounts_.owner(id) == kDefaultTenant ||
                       by == std::vector{accounts_.owner(id)},
                   "its only holder or the default tenant owns a block outside the tree");
    }
    PAGODA_CHECK(owner == kDefaultTenant || by.empty() || by == std::vector{owner} ||
                     block.state() != BlockState::kCached,
                 "only the owner holds a tenant's own block");
    for (const TenantId tenant : by) {
      ++held[tenant == owner ? tier : kPrimary][tenant.value()];
    }
  }
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    for (uint16_t i = 0; i < tenants; ++i) {
      const TenantId tenant{i};
      PAGODA_CHECK(accounts_.held(tier, tenant) == held[t][i] &&
                       accounts_.cached(tier, tenant) == cached[t][i],
                   "a tenant's account matches its held and cached blocks");
      PAGODA_CHECK(held[t][i] + cached[t][i] <= accounts_.QuotaOf(tier, tenant),
                   "no tenant has more than its quota");
      const BlockId victim =
          tiers_[t].policies.empty() ? kNoBlock : OwnerOfVictim(tier, *tiers_[t].policies[i]);
      PAGODA_CHECK(t == disk_.tier || (victim == kNoBlock) == (cached[t][i] == 0),
                   "a tenant's blocks that nothing holds can be evicted");
      PAGODA_CHECK(victim == kNoBlock || accounts_.owner(victim) == tenant,
                   "a tenant owns its victim");
    }
  }
}

}  // namespace pagoda
