// The invariants of TierCounts, checked from scratch.
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "manager/tiers/tier_counts.h"

namespace pagoda {

void TierCounts::CheckInvariants(const Holders& holders) const {
  CheckAccounting();
  std::array<Counts, kMaxTiers> counted = {};
  std::array<uint32_t, kMaxTiers> duplicates = {};
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    PAGODA_CHECK(static_cast<bool>(block.deferred) == (deferred_.of(id) > 0),
                 "a block with a deferred release is marked");
    if (!OwnsSlot(block.state())) continue;
    slots_.CheckCopies(id, &duplicates);
    Counts& tier = counted[block.tier().value()];
    ++(block.refs > 0 ? tier.held : tier.evictable);
    if (block.refs == 0) ++tier.evictable_by_priority[block.priority_value];
    if (block.pinned) ++tier.pinned;
    if (block.deferred) ++tier.deferred;
    if (block.deferred && block.pinned) ++tier.deferred_and_pinned;
  }
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const Counts& tier = tiers_[t];
    PAGODA_CHECK(counted[t].evictable == tier.evictable && counted[t].held == tier.held &&
                     counted[t].pinned == tier.pinned && counted[t].deferred == tier.deferred &&
                     counted[t].deferred_and_pinned == tier.deferred_and_pinned &&
                     duplicates[t] == slots_.duplicates(Tier(t)),
                 "rule 5: the counters match the blocks");
    PAGODA_CHECK(counted[t].evictable_by_priority == tier.evictable_by_priority,
                 "the evictable blocks are counted by their priority");
  }
  CheckAccounts(holders);
  CheckSlotStates();
}

void TierCounts::CheckInTransit(Tier tier, uint32_t in_transit) const {
  PAGODA_CHECK(At(tier).in_transit == in_transit,
               "rule 5: a slot in transit belongs to a backup, a fetch or an erase");
}

void TierCounts::CheckSlotStates() const {
  WindowStats stats;
  AddStats(&stats);
  for (size_t t = 0; t < kMaxTiers; ++t) {
    std::vector<SlotState> states(slots_.num_slots(Tier(t)));
    SlotStates(Tier(t), 0, absl::MakeSpan(states));
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

void TierCounts::CheckAccounts(const Holders& holders) const {
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
    const size_t tier = block.tier().value();
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
      owner = block.tier() == kPrimaryTier ? by.front() : accounts_.owner(id);
      PAGODA_CHECK(block.tier() != kPrimaryTier || accounts_.owner(id) == kDefaultTenant ||
                       by == std::vector{accounts_.owner(id)},
                   "its only holder or the default tenant owns a block outside the tree");
    }
    PAGODA_CHECK(owner == kDefaultTenant || by.empty() || by == std::vector{owner} ||
                     block.state() != BlockState::kCached,
                 "only the owner holds a tenant's own block");
    for (const TenantId tenant : by) {
      ++held[tenant == owner ? tier : kPrimaryTier.value()][tenant.value()];
    }
  }
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const Tier tier(t);
    for (uint16_t i = 0; i < tenants; ++i) {
      const TenantId tenant{i};
      PAGODA_CHECK(accounts_.held(tier, tenant) == held[t][i] &&
                       accounts_.cached(tier, tenant) == cached[t][i],
                   "a tenant's account matches its held and cached blocks");
      PAGODA_CHECK(held[t][i] + cached[t][i] <= accounts_.QuotaOf(tier, tenant),
                   "no tenant has more than its quota");
    }
  }
}

}  // namespace pagoda
