// A block of an earlier run of the daemon, as found in memory or on disk.
#ifndef PAGODA_MANAGER_WORDS_RECOVERED_BLOCK_H_
#define PAGODA_MANAGER_WORDS_RECOVERED_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

// Content and place of one cached block. WarmRestart::Restore makes it reusable again.
struct RecoveredBlock {
  static constexpr size_t kRoot = ~size_t{0};

  // Where its bytes lie. With kNoSlot it is a hole: a block of a sliding window that has lost its
  // bytes and still has children.
  SlotRef slot;
  // The index of its parent in the list, below its own; kRoot if it is the first of its namespace.
  size_t parent = kRoot;
  NamespaceKey name_space;         // If parent is kRoot; else empty.
  std::vector<TokenId> tokens;     // For a keyed block, the words of its key.
  std::vector<TokenExtra> extras;  // Empty, or as long as tokens.
  Priority priority = kDefaultPriority;
  bool keyed = false;

  BlockKey key() const { return {tokens, extras, keyed}; }
  // IsContent: whether a block can hold this. IsWhole: whether it fills a block; a tail does not.
  bool IsContent(size_t tokens_per_block) const {
    if (keyed) return extras.empty() && ClientKey::FromWords(tokens).has_value();
    return !tokens.empty() && tokens.size() <= tokens_per_block &&
           (extras.empty() || extras.size() == tokens.size());
  }
  bool IsWhole(size_t tokens_per_block) const { return keyed || tokens.size() == tokens_per_block; }
};

// The blocks found for one window, parents before children.
struct RecoveredWindow {
  WindowSize window;
  std::vector<RecoveredBlock> blocks;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_RECOVERED_BLOCK_H_
