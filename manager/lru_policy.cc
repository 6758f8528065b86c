#include "manager/lru_policy.h"

#include "pools/check.h"

namespace pagoda {

LruPolicy::LruPolicy(uint32_t capacity) : links_(size_t{capacity} + 1) {
  for (uint32_t i = 0; i <= capacity; ++i) links_[i] = {i, i};
}

void LruPolicy::InsertBefore(uint32_t index, uint32_t next) {
  Link& link = links_[index];
  PAGODA_CHECK(link.next == index, "a block becomes a candidate once");
  link = {links_[next].previous, next};
  links_[link.previous].next = index;
  links_[next].previous = index;
}

void LruPolicy::Released(BlockId id) { InsertBefore(id.value(), sentinel()); }

void LruPolicy::Unparked(BlockId id) { InsertBefore(id.value(), links_[sentinel()].next); }

void LruPolicy::Withdrawn(BlockId id) {
  const uint32_t index = id.value();
  Link& link = links_[index];
  PAGODA_CHECK(link.next != index, "only a candidate is withdrawn");
  links_[link.previous].next = link.next;
  links_[link.next].previous = link.previous;
  link = {index, index};
}

BlockId LruPolicy::Victim() const {
  const uint32_t first = links_[sentinel()].next;
  return first == sentinel() ? kNoBlock : BlockId{first};
}

}  // namespace pagoda
