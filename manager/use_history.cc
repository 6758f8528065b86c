#include "manager/use_history.h"

#include <algorithm>

namespace pagoda {

std::optional<EvictedContent::Memory> UseHistory::Inserted(BlockId id, BlockHash content,
                                                           uint64_t now) {
  const std::optional<EvictedContent::Memory> memory = evicted_.Take(content);
  const uint32_t matches = memory.has_value() ? std::min(memory->note + 1, kMaxMatches) : 0;
  uses_[id.value()] = {.last_used = static_cast<uint32_t>(now & kClockMask), .matches = matches};
  arrived_ = id;
  return memory;
}

void UseHistory::Touched(BlockId id, uint64_t now) {
  Use& use = uses_[id.value()];
  // A match that brings content up from a lower tier inserts it and then touches it: one use.
  const bool counted = arrives(id) && use.matches > 0;
  if (!counted && use.matches < kMaxMatches) ++use.matches;
  arrived_ = kNoBlock;
  use.last_used = static_cast<uint32_t>(now & kClockMask);
}

}  // namespace pagoda
