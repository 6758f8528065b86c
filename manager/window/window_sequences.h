// The blocks of the running sequences in one window, from a sequence's match to its end.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_SEQUENCES_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_SEQUENCES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "manager/accounts/session_table.h"
#include "manager/services/operation_scope.h"
#include "manager/tree/block_store.h"
#include "manager/tree/sequence.h"
#include "manager/window/block_holds.h"
#include "manager/window/cached_blocks.h"
#include "manager/window/prefix_match.h"
#include "manager/window/window_counts.h"
#include "manager/window/window_part.h"
#include "manager/words/block_facts.h"
#include "manager/words/retention.h"
#include "manager/words/sequence_content.h"
#include "pools/types.h"

namespace pagoda {

// Changes Sequence::windows of this window, and keeps nothing of a sequence beside it. Refuses
// nothing: the caller has checked, in every window, that enough blocks are available.
// Thread-compatible.
//
// Invariants
// 1. Those of SequenceBlocks, which CheckSequence() checks.
// 2. A sequence holds the blocks of its table and their canonical blocks, each by one hold, so they
// stay in the primary tier (rule 3) and the table is stable (rule 10).
// 3. A block is written only by the sequence that alone holds it, behind the tokens that are
// computed or shared.
class WindowSequences final : private WindowPart {
 public:
  WindowSequences(const WindowFloor& floor, WindowCounts& counts, BlockHolds& holds,
                  CachedBlocks& cached);

  // Makes the match the beginning of the sequence's blocks, and takes blocks until the table has
  // `table_size` entries. REQUIRES: WindowPrefixes::DemandFor(tenant, match, ...) fits, with this
  // tail.
  void Begin(OperationScope& op, Sequence& sequence, const NamespaceKey& name_space,
             const PrefixMatch& match, MatchTail tail, uint32_t table_size);
  // Fresh blocks that growth to `table_size` entries takes. That is one more if a borrowed tail
  // must be copied first.
  uint32_t BlocksToGrow(const Sequence& sequence, uint32_t table_size) const;
  bool MustCopyTail(const Sequence& sequence) const;
  // Copies the part of a borrowed tail that lies in the first `computed_tokens` tokens. REQUIRES:
  // BlocksToGrow() blocks are available.
  void Grow(OperationScope& op, Sequence& sequence, uint32_t table_size, uint32_t computed_tokens);
  // Writes token ids from `position` on. REQUIRES: the table has entries for them, and these blocks
  // are not published.
  void WriteTokens(Sequence& sequence, uint32_t position, absl::Span<const TokenId> tokens);
  // Writes the keys of a keyed sequence's blocks, from `position` on. REQUIRES: as WriteTokens, and
  // `position` begins a block.
  void WriteKeys(Sequence& sequence, uint32_t position, absl::Span<const ClientKey> keys);
  // Appends the ids of tokens [begin, end), or the keys of their blocks for a keyed sequence.
  // REQUIRES: the table has these blocks.
  void ReadTokens(const Sequence& sequence, uint32_t begin, uint32_t end,
                  SequenceContent* out) const;
  // Publishes the rest, with kPublish also a computed tail. Then releases every block, tail first.
  // kDrop is for a client that can still write behind the tail.
  enum class ComputedTail : uint8_t { kPublish, kDrop };
  void End(OperationScope& op, Sequence& sequence, ComputedTail tail);

  // --- Forks and truncations ---

  // Shares the blocks of `parent` that have computed tokens.
  void Fork(const Sequence& parent, Sequence& child);
  // Whether the window still has the blocks that a sequence of `tokens` tokens needs.
  bool CanTruncate(const Sequence& sequence, uint32_t tokens) const;
  // Whether the block in which the cut lies must be copied.
  bool MustCopyCut(const Sequence& sequence, uint32_t tokens) const;
  // Drops the blocks behind the first `tokens` tokens. Returns the first entry that changed.
  // REQUIRES: CanTruncate(); if MustCopyCut(), a block is available.
  uint32_t Truncate(OperationScope& op, Sequence& sequence, uint32_t tokens);

  // --- Publishing (window_sequences_publish.cc) ---

  // Puts the blocks that are full and computed into the tree. Then releases the blocks that a
  // sliding window has passed.
  void Publish(OperationScope& op, Sequence& sequence);

  // The entry of the sequence's table whose own block is `block`, if there is one.
  std::optional<uint32_t> FindEntry(const Sequence& sequence, BlockId block) const;
  // Adds deferred releases to `session` that hold the blocks of its sequence that it may write.
  void HoldWritable(const Sequence& sequence, Session& session);
  // For tests. Stops the process unless the invariants hold for the sequence.
  void CheckSequence(const Sequence& sequence) const;

 private:
  bool Detached(const SequenceBlocks& blocks) const;
  bool IsPrivateTo(BlockId id) const;
  void ReleaseEntry(OperationScope& op, const Sequence& sequence, uint32_t index);
  void ReleaseAll(OperationScope& op, const Sequence& sequence);
  void TakeOver(OperationScope& op, BlockId id);
  BlockId CopyTail(OperationScope& op, BlockId source, uint32_t num_tokens);

  // --- Publishing (window_sequences_publish.cc) ---
  BlockKey KeyOf(const Sequence& sequence, BlockId id, uint32_t index, uint32_t token_count);
  std::optional<BlockRetention> WishFor(const Sequence& sequence, uint32_t index) const;
  ContentFacts FactsOf(const Sequence& sequence, uint32_t index, uint32_t token_count) const;
  bool PublishBlock(OperationScope& op, const Sequence& sequence, SequenceBlocks& blocks,
                    uint32_t index, uint32_t token_count);
  uint32_t PublishChain(OperationScope& op, const Sequence& sequence, SequenceBlocks& blocks,
                        uint32_t first, uint32_t end);
  void InsertIntoTree(OperationScope& op, BlockId id, const Sequence& sequence,
                      SequenceBlocks& blocks, uint32_t index, const BlockKey& key);
  void FillFrom(OperationScope& op, BlockId canonical, const Sequence& sequence, uint32_t index);
  void PublishTail(OperationScope& op, Sequence& sequence);
  BlockId FindLonger(NodeRef parent, const BlockKey& key) const;
  void Slide(OperationScope& op, Sequence& sequence);
  void KeepBranch(SequenceBlocks& blocks, uint32_t index);

  WindowCounts& counts_;
  BlockHolds& holds_;
  CachedBlocks& cached_;
  std::vector<TokenExtra> key_extras_;  // The extras of the key that KeyOf() made last.
};

// Inline, because each sequence of a decode step calls it.
inline void WindowSequences::WriteTokens(Sequence& sequence, uint32_t position,
                                         absl::Span<const TokenId> tokens) {
  SequenceBlocks& blocks = BlocksOf(sequence);
  while (!tokens.empty()) {
    const uint32_t index = tokens_per_block().BlockForToken(position);
    const uint32_t offset = tokens_per_block().OffsetInBlock(position);
    PAGODA_CHECK(index >= blocks.published, "rule 10: a published block is not written");
    const size_t count = std::min<size_t>(tokens.size(), tokens_per_block().value() - offset);
    CopyTokenIds(tokens.first(count), store_.tokens(blocks.table[index].id).data() + offset);
    tokens.remove_prefix(count);
    position += static_cast<uint32_t>(count);
  }
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_SEQUENCES_H_
