// A running sequence: its tokens so far and, for each window, its blocks.
#ifndef PAGODA_MANAGER_SEQUENCE_H_
#define PAGODA_MANAGER_SEQUENCE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "events/block_key.h"
#include "manager/ids.h"
#include "manager/prefix_tree.h"
#include "manager/retention.h"
#include "manager/sequence_accounts.h"
#include "manager/sequence_content.h"
#include "manager/sequence_extras.h"
#include "pools/types.h"

namespace pagoda {

// A sequence's blocks in one window, kept by that window's manager.
//
// Invariants, with p = tokens_per_block and `published` blocks in front:
// 1. Entries [0, first) are empty: the window has passed them, or a match did not need them. The
// others are held.
// 2. blocks [0, published) are full, computed and represented in the tree: by themselves, or, where
// the tree had the same content before, by canonical[i], which the sequence holds too. The rest is
// the sequence's alone, but for a borrowed tail.
// 3. tip is the tree's node for block published - 1, which the sequence holds; the root, if there
// is none. New blocks hang under it.
// 4. After a reset of the tree (tree_epoch differs from the tree's), or once the tip has left the
// tree, the sequence publishes nothing any more.
struct SequenceBlocks {
  std::vector<BlockHandle> table;  // Token t lives in table[t / p].
  // Parallel to the table; kNoBlock where the block represents itself.
  std::vector<BlockId> canonical;
  uint32_t first = 0;
  uint32_t published = 0;
  // The last entry is another sequence's tail: to be copied before it is written, if that sequence
  // or the cache still has it.
  bool borrows_tail = false;
  // The sequence took over a cached block, which is entry `index` now. That block's retention holds
  // for the entry when it is published, unless the sequence's own retention names it.
  struct TakenOver {
    uint32_t index = 0;
    BlockRetention retention;
  };
  std::optional<TakenOver> taken_over;
  std::optional<BlockRetention> RetentionTakenOver(uint32_t index) const {
    if (!taken_over.has_value() || taken_over->index != index) return std::nullopt;
    return taken_over->retention;
  }
  NodeRef root;
  NodeRef tip;
  uint64_t tree_epoch = 0;
  // No tree has this epoch.
  static constexpr uint64_t kNoTree = std::numeric_limits<uint64_t>::max();
};

// Invariants, in tokens from the sequence's start:
// 1. computed_tokens <= min(token_count, reserved_tokens): what can be read was named and has a
// place.
// 2. Tokens [0, min(token_count, reserved_tokens)) are written in the blocks' token arrays, as far
// as the blocks are there; the rest is in `named`. Of a keyed sequence the blocks' keys are.
// 3. Each table has BlocksFor(reserved_tokens) entries.
// 4. What a client can make long, apart from the tables, is immutable and shared with forks: a fork
// costs its tables. `charge` is what the sequence alone costs.
// 5. All of these lengths of a keyed sequence are whole blocks.
struct Sequence {
  SequenceKey key;
  uint32_t token_count = 0;      // Named.
  uint32_t computed_tokens = 0;  // KV complete and visible.
  uint32_t reserved_tokens = 0;  // Have a place.
  bool borrows_tail = false;     // In some window; see SequenceBlocks.
  // A failed copy took what a sliding window has passed: the sequence can only be freed.
  bool must_be_freed = false;
  bool keyed = false;         // Its namespace is: see NamespaceKey.
  uint32_t losses = 0;        // How often a failed copy took computed tokens away,
  uint32_t known_losses = 0;  // and how often as far as the client has said that it knows.
  absl::InlinedVector<SequenceBlocks, 1> windows;  // Index for index the manager's windows.

  TenantId tenant = kDefaultTenant;  // Whose its blocks are, until they are published.
  uint32_t prompt_tokens = 0;
  uint32_t matched_tokens = 0;  // Cached when it was added.
  // The most that were computed when it was forked: what forks may have in its blocks, though a
  // failed copy took the KV.
  uint32_t forked_tokens = 0;
  // Tokens from `named_begin` on, at least up to token_count, where any token has no place or the
  // sequence was forked before all were computed. Owned by the sequence and its forks.
  std::shared_ptr<const Charged<SequenceContent>> named;
  uint32_t named_begin = 0;
  SequenceExtras extras;
  // Owned by the sequence and its forks; none: no wishes.
  std::shared_ptr<const Charged<SequenceRetention>> wishes;
  SequenceAccounts::Charge charge;

  // What there is while this sequence runs, whatever else ends: its own and what it shares.
  uint64_t kept_bytes() const {
    return charge.bytes() + extras.bytes() + (named == nullptr ? 0 : named->charge.bytes()) +
           (wishes == nullptr ? 0 : wishes->charge.bytes());
  }
  bool has_waiting_tokens() const { return token_count > reserved_tokens; }
  const SequenceRetention& retention() const {
    static const SequenceRetention kNone;
    return wishes == nullptr ? kNone : wishes->value;
  }
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCE_H_
