// Which cached prefixes save the most. The prefix tree counts matches. The sums are computed from a
// copy of the tree's shape, without the core's lock.
#ifndef PAGODA_MANAGER_TREE_PREFIX_USES_H_
#define PAGODA_MANAGER_TREE_PREFIX_USES_H_

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

// A block id of a window, as a node of its prefix tree.
struct PrefixNode {
  static constexpr uint32_t kAtRoot = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kNotInTree = kAtRoot - 1;

  uint32_t parent = kNotInTree;  // A block id, or one of the above.
  Generation generation;
  uint32_t match_ends = 0;  // The block's PrefixTree::match_ends.

  bool in_tree() const { return parent != kNotInTree; }
};

// The whole blocks from a namespace's root to `last`.
struct UsedPrefix {
  BlockRef first, last;
  uint32_t blocks = 0;
  uint64_t hits = 0;  // Sequences that were added while all of it was cached.
};

// At most `limit` prefixes, ordered by the blocks that they saved (hits times blocks), most first.
// It omits a prefix if at least nine of ten of its hits continue in the same next block: the longer
// prefix then stands for both. A prefix and a longer one that contains it count the same sequences,
// each for its own length.
//
// `nodes` is indexed by block id. If they were copied in chunks while the tree changed, nodes that
// do not fit together are left out. Cost: O(nodes).
std::vector<UsedPrefix> TopPrefixes(absl::Span<const PrefixNode> nodes, size_t limit);

// A used prefix as an operator reads it. The last block is cached.
struct PrefixUse {
  static constexpr size_t kShownTokens = 8;

  NamespaceKey name_space;
  TenantId tenant = kDefaultTenant;  // The owner of its blocks.
  BlockHash hash;                    // The hash of the last block; it stands for the whole prefix.
  uint32_t tokens = 0;
  std::vector<TokenId> first_tokens;  // At most kShownTokens; none in a keyed namespace.
  std::string first_key;              // The first block's key, in a keyed namespace.
  Tier tier = kPrimaryTier;           // The tier of the last block, as the fields below.
  Priority priority;
  uint32_t holders = 0;
  bool pinned = false;
  uint64_t hits = 0;
  uint64_t saved_tokens = 0;  // hits times tokens: the tokens that were not computed again.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TREE_PREFIX_USES_H_
