#ifndef PAGODA_MANAGER_PRIORITY_LRU_POLICY_H_
#define PAGODA_MANAGER_PRIORITY_LRU_POLICY_H_

#include <cstdint>

#include "manager/candidate_lists.h"
#include "manager/eviction_policy.h"

namespace pagoda {

// "lru": of the lowest priority that has candidates, the least recently released first (rule 13). A
// block whose last child left goes to the front of its priority's list: it is about as old as the
// child that was just found to be the oldest. 8 bytes an id.
class PriorityLruPolicy final : public EvictionPolicy {
 public:
  explicit PriorityLruPolicy(uint32_t num_ids);

  void Released(BlockId id, Priority priority) override;
  void Unparked(BlockId id, Priority priority) override;
  void Withdrawn(BlockId id) override;
  BlockId Victim() const override;

 private:
  CandidateLists lists_;  // One a priority.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_PRIORITY_LRU_POLICY_H_
