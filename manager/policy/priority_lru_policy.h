#ifndef PAGODA_MANAGER_POLICY_PRIORITY_LRU_POLICY_H_
#define PAGODA_MANAGER_POLICY_PRIORITY_LRU_POLICY_H_

#include <cstdint>
#include <memory>

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
  // The tables that the policies of a tier's tenants share.
  struct Shared {
    Shared(uint32_t num_slots, uint16_t num_tenants)
        : candidates(num_slots, num_tenants * kNumLists) {}

    CandidateArena candidates;
  };

  explicit PriorityLruPolicy(std::shared_ptr<Shared> shared);

  bool follows_contents() const override { return false; }
  void Released(const BlockFacts& block) override;
  void Unparked(const BlockFacts& block) override;
  void Withdrawn(const BlockFacts& block) override;
  SlotIndex Victim() const override;
  SlotIndex Evicted(const BlockFacts& victim, const BlockFacts* unparked) override;

 private:
  static constexpr uint32_t kNumLists = kMaxPriority + 1;

  const std::shared_ptr<Shared> shared_;  // Owned by these policies.
  CandidateLists<kNumLists> lists_;       // One for each priority.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_PRIORITY_LRU_POLICY_H_
