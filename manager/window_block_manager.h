// The blocks of one attention window: handing them out, finding them by content, taking them back,
// evicting them.
#ifndef PAGODA_MANAGER_WINDOW_BLOCK_MANAGER_H_
#define PAGODA_MANAGER_WINDOW_BLOCK_MANAGER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/shadow_tree.h"
#include "manager/block_store.h"
#include "manager/event_recorder.h"
#include "manager/eviction_policy.h"
#include "manager/ids.h"
#include "manager/prefix_tree.h"
#include "manager/sequence.h"
#include "manager/stats.h"
#include "pools/types.h"

namespace pagoda {

// Does, and does not decide whether: the caller (BlockManager) has checked arguments and room in
// every window before it changes one. Thread-compatible. Records every change of the tree.
//
// Invariants
// 1. A block is free, raw (one owner), private (held by sequences, not in the tree) or cached (in
// the tree, held or not).
// 2. Held means refs > 0. The parent of a held cached block is held, so what nobody holds can all
// be evicted, leaves first.
// 3. Candidates of the policy: cached, not held, no children. Cached, not held, with children:
// parked.
// 4. cached_unheld_ counts candidates and parked blocks, held_ counts held blocks; free +
// cached_unheld_ + held_ = capacity.
class WindowBlockManager {
 public:
  struct Options {
    WindowSize window = kFullAttention;
    TokensPerBlock tokens_per_block{1};
    uint32_t primary_blocks = 0;
  };

  // A cached prefix: whole blocks, then perhaps a tail that can be taken over. Holds nothing.
  struct Match {
    std::vector<BlockId> blocks;
    BlockId tail = kNoBlock;
    uint32_t tokens = 0;  // The tail's included.
    uint32_t num_blocks() const {
      return static_cast<uint32_t>(blocks.size()) + (tail != kNoBlock ? 1 : 0);
    }
  };

  // `recorder` outlives the manager.
  WindowBlockManager(Options options, EventRecorder* recorder);

  WindowSize window() const { return options_.window; }
  TokensPerBlock tokens_per_block() const { return options_.tokens_per_block; }
  uint32_t capacity() const { return store_.capacity(); }
  // Blocks that can be had now: free ones, and cached ones that nobody holds.
  uint32_t available() const { return store_.free_count() + cached_unheld_; }

  // --- Prefixes ---

  // The longest cached prefix of `tokens`, at most `limit` tokens. A tail counts only whole: in
  // part it would need a copy.
  Match FindPrefix(const NamespaceKey& name_space, absl::Span<const TokenId> tokens,
                   uint32_t limit) const;
  // Blocks of a match that are available() now and will not be once it is held.
  uint32_t UnheldIn(const Match& match) const;
  BlockHandle handle(BlockId id) const { return store_.handle(id); }

  // --- Sequences ---

  // Makes the match the beginning of `blocks`: holds its blocks, takes over its tail.
  void Begin(SequenceBlocks& blocks, const NamespaceKey& name_space, const Match& match);
  // Adds fresh blocks. REQUIRES: count <= available().
  void Grow(SequenceBlocks& blocks, uint32_t count);
  // Writes the ids of the tokens from `position` on. REQUIRES: the table has place, the blocks are
  // not published.
  void WriteTokens(SequenceBlocks& blocks, uint32_t position, absl::Span<const TokenId> tokens);
  // Puts the blocks that are full and computed into the tree.
  void Publish(SequenceBlocks& blocks, uint32_t computed_tokens);
  // Publishes the rest, a computed tail too, then lets go of every block, tail first.
  void End(SequenceBlocks& blocks, uint32_t computed_tokens);

  // --- Raw blocks ---

  // REQUIRES: out.size() <= available().
  void TakeRaw(SessionId owner, absl::Span<BlockHandle> out);
  // OK if `owner` may free all of `blocks`, each once; else the error that BlockManager::FreeBlocks
  // documents.
  absl::Status CheckRaw(SessionId owner, absl::Span<const BlockRef> blocks);
  // REQUIRES: CheckRaw(owner, blocks) is OK.
  void FreeRaw(absl::Span<const BlockRef> blocks);
  // All raw blocks of `owner`, ascending. Cost: O(capacity).
  std::vector<BlockRef> RawBlocksOf(SessionId owner) const;

  // --- Operators ---

  // Empties the tree: what nobody holds is free, what sequences hold becomes private. Returns the
  // blocks that left. Cost: O(capacity).
  uint64_t Reset();

  void CountLookup(uint32_t lookup_tokens, uint32_t hit_tokens);
  WindowStats Stats() const;
  // Stops the process unless rule 5 holds by the counters. Cost: O(1).
  void CheckAccounting() const;

  // --- For tests ---

  // `holders[i]` says how often block i is held. Stops the process where the arrays disagree with
  // it or with each other.
  void CheckInvariants(absl::Span<const uint32_t> holders) const;
  std::vector<TreeEntry> DumpTree() const;
  uint64_t tree_epoch() const { return tree_epoch_; }

 private:
  BlockId TakeBlock(BlockState state);
  void Evict(BlockId id);
  void Hold(BlockId id);
  void LetGo(BlockId id);
  void TakeOver(BlockId id);
  void RemoveFromTree(BlockId id, RemovalReason reason);
  void PublishBlock(SequenceBlocks& blocks, uint32_t index);
  void PublishTail(SequenceBlocks& blocks, uint32_t computed_tokens);
  void InsertIntoTree(BlockId id, const SequenceBlocks& blocks, uint32_t token_count);
  absl::Status CheckOneRaw(SessionId owner, const BlockRef& ref) const;
  bool Detached(const SequenceBlocks& blocks) const { return blocks.tree_epoch != tree_epoch_; }

  const Options options_;
  EventRecorder* const recorder_;
  BlockStore store_;
  PrefixTree tree_;
  std::unique_ptr<EvictionPolicy> policy_;
  uint32_t cached_unheld_ = 0;
  uint32_t held_ = 0;
  uint64_t tree_epoch_ = 0;  // Grows with each Reset.
  WindowCounters counters_;
  std::vector<bool> seen_;  // Scratch of CheckRaw, all false between calls.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_BLOCK_MANAGER_H_
