// Whether a cache has come to rest.
#ifndef PAGODA_TESTS_MANAGER_HELD_BLOCKS_H_
#define PAGODA_TESTS_MANAGER_HELD_BLOCKS_H_

#include "manager/shared_manager.h"

namespace pagoda {

// Whether every block of every window is free or cached, and there is no sequence. Stops the
// process if the core is not sound.
inline bool HoldsNothing(const SharedManager& manager) {
  manager.CheckInvariants();
  const ManagerStats stats = manager.Stats();
  bool nothing = stats.sequences == 0;
  for (const auto& window : stats.windows) {
    for (const TierOccupancy& tier : window.tiers) {
      nothing = nothing && tier.free + tier.cached == tier.capacity;
    }
  }
  return nothing;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_HELD_BLOCKS_H_
