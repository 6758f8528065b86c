// Who goes next. The manager says what happens to blocks; a policy keeps whatever order it likes.
#ifndef PAGODA_MANAGER_EVICTION_POLICY_H_
#define PAGODA_MANAGER_EVICTION_POLICY_H_

#include "pools/types.h"

namespace pagoda {

// The candidates of one window and tier: cached blocks that nobody holds and that have no cached
// children. A better policy is a new class, not a change of the manager. Thread-compatible; every
// call is O(1) amortised.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // `id` became a candidate because its last holder let go.
  virtual void Released(BlockId id) = 0;
  // `id` became a candidate because its last child left; it had been let go before that.
  virtual void Unparked(BlockId id) = 0;
  // `id` is no candidate any more: it is held again, got a child, or left the cache.
  virtual void Withdrawn(BlockId id) = 0;
  // The candidate that should go first, still a candidate afterwards; kNoBlock where there is none.
  virtual BlockId Victim() const = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EVICTION_POLICY_H_
