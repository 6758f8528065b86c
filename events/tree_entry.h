// One cached block of a prefix tree, as the events report it.
#ifndef PAGODA_EVENTS_TREE_ENTRY_H_
#define PAGODA_EVENTS_TREE_ENTRY_H_

#include <vector>

#include "events/block_key.h"
#include "events/event.h"

namespace pagoda {

// Equal entries can differ in extras that say nothing.
struct TreeEntry {
  BlockId id;
  BlockHash hash;
  // kNoBlock below the root of a namespace. In a sliding window it may name a block that has left.
  BlockId parent = kNoBlock;
  NamespaceKey name_space;
  std::vector<TokenId> tokens;     // In a keyed namespace the words of its key.
  std::vector<TokenExtra> extras;  // One entry per token, or empty.
  Tier tier = kPrimaryTier;
  Priority priority = kDefaultPriority;
  TierSet lower;

  BlockKey key() const { return {tokens, extras, name_space.keyed}; }
  friend bool operator==(const TreeEntry& a, const TreeEntry& b) {
    return a.id == b.id && a.hash == b.hash && a.parent == b.parent && a.tier == b.tier &&
           a.priority == b.priority && a.lower == b.lower && SameKey(a.key(), b.key()) &&
           a.name_space == b.name_space;
  }
};

}  // namespace pagoda

#endif  // PAGODA_EVENTS_TREE_ENTRY_H_
