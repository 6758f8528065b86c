#include "manager/priority_lru_policy.h"

#include <memory>
#include <utility>

namespace pagoda {

PriorityLruPolicy::PriorityLruPolicy(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)), lists_(&shared_->candidates) {
  lists_.Make(0, kNumLists);
}

void PriorityLruPolicy::Released(BlockId id, Priority priority) {
  lists_.PushBack(priority.value(), id);
}

void PriorityLruPolicy::Unparked(BlockId id, Priority priority) {
  lists_.PushFront(priority.value(), id);
}

void PriorityLruPolicy::Withdrawn(BlockId id) { lists_.Remove(id); }

BlockId PriorityLruPolicy::Victim() const {
  const uint32_t list = lists_.FirstNotEmpty();
  return list == CandidateLists<kNumLists>::kNoList ? kNoBlock : lists_.front(list);
}

}  // namespace pagoda
