#ifndef PAGODA_MANAGER_POLICY_PRIORITY_LRU_POLICY_H_
#define PAGODA_MANAGER_POLICY_PRIORITY_LRU_POLICY_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "manager/policy/candidate_arena.h"
#include "manager/policy/candidate_lists.h"
#include "manager/policy/eviction_policy.h"
#include "manager/words/retention.h"

namespace pagoda {

// "lru": evicts the lowest priority first, and within a priority the least recently released block
// (rule 13). A block whose last child left goes to the front of its priority's list: it is about as
// old as that child, which was just found to be the oldest. All tenants of a tier share 8 bytes for
// each slot. Each tenant takes 0.9 KiB.
class PriorityLruPolicy final : public EvictionPolicy {
 public:
  static constexpr uint32_t kNumLists = kMaxPriority + 1;  // One for each priority.

  explicit PriorityLruPolicy(std::shared_ptr<CandidateArena> arena)
      : arena_(std::move(arena)), lists_(arena_.get()) {}

  bool follows_contents() const override { return false; }
  void Released(const BlockFacts& block) override;
  void Unparked(const BlockFacts& block) override;
  void Withdrawn(const BlockFacts& block) override;
  SlotIndex Victim() const override;
  SlotIndex Evicted(const BlockFacts& victim, const BlockFacts* unparked) override;

 private:
  const std::shared_ptr<CandidateArena> arena_;  // Owned by all policies of the tier.
  CandidateLists<kNumLists> lists_;
};

// Makes policies of this class; see MakeEvictionPolicies().
TierPolicies MakePriorityLruPolicies(const PolicyTiers& tiers, uint16_t num_tenants);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_PRIORITY_LRU_POLICY_H_
