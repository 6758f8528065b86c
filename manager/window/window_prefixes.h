// Finds the cached prefixes of one window, and carries out the operations that name a prefix.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_PREFIXES_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_PREFIXES_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "events/block_key.h"
#include "manager/services/operation_scope.h"
#include "manager/tree/prefix_tree.h"
#include "manager/window/block_holds.h"
#include "manager/window/cached_blocks.h"
#include "manager/window/prefix_match.h"
#include "manager/window/window_part.h"
#include "manager/words/ids.h"
#include "manager/words/lists.h"
#include "manager/words/prompt_key.h"
#include "manager/words/retention.h"
#include "pools/types.h"

namespace pagoda {

// Keeps no state: a match is the caller's, and is valid until a block leaves the tree.
// Thread-compatible.
//
// Invariant (rule 7): a match that is cut to a ValidLength() has the bytes of all tokens that a
// sequence needs to go on from there. Under full attention every length up to the match's is valid.
class WindowPrefixes final : private WindowPart {
 public:
  WindowPrefixes(const WindowFloor& floor, BlockHolds& holds, CachedBlocks& cached);

  // --- Lookups ---

  // The tiers in which a prefix is looked up.
  enum class Reach : uint8_t { kMemory, kAllTiers };
  // The longest cached prefix of `key`.
  PrefixMatch FindPrefix(const NamespaceKey& name_space, const PromptKey& key, Reach reach) const;
  // Adds up the tokens of a match, from the needed part on, by the tier of their nearest copy.
  void CountTokensByTier(const PrefixMatch& match, std::vector<uint32_t>* tokens) const;
  // The tokens of a match that lie below the first tier. Cost: O(blocks of the match).
  uint32_t LowerTokens(const PrefixMatch& match) const;
  // The cached block with content `key` after the match's whole blocks; kNoBlock if there is none.
  // REQUIRES: the match is not empty.
  BlockId FindTail(const PrefixMatch& match, const BlockKey& key) const;
  // The lengths of the cached blocks there whose content is a beginning of `key`, longest first.
  // REQUIRES: the match is not empty. Cost: O(log siblings + lengths returned).
  absl::InlinedVector<uint32_t, 4> TailLengths(const PrefixMatch& match, const BlockKey& key) const;
  // The largest length up to `limit` at which a sequence can go on from the match (rule 7). At a
  // hole, the cached sibling that shares most tokens with the key (PrefixTree::FindClosest) can
  // give the last tokens. Cost: O(holes between `limit` and the result).
  uint32_t ValidLength(const PrefixMatch& match, uint32_t limit) const;
  // Cuts a match to a valid length.
  void CutMatch(PrefixMatch& match, uint32_t tokens) const;
  // Whether all tokens of the match's source matched.
  bool SourceIsWhole(const PrefixMatch& match) const;
  // The needs of AddSequence for the tenant, with capacity for `reserved_tokens` tokens.
  MatchDemand DemandFor(TenantId tenant, const PrefixMatch& match, uint64_t reserved_tokens) const;
  // The match's primary blocks that are held already: by any holder, so the pool does not give them
  // again; by the tenant, so its quota does not count them again.
  struct Held {
    uint32_t by_any = 0;
    uint32_t by_tenant = 0;
  };
  Held HeldIn(const PrefixMatch& match, TenantId tenant) const;
  // The blocks that a pin holds: the needed part of the match and its source.
  std::vector<BlockId> PinnableBlocks(const PrefixMatch& match) const;
  // Appends the match's blocks that have bytes, and its source.
  void Inspect(const PrefixMatch& match, std::vector<InspectedBlock>* out) const;

  // --- Operations on a prefix ---

  // Offload offloads the blocks of a match, last to first. Prefetch onboards them, first to last.
  // Each stops when it finds no slot. Both return the number of blocks moved.
  uint32_t Offload(OperationScope& op, const PrefixMatch& match);
  uint32_t Prefetch(OperationScope& op, const PrefixMatch& match);
  // Orders fetches of the match's blocks that lie on disk alone. `fetched` grows by the number of
  // fetches ordered. Returns the last one's ticket.
  Ticket Fetch(OperationScope& op, const PrefixMatch& match, absl::Time deadline,
               uint32_t* fetched);
  // Takes the cached blocks that continue the prefix out of the tree. Returns their number.
  uint64_t Invalidate(OperationScope& op, const NamespaceKey& name_space, const PromptKey& prefix);
  // A tenant can only raise the retention of blocks that it does not own. Returns the number of
  // blocks that a range names and that it applied to.
  uint32_t SetRetention(OperationScope& op, const PrefixMatch& match,
                        const SequenceRetention& retention, TenantId tenant);

 private:
  bool IsThere(const PrefixMatch& match, uint32_t index) const;
  // Holds the blocks of the match that lie in memory, and returns them.
  std::vector<BlockId> HoldInMemory(OperationScope& op, const PrefixMatch& match);
  static NodeRef EndOf(const PrefixMatch& match) {
    return match.blocks.empty() ? match.root : NodeRef::Block(match.blocks.back());
  }
  PrefixTree::Closest FindBeside(const PrefixMatch& match, uint32_t index,
                                 uint32_t token_count) const;

  BlockHolds& holds_;
  CachedBlocks& cached_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_PREFIXES_H_
