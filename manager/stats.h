// Numbers that operators look at. Plain counters, copied out under the core's lock.
#ifndef PAGODA_MANAGER_STATS_H_
#define PAGODA_MANAGER_STATS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "pools/types.h"

namespace pagoda {

// Blocks of one window and tier by state. Each slot counts once (rule 5).
struct TierOccupancy {
  uint32_t capacity = 0;
  uint32_t free = 0;
  uint32_t cached = 0;  // In the tree, held by nobody: evictable.
  uint32_t active = 0;  // Held by a sequence or a client.
  uint32_t pinned = 0;
  uint32_t in_flight = 0;  // Copying, draining or quarantined.

  uint32_t sum() const { return free + cached + active + pinned + in_flight; }
};

// Since the manager was made. A counter never goes down.
struct WindowCounters {
  uint64_t allocated_blocks = 0;
  uint64_t freed_blocks = 0;  // Gave their slot back, evicted ones not counted.
  uint64_t evicted_blocks = 0;
  uint64_t prefix_lookup_tokens = 0;  // Prompt tokens of added sequences.
  uint64_t prefix_hit_tokens = 0;     // Those that were matched.
};

struct WindowStats {
  WindowSize window;
  std::array<TierOccupancy, kNumTiers> tiers;
  WindowCounters counters;
};

struct ManagerStats {
  std::vector<WindowStats> windows;  // Ascending by window.
  uint64_t sessions = 0;
  uint64_t sequences = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_STATS_H_
