// Which blocks outside the prefix tree have lifecycle events.
#ifndef PAGODA_MANAGER_WORDS_LIFECYCLE_EVENTS_H_
#define PAGODA_MANAGER_WORDS_LIFECYCLE_EVENTS_H_

#include <cstdint>

namespace pagoda {

// A block's time outside the tree begins with a Created event. It ends with a Removed event with
// the reason "released", or with a Stored event. events/README.md states the law.
enum class LifecycleEvents : uint8_t {
  kOff,  // None.
  kRaw,  // Raw blocks, from AllocateBlocks to FreeBlocks; their releases may still be deferred
         // then.
  kAll,  // All blocks, until the id is free again, that is, after deferred releases.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_LIFECYCLE_EVENTS_H_
