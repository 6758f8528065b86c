// A cached prefix in one window, and what a sequence that begins with it needs.
#ifndef PAGODA_MANAGER_WINDOW_PREFIX_MATCH_H_
#define PAGODA_MANAGER_WINDOW_PREFIX_MATCH_H_

#include <cstdint>
#include <vector>

#include "manager/tree/prefix_tree.h"
#include "manager/words/prompt_key.h"
#include "pools/types.h"

namespace pagoda {

// The part of a prefix that was found or, after WindowPrefixes::CutMatch, the wanted part of it.
// Holds nothing.
struct PrefixMatch {
  // Whole blocks from the sequence's start. In a sliding window some are holes.
  std::vector<BlockId> blocks;
  uint32_t first = 0;  // A sequence that continues from the end needs no block before this one.
  // The block after them that shares its first source_tokens tokens; kNoBlock if none does.
  BlockId source = kNoBlock;
  uint32_t source_tokens = 0;
  uint32_t tokens = 0;  // Tokens in the blocks and the source.
  // Only in a sliding window. By position, up to the one behind the last block: the first block
  // of the run without a gap that ends before this position.
  std::vector<uint32_t> runs;
  // The match treats a block on disk alone as missing. In a cache with a disk tier, such a match
  // takes no part of a block beside a hole.
  bool in_memory = false;
  // A block of the path was on disk alone: more is cached than was matched.
  bool has_more_on_disk = false;
  // Where the prefix was looked up. Needed to look for siblings of a hole. The key's tokens
  // outlive the match.
  NodeRef root;
  PromptKey key;
};

// What happens to the source of a match.
enum class MatchTail : uint8_t { kNone, kCopy, kTakeOver };

// The primary blocks that an operation takes under one limit, and the blocks that the limit leaves.
struct BlockNeed {
  uint64_t blocks = 0;
  uint64_t available = 0;

  bool met() const { return blocks <= available; }
};

// Under both limits. Each can refuse by itself.
struct BlockNeeds {
  BlockNeed pool;   // Fresh blocks and blocks to onboard, while the match is held.
  BlockNeed quota;  // Blocks that the tenant does not hold yet. Always met without a quota.

  bool met() const { return pool.met() && quota.met(); }
};

// The needs of a match with reserved tokens behind it.
struct MatchDemand {
  BlockNeeds needs;
  MatchTail tail = MatchTail::kNone;
  bool fits = false;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_PREFIX_MATCH_H_
