// Which lives of blocks outside the prefix tree are events.
#ifndef PAGODA_MANAGER_LIFECYCLE_EVENTS_H_
#define PAGODA_MANAGER_LIFECYCLE_EVENTS_H_

#include <cstdint>

namespace pagoda {

// A life outside the tree begins with a Created event and ends with a Removed event with the reason
// "released", or with a Stored event. events/README.md has the law.
enum class LifecycleEvents : uint8_t {
  kOff,  // None.
  kRaw,  // Those of raw blocks: from AllocateBlocks to FreeBlocks, where they may drain still.
  kAll,  // Those of all blocks, until the id is free again: a block that drains lives on.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_LIFECYCLE_EVENTS_H_
