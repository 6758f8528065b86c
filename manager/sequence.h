// A running sequence: its tokens so far and, for each window, its blocks.
#ifndef PAGODA_MANAGER_SEQUENCE_H_
#define PAGODA_MANAGER_SEQUENCE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "manager/ids.h"
#include "manager/prefix_tree.h"
#include "pools/types.h"

namespace pagoda {

// A sequence's blocks in one window, kept by that window's manager.
//
// Invariants, with p = tokens_per_block and `published` blocks in front:
// 1. blocks[0 .. published) are full, computed and represented in the tree: by themselves, or,
// where the tree had the same content before,
//    by canonical[i], which the sequence holds too. The rest is the sequence's alone.
// 2. tip is the tree's node for block published - 1; the root, if there is none. New blocks hang
// under it.
// 3. After a reset of the tree (tree_epoch differs from the window's), nothing of the sequence is
// in the tree or ever will be.
struct SequenceBlocks {
  std::vector<BlockHandle> table;  // Token t lives in table[t / p].
  std::vector<BlockId>
      canonical;  // Parallel to the table; kNoBlock where the block represents itself.
  uint32_t published = 0;
  NodeRef root;
  NodeRef tip;
  uint64_t tree_epoch = 0;
};

// Invariants, in tokens from the sequence's start:
// 1. computed_tokens <= min(token_count, room_tokens): what can be read was named and has a place.
// 2. Tokens [0, min(token_count, room_tokens)) are written in the blocks' token arrays; the rest,
// in
//    order, is unplaced[unplaced_begin ..).
// 3. Each table holds BlocksFor(room_tokens) blocks.
struct Sequence {
  uint32_t token_count = 0;      // Named.
  uint32_t computed_tokens = 0;  // KV complete and visible.
  uint32_t room_tokens = 0;      // Have a place.
  std::vector<TokenId> unplaced;
  size_t unplaced_begin = 0;
  std::vector<SequenceBlocks> windows;  // Index for index the manager's windows.
};

struct SequenceKey {
  SessionId session;
  SequenceId sequence;
  friend bool operator==(const SequenceKey&, const SequenceKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const SequenceKey& key) {
    return H::combine(std::move(h), key.session, key.sequence);
  }
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCE_H_
