// A running sequence: its tokens so far and, for each window, its blocks.
#ifndef PAGODA_MANAGER_TREE_SEQUENCE_H_
#define PAGODA_MANAGER_TREE_SEQUENCE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "events/block_key.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/accounts/sequence_extras.h"
#include "manager/advice/reuse_distances.h"
#include "manager/tree/prefix_tree.h"
#include "manager/words/ids.h"
#include "manager/words/retention.h"
#include "manager/words/sequence_content.h"
#include "pools/types.h"

namespace pagoda {

// A sequence's blocks in one window, kept by that window's manager.
//
// Invariants, with p = tokens_per_block and `published` blocks at the front:
// 1. Entries [0, first) are empty: the window has passed them, or a match did not need them. The
// sequence holds the others.
// 2. Blocks [0, published) are full, computed and represented in the tree: by themselves, or by
// canonical[i] if the tree had the same content before. The sequence holds that one too. Only the
// sequence has the other blocks, except for a borrowed tail.
// 3. tip is the tree's node for block published - 1, which the sequence holds; without one it is
// the root. New blocks become its children.
// 4. The sequence publishes nothing any more after a reset of the tree (tree_epoch differs from the
// tree's), or once the tip has left the tree.
struct SequenceBlocks {
  std::vector<BlockHandle> table;  // Token t lies in table[t / p].
  // Parallel to the table; kNoBlock if the block represents itself.
  std::vector<BlockId> canonical;
  // The block with the entry's content in the tree, if the entry is published.
  BlockId InTree(uint32_t index) const {
    return canonical[index] != kNoBlock ? canonical[index] : table[index].id;
  }
  uint32_t first = 0;
  uint32_t published = 0;
  // In a sliding window: other prompts branch from this one before this entry; 0: nowhere.
  uint32_t branch = 0;
  // The last entry is another sequence's tail. It must be copied before this sequence writes it, if
  // that sequence or the cache still has it.
  bool borrows_tail = false;
  // The sequence took over a cached block, which is now entry `index`. When the entry is published,
  // it keeps that block's retention, unless the sequence's own retention names it.
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
  ReuseDistances::Request followed;
  // No tree has this epoch.
  static constexpr uint64_t kNoTree = std::numeric_limits<uint64_t>::max();
};

// Invariants, in tokens from the sequence's start:
// 1. computed_tokens <= min(token_count, reserved_tokens): a token with KV was named and has a
// place.
// 2. Tokens [0, min(token_count, reserved_tokens)) are written in the blocks' token arrays, if the
// sequence still has these blocks. The rest is in `named`. For a keyed sequence this holds for the
// keys of the blocks.
// 3. Each table has BlocksFor(reserved_tokens) entries.
// 4. Everything that a client can make long, except the tables, is immutable and shared with forks.
// So a fork costs its tables. `charge` is the cost of this sequence alone.
// 5. For a keyed sequence all of these lengths are whole blocks.
struct Sequence {
  SequenceKey key;
  uint32_t token_count = 0;      // Named.
  uint32_t computed_tokens = 0;  // KV complete and visible.
  uint32_t reserved_tokens = 0;  // Have a place.
  bool borrows_tail = false;     // In some window; see SequenceBlocks.
  // A failed copy took bytes that a sliding window has passed: the sequence can only be freed.
  bool must_be_freed = false;
  bool keyed = false;                              // Its namespace is keyed: see NamespaceKey.
  uint32_t losses = 0;                             // How often a failed copy took computed tokens.
  uint32_t known_losses = 0;                       // How many of these the client has acknowledged.
  absl::InlinedVector<SequenceBlocks, 1> windows;  // By window index.
  // No two sequences ever have the same number. A sequence gets a new one when it loses computed
  // tokens. So while a reader finds the same number, the KV that it has read has not changed.
  uint64_t kv_version = 0;

  TenantId tenant = kDefaultTenant;  // Whose blocks these are until they are published.
  uint32_t prompt_tokens = 0;
  uint32_t matched_tokens = 0;  // Cached when the sequence was added.
  bool uncounted = false;       // See SequencePrompt.
  // The highest computed_tokens at any fork. Forks can have these tokens in the sequence's blocks,
  // even if a failed copy took the KV later.
  uint32_t forked_tokens = 0;
  // Tokens from `named_begin` on, at least up to token_count. Set if a token has no place, or if
  // the sequence was forked before all tokens were computed. Owned by the sequence and its forks.
  std::shared_ptr<const Charged<SequenceContent>> named;
  uint32_t named_begin = 0;
  SequenceExtras extras;
  // Owned by the sequence and its forks. Null: none.
  std::shared_ptr<const Charged<SequenceRetention>> own_retention;
  SequenceAccounts::Charge charge;

  // The bytes that exist while this sequence runs, even if all others end: its own and shared ones.
  uint64_t kept_bytes() const {
    return charge.bytes() + extras.bytes() + (named == nullptr ? 0 : named->charge.bytes()) +
           (own_retention == nullptr ? 0 : own_retention->charge.bytes());
  }
  bool has_waiting_tokens() const { return token_count > reserved_tokens; }
  const SequenceRetention& retention() const {
    static const SequenceRetention kNone;
    return own_retention == nullptr ? kNone : own_retention->value;
  }
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TREE_SEQUENCE_H_
