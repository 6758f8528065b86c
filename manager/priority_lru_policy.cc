#include "manager/priority_lru_policy.h"

#include "manager/fault.h"
#include "manager/retention.h"

namespace pagoda {

PriorityLruPolicy::PriorityLruPolicy(uint32_t num_ids) : lists_(num_ids, kMaxPriority + 1) {}

void PriorityLruPolicy::Released(BlockId id, Priority priority) {
  if (PAGODA_FAULT(PriorityIgnored)) priority = kDefaultPriority;
  if (PAGODA_FAULT(NewestVictim)) return lists_.PushFront(priority.value(), id);
  lists_.PushBack(priority.value(), id);
}

void PriorityLruPolicy::Unparked(BlockId id, Priority priority) {
  lists_.PushFront(priority.value(), id);
}

void PriorityLruPolicy::Withdrawn(BlockId id) { lists_.Remove(id); }

BlockId PriorityLruPolicy::Victim() const {
  const uint32_t list = lists_.FirstNotEmpty();
  return list == CandidateLists::kNoList ? kNoBlock : lists_.front(list);
}

}  // namespace pagoda
