// A block of an earlier run of the daemon, as it was found in its memory.
#ifndef PAGODA_MANAGER_RECOVERED_BLOCK_H_
#define PAGODA_MANAGER_RECOVERED_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

// Content and place of one cached block; BlockManager::Restore makes it reusable again.
struct RecoveredBlock {
  static constexpr size_t kRoot = ~size_t{0};

  // Where its bytes lie. A slot of kNoSlot is a hole: a block of a sliding window whose bytes are
  // gone and that others hang under.
  SlotRef slot;
  // Its parent's place in the list, before its own; kRoot where it is the first of its namespace.
  size_t parent = kRoot;
  NamespaceKey name_space;  // Where parent is kRoot; else empty.
  std::vector<TokenId> tokens;
  std::vector<TokenExtra> extras;  // Empty, or as long as tokens.
  Priority priority = kDefaultPriority;
};

// What was found for one window, parents before children.
struct RecoveredWindow {
  WindowSize window;
  std::vector<RecoveredBlock> blocks;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RECOVERED_BLOCK_H_
