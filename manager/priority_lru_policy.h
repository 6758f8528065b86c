#ifndef PAGODA_MANAGER_PRIORITY_LRU_POLICY_H_
#define PAGODA_MANAGER_PRIORITY_LRU_POLICY_H_

#include <cstdint>
#include <memory>

#include "manager/candidate_arena.h"
#include "manager/candidate_lists.h"
#include "manager/eviction_policy.h"
#include "manager/retention.h"

namespace pagoda {

// "lru": of the lowest priority that has candidates, the least recently released first (rule 13). A
// block whose last child left goes to the front of its priority's list: it is about as old as the
// child that was just found to be the oldest. All tenants of a tier share 8 bytes a slot; each
// takes 0.9 KiB.
class PriorityLruPolicy final : public EvictionPolicy {
 public:
  // What the policies of a tier's tenants share.
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

 private:
  static constexpr uint32_t kNumLists = kMaxPriority + 1;

  const std::shared_ptr<Shared> shared_;  // Its owners are these policies.
  CandidateLists<kNumLists> lists_;       // One a priority.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_PRIORITY_LRU_POLICY_H_
