// A block of an earlier run of the daemon, as it was found in its memory.
#ifndef PAGODA_MANAGER_RECOVERED_BLOCK_H_
#define PAGODA_MANAGER_RECOVERED_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/client_key.h"
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
  NamespaceKey name_space;         // Where parent is kRoot; else empty.
  std::vector<TokenId> tokens;     // Of a keyed block the words of its key.
  std::vector<TokenExtra> extras;  // Empty, or as long as tokens.
  Priority priority = kDefaultPriority;
  bool keyed = false;

  BlockKey key() const { return {tokens, extras, keyed}; }
  // Whether it can be what a block holds, and whether it fills one: a tail does not.
  bool IsContent(size_t tokens_per_block) const {
    if (keyed) return extras.empty() && ClientKey::FromWords(tokens).has_value();
    return !tokens.empty() && tokens.size() <= tokens_per_block &&
           (extras.empty() || extras.size() == tokens.size());
  }
  bool IsWhole(size_t tokens_per_block) const { return keyed || tokens.size() == tokens_per_block; }
};

// What was found for one window, parents before children.
struct RecoveredWindow {
  WindowSize window;
  std::vector<RecoveredBlock> blocks;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RECOVERED_BLOCK_H_
