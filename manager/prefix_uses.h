// Which cached prefixes save the most: counted in the prefix tree, summed up from a copy of its
// shape without the core's lock.
#ifndef PAGODA_MANAGER_PREFIX_USES_H_
#define PAGODA_MANAGER_PREFIX_USES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "events/block_hash.h"
#include "events/event.h"
#include "events/tenant_id.h"
#include "pools/types.h"

namespace pagoda {

// What one block id of a window is in its prefix tree.
struct PrefixNode {
  static constexpr uint32_t kAtRoot = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kNotInTree = kAtRoot - 1;

  uint32_t parent = kNotInTree;  // A block id, or one of the above.
  Generation generation;
  uint32_t match_ends = 0;  // As PrefixTree::match_ends.

  bool in_tree() const { return parent != kNotInTree; }
};

// The whole blocks from a namespace's root to `last`.
struct UsedPrefix {
  BlockRef first, last;
  uint32_t blocks = 0;
  uint64_t hits = 0;  // Sequences that were added with all of it cached.
};

// At most `limit` prefixes by the blocks that they saved (hits times blocks), most first. Of the
// prefixes on one path those are left out that nearly always (nine times of ten) go on in the same
// next block: the longer one says it. A prefix and a longer one that contains it count the same
// sequences, each for its own length.
//
// `nodes` by block id; where they were copied piece by piece while the tree changed, what does not
// fit together is left out. Cost: O(nodes).
std::vector<UsedPrefix> TopPrefixes(absl::Span<const PrefixNode> nodes, size_t limit);

// One of them as an operator reads it. The last block is cached.
struct PrefixUse {
  static constexpr size_t kShownTokens = 8;

  NamespaceKey name_space;
  TenantId tenant = kDefaultTenant;  // Whose its blocks are.
  BlockHash hash;                    // Of the last block: stands for the whole prefix.
  uint32_t tokens = 0;
  std::vector<TokenId> first_tokens;  // At most kShownTokens; none in a keyed namespace.
  std::string first_key;              // The first block's key, in a keyed namespace.
  Tier tier = Tier::kPrimary;         // Of the last block, as what follows.
  Priority priority;
  uint32_t holders = 0;
  bool pinned = false;
  uint64_t hits = 0;
  uint64_t saved_tokens = 0;  // hits times tokens: what did not have to be computed.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_PREFIX_USES_H_
