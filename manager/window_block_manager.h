// The blocks of one attention window: handing them out, finding them by content, taking them back,
// moving them between tiers, evicting them.
#ifndef PAGODA_MANAGER_WINDOW_BLOCK_MANAGER_H_
#define PAGODA_MANAGER_WINDOW_BLOCK_MANAGER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/shadow_tree.h"
#include "manager/block_facts.h"
#include "manager/block_store.h"
#include "manager/ids.h"
#include "manager/lifecycle_events.h"
#include "manager/lists.h"
#include "manager/operation_scope.h"
#include "manager/prefix_tree.h"
#include "manager/prefix_uses.h"
#include "manager/prompt_key.h"
#include "manager/recovered_block.h"
#include "manager/retention.h"
#include "manager/reuse_intervals.h"
#include "manager/sequence.h"
#include "manager/stats.h"
#include "manager/tenants.h"
#include "manager/tier_residency.h"
#include "pools/types.h"

namespace pagoda {

// Does, and does not decide whether: the caller (BlockManager) has checked arguments and room in
// every window before it changes one. Thread-compatible. Records every change of the tree.
//
// Invariants
// 1. A block's state is one of BlockState's; what nobody holds is free, cached or a hole.
// 2. Where its bytes lie and who holds them is TierResidency's, with what follows from it.
// 3. Full attention: the parent of a held cached block is held; a block is in no nearer tier than
// its parent. So what nobody holds can all be evicted, leaves first.
// 4. Holes are only in sliding windows, have children, and are at most max_holes.
// 5. What a reset has cut off keeps all of the above until FreeCutOff() comes to it. It is under
// roots of its own, so no prefix is found there, and no event tells of it any more.
class WindowBlockManager final : private CacheExit {
 public:
  struct Options {
    WindowSize window = kFullAttention;
    uint32_t index = 0;  // Among the cache's windows.
    TokensPerBlock tokens_per_block{1};
    size_t num_tiers = 1;  // Of the cache.
    std::array<TierResidency::Options::TierOptions, kMaxTiers> tiers;
    uint32_t max_holes = 0;
    uint32_t pin_budget_blocks = 0;
    uint32_t reuse_sample = 0;  // Of so many blocks one is followed for Stats().lives; 0: none.
    const TenantTable* tenants = nullptr;  // Outlives the manager.
    uint64_t block_bytes = 0;              // In all pools.
  };
  using Policies = TierResidency::Policies;

  // A cached prefix, as far as one was found or, after CutMatch, wanted. Holds nothing.
  struct Match {
    // Whole blocks from the sequence's start; in a sliding window holes among them.
    std::vector<BlockId> blocks;
    uint32_t first = 0;  // Blocks before this one are not needed to go on from the end.
    // The block after them that shares its first source_tokens tokens; kNoBlock where none does.
    BlockId source = kNoBlock;
    uint32_t source_tokens = 0;
    uint32_t tokens = 0;  // All of it.
    // In a sliding window, of each place up to the one behind the blocks that were found: the first
    // of the blocks before it that are there without a gap.
    std::vector<uint32_t> runs;
    // A block on disk alone counts as none. In a cache with a tier on disk such a match takes no
    // part of a block beside a hole.
    bool in_memory = false;
    // Some block of the path was on disk alone: there is more to be found than was matched.
    bool has_more_on_disk = false;
    // Where it was looked for, for what lies beside a hole. The key's tokens outlive the match.
    NodeRef root;
    PromptKey key;
  };
  // What becomes of the source of a match.
  enum class Tail : uint8_t { kNone, kCopy, kTakeOver };
  // Primary blocks that something takes of one limit, and what the limit leaves.
  struct Need {
    uint64_t blocks = 0;
    uint64_t available = 0;

    bool met() const { return blocks <= available; }
  };
  // Of both limits; each refuses by itself.
  struct Needs {
    Need pool;   // Fresh blocks, and blocks to bring up, with the match held.
    Need quota;  // Blocks that the tenant does not hold yet; always met without a quota.

    bool met() const { return pool.met() && quota.met(); }
  };
  // What a match and room for more would take.
  struct Demand {
    Needs needs;
    Tail tail = Tail::kNone;
    bool fits = false;
  };

  // Block ids are below this.
  static uint32_t NumIds(const Options& options);

  // By tier of the cache.
  static std::vector<uint32_t> BlocksPerTier(const Options& options);

  // What `services` names outlives the manager.
  WindowBlockManager(const Options& options, Policies policies, const CoreServices& services);

  WindowSize window() const { return options_.window; }
  uint32_t index() const { return options_.index; }
  bool sliding() const { return options_.window != kFullAttention; }
  TokensPerBlock tokens_per_block() const { return options_.tokens_per_block; }
  uint32_t capacity(Tier tier = Tier::kPrimary) const {
    return options_.tiers[static_cast<size_t>(tier)].blocks;
  }
  // Primary blocks that can be had now: free ones, and cached ones that nobody holds; for a
  // tenant, as far as its quota goes.
  uint32_t available() const { return residency_.available(); }
  uint32_t available(TenantId tenant) const { return residency_.available(tenant); }
  // Primary blocks that the tenant may hold more, and in all; kNoQuota: any number.
  uint32_t QuotaLeft(TenantId tenant) const { return accounts().Left(Tier::kPrimary, tenant); }
  uint32_t Quota(TenantId tenant) const { return accounts().QuotaOf(Tier::kPrimary, tenant); }
  // What `blocks` fresh ones take.
  Needs NeedsOf(uint64_t blocks, TenantId tenant) const {
    return {.pool = {blocks, available()}, .quota = {blocks, QuotaLeft(tenant)}};
  }
  // Blocks of all tiers that a sequence, a session, a pin or a drain holds.
  uint32_t held_blocks() const { return residency_.held_blocks(); }
  BlockHandle handle(BlockId id) const { return store_.handle(id); }
  // Of a block in the tree.
  BlockHash hash(BlockId id) const { return tree_.hash(id); }

  // --- Prefixes (window_prefixes.cc) ---

  // Which tiers a prefix is looked for in.
  enum class Reach : uint8_t { kMemory, kAllTiers };
  // The longest cached prefix of `key`.
  Match FindPrefix(const NamespaceKey& name_space, const PromptKey& key, Reach reach) const;
  // How many tokens of a match, from the needed part on, lie in each tier, by their nearest copies.
  void CountTokensByTier(const Match& match, std::vector<uint32_t>* tokens) const;
  // Tokens of a match that are below the first tier. Cost: O(its blocks).
  uint32_t LowerTokens(const Match& match) const;
  // The cached block after the match's whole blocks whose content is `key`; kNoBlock where there is
  // none. REQUIRES: the match is not empty.
  BlockId FindTail(const Match& match, const BlockKey& key) const;
  // The lengths of the cached blocks there whose content is a beginning of `key`, longest first.
  // REQUIRES: likewise. Cost: O(log siblings + what is returned).
  absl::InlinedVector<uint32_t, 4> TailLengths(const Match& match, const BlockKey& key) const;
  // The largest length up to `limit` at which a sequence could go on from the match (rule 7). In
  // the place of a hole stands the cached block beside it that shares most with the key, as far as
  // that goes (and as PrefixTree::FindClosest finds it). Cost: O(holes between the two).
  uint32_t ValidLength(const Match& match, uint32_t limit) const;
  // Cuts a match to a valid length.
  void CutMatch(Match& match, uint32_t tokens) const;
  // Whether the match's source belongs to it whole: it is no longer than what matched of it.
  bool SourceIsWhole(const Match& match) const;
  // What AddSequence would take for room up to `reserved_tokens`, for the tenant.
  Demand DemandFor(TenantId tenant, const Match& match, uint64_t reserved_tokens) const;
  // The match's primary blocks that are held: by anybody, which the pool does not give again, and
  // by the tenant, which its quota does not.
  struct Held {
    uint32_t by_any = 0;
    uint32_t by_tenant = 0;
  };
  Held HeldIn(const Match& match, TenantId tenant) const;

  // Move the blocks of a match down, last first, or up, first first, as far as that is possible.
  // Return how many moved.
  uint32_t Offload(OperationScope& op, const Match& match);
  uint32_t Prefetch(OperationScope& op, const Match& match);
  // Orders fetches of the blocks of a match that lie on disk alone. `fetched` grows by those that
  // are on their way now. Returns the last one's ticket.
  Ticket Fetch(OperationScope& op, const Match& match, absl::Time deadline, uint32_t* fetched);
  // A pin's blocks: of the needed part of the match, with its source.
  std::vector<BlockId> PinnableBlocks(const Match& match) const;
  // Whether the tenant may pin them too. Errors: PIN_BUDGET_EXCEEDED.
  absl::Status CheckPinBudget(TenantId tenant, absl::Span<const BlockId> blocks) const;
  // Blocks that some pin holds; that some pin of the tenant's holds.
  uint32_t pinned_blocks() const { return residency_.pinned_blocks(); }
  uint32_t pinned_blocks(TenantId tenant) const { return tenant_pinned_[tenant.value()]; }
  uint32_t pin_budget_blocks() const { return options_.pin_budget_blocks; }
  // The part of it that a tenant's pins may take; the default tenant's may take all.
  uint32_t pin_budget_blocks(TenantId tenant) const;
  // Blocks that `tenant` would hold more, with a pin of them: what of its quota that takes.
  Need PinNeed(absl::Span<const BlockId> blocks, TenantId tenant) const;
  struct PinHold {
    PinId pin;
    TenantId tenant;  // The one whose share of the pin budget it takes.
    TenantId holder;  // The one that is charged for the blocks.
  };
  // The blocks are cached as long as the pin holds them: before one leaves the tree,
  // CoreServices::pins ends the pin. REQUIRES: PinNeed() is met.
  void Pin(OperationScope& op, const PinHold& pin, absl::Span<const BlockId> blocks);
  void Unpin(OperationScope& op, const PinHold& pin, absl::Span<const BlockId> blocks);
  uint64_t Invalidate(OperationScope& op, const NamespaceKey& name_space, const PromptKey& prefix);
  // What is not the tenant's is only raised. Returns the blocks that a range names and that it
  // applied to.
  uint32_t SetRetention(OperationScope& op, const Match& match, const SequenceRetention& retention,
                        TenantId tenant);
  // Appends the match's blocks that have bytes, with its source.
  void Inspect(const Match& match, std::vector<InspectedBlock>* out) const;

  // --- Sequences (window_sequences.cc) ---

  // Makes the match the beginning of the sequence's blocks, and takes blocks up to `table_size`
  // entries. REQUIRES: RoomFor(match, ...) fits, with this tail.
  void Begin(OperationScope& op, Sequence& sequence, const NamespaceKey& name_space,
             const Match& match, Tail tail, uint32_t table_size);
  // Fresh blocks that growing to `table_size` entries takes: one more where a borrowed tail must be
  // copied first.
  uint32_t BlocksToGrow(const Sequence& sequence, uint32_t table_size) const;
  bool MustCopyTail(const Sequence& sequence) const;
  // Of a borrowed tail what lies in the first `computed_tokens` tokens is copied. REQUIRES:
  // BlocksToGrow() <= available().
  void Grow(OperationScope& op, Sequence& sequence, uint32_t table_size, uint32_t computed_tokens);
  // Writes the ids of the tokens from `position` on. REQUIRES: the table has place, the blocks are
  // not published.
  void WriteTokens(Sequence& sequence, uint32_t position, absl::Span<const TokenId> tokens);
  // Writes the keys of the blocks from `position` on, of a keyed sequence. REQUIRES: likewise, and
  // `position` begins a block.
  void WriteKeys(Sequence& sequence, uint32_t position, absl::Span<const ClientKey> keys);
  // Appends the ids of tokens [begin, end), whose blocks are there; of a keyed sequence the keys of
  // these blocks.
  void ReadTokens(const Sequence& sequence, uint32_t begin, uint32_t end,
                  SequenceContent* out) const;
  // Puts the blocks that are full and computed into the tree, then lets go of those that a sliding
  // window has passed.
  void Publish(OperationScope& op, Sequence& sequence);
  // Publishes the rest, a computed tail too where somebody is not still to write behind it, then
  // lets go of every block, tail first.
  enum class ComputedTail : uint8_t { kPublish, kDrop };
  void End(OperationScope& op, Sequence& sequence, ComputedTail tail);
  // Shares the blocks of `parent` with computed tokens.
  void Fork(const Sequence& parent, Sequence& child);
  // Whether the window still has what a sequence of `tokens` tokens needs.
  bool CanTruncate(const Sequence& sequence, uint32_t tokens) const;
  // Whether the block that is cut must be copied.
  bool MustCopyCut(const Sequence& sequence, uint32_t tokens) const;
  // Drops the blocks behind the first `tokens` tokens. Returns the first entry that changed.
  // REQUIRES: CanTruncate(); if MustCopyCut(), available() > 0.
  uint32_t Truncate(OperationScope& op, Sequence& sequence, uint32_t tokens);
  // The table entry whose own bytes lie in `block`, if the sequence has one.
  std::optional<uint32_t> FindEntry(const Sequence& sequence, BlockId block) const;

  // --- Raw blocks ---

  // REQUIRES: out.size() <= available().
  void TakeRaw(OperationScope& op, SessionId owner, absl::Span<BlockHandle> out);
  // OK if `owner` may free all of `blocks`, each once; else the error that BlockManager::FreeBlocks
  // documents.
  absl::Status CheckRaw(TenantId tenant, SessionId owner, absl::Span<const BlockRef> blocks);
  // REQUIRES: CheckRaw(op.tenant, owner, blocks) is OK.
  void FreeRaw(OperationScope& op, absl::Span<const BlockRef> blocks);
  // BlockManager::CheckWritable for a session with these sequences.
  absl::Status CheckWritable(SessionId session, absl::Span<const Sequence* const> sequences,
                             const BlockRef& ref) const;
  // Holds, by drains of `session`, the blocks of its sequence that it may write.
  void HoldWritable(const Sequence& sequence, Session& session);
  // The raw blocks of `owner` from id `*next` on, ascending: at most `max_blocks`, among at most
  // `max_ids` ids. Moves `*next` behind what was looked at. Cost: O(ids looked at).
  std::vector<BlockRef> NextRawBlocks(SessionId owner, BlockId* next, size_t max_blocks,
                                      uint32_t max_ids) const;

  // --- Time, copies, operators ---

  // A drain of the block for `tenant` is over.
  void EndDeferredRelease(OperationScope& op, BlockId id, TenantId tenant);
  // Ends priorities whose duration is over, at most kMaxEndsByTime.
  void Expire(OperationScope& op);
  // Moves victims down until `free_target` blocks of the tier are free, at most `max_blocks`.
  uint32_t OffloadAhead(OperationScope& op, Tier tier, uint32_t free_target, uint32_t max_blocks) {
    return residency_.OffloadAhead(op, tier, free_target, max_blocks);
  }
  // Whether `block` still lives and has its nearest copy in `slot`.
  bool Owns(BlockRef block, SlotRef slot) const;
  // The bytes of a block of the tree are lost. Where nobody holds it, it falls to the copy that it
  // has below; else it leaves, with all below it.
  void Lose(OperationScope& op, BlockId id) override;
  // A copy to `slot` failed. Where that was to be one of the block's farther copies, it has one
  // less.
  void LoseLowerCopy(BlockRef block, SlotRef slot);
  bool in_tree(BlockId id) const { return store_[id].in_tree(); }

  // --- A tier on disk: see TierResidency ---

  bool has_disk() const { return residency_.has_disk(); }
  void OrderBackups(OperationScope& op, uint32_t max_blocks) {
    residency_.OrderBackups(op, max_blocks);
  }
  void CopyEnded(OperationScope& op, Ticket ticket, bool ok) {
    residency_.CopyEnded(op, ticket, ok);
  }
  void FetchEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
    residency_.FetchEnded(op, ticket, status);
  }
  void BackupEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
    residency_.BackupEnded(op, ticket, status);
  }
  Ticket OrderErase(FileErase::What what) { return residency_.OrderErase(what); }
  // Takes back what was found on disk: blocks, and further copies of blocks that are there. What
  // cannot be taken back is dropped. Returns the number of copies. REQUIRES: nothing but Restore()
  // has happened yet. Errors: INVALID_ARGUMENT (a slot that does not exist, or is there twice; a
  // block that comes before its parent).
  absl::StatusOr<uint64_t> RestoreDisk(OperationScope& op, absl::Span<const RecoveredBlock> blocks);

  // --- A reset (window_reset.cc) ---

  // Empties the tree: all that is cached is cut off, and leaves it in this moment. Returns how many
  // blocks. REQUIRES: no block is pinned, and there is nothing cut off. Cost: O(1).
  uint64_t CutOffTree();
  // Lets go of what was cut off: what nobody holds is free, what sequences hold becomes private.
  // Looks at `max_blocks` ids. Returns at how many; fewer: nothing is left.
  uint32_t FreeCutOff(OperationScope& op, uint32_t max_blocks);
  // Whether a block that was cut off is there still: evictable, unless it is held, and in no event.
  bool has_cut_off() const { return next_cut_off_ < num_ids(); }
  bool IsCutOff(BlockId id) const { return tree_.IsCutOff(id); }

  // --- A warm restart (window_restore.cc) ---

  // Whether Restore can take them: places and parents are there, and each content once. Errors:
  // INVALID_ARGUMENT.
  absl::Status CheckRecovered(absl::Span<const RecoveredBlock> blocks) const;
  // Caches the blocks, whose bytes are in their slots. REQUIRES: CheckRecovered() is OK, and
  // nothing has happened yet.
  void Restore(OperationScope& op, absl::Span<const RecoveredBlock> blocks);
  // Holds every free primary slot by a drain.
  void HoldFree(OperationScope& op, std::deque<DeferredRelease>& deferred);

  // A sequence was added, and its prompt begins with the match.
  void CountLookup(OperationScope& op, uint32_t lookup_tokens, const Match& match);
  WindowStats Stats() const;
  void AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const {
    residency_.AddUses(tenant, uses);
  }
  // Stops the process unless rule 5 holds by the counters. Cost: O(1).
  void CheckAccounting() const { residency_.CheckAccounting(); }

  // --- What operators look at (window_scans.cc): as BlockManager's methods of the same names ---

  uint32_t num_ids() const { return store_.num_ids(); }
  void SlotStates(Tier tier, uint32_t from, absl::Span<SlotState> states) const {
    residency_.SlotStates(tier, from, states);
  }
  void PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const;
  std::optional<PrefixUse> Describe(const UsedPrefix& prefix) const;

  // --- For tests ---

  // By block, for which tenant each of its holds is; of a raw block the session's.
  using Holders = TierResidency::Holders;
  // Stops the process where the arrays disagree with `holders` or with each other.
  void CheckInvariants(const Holders& holders) const;
  void CheckSequence(const Sequence& sequence) const;
  std::vector<TreeEntry> DumpTree() const;
  std::vector<BlockId> DumpAllocated() const;

  // --- Subscribers that come late ---

  // Adds to `out` what is at the ids from `begin` on: the window's pools where `begin` is 0, cached
  // blocks, and those whose life outside the tree `lifecycle` tells of. Looks at `max_ids` ids at
  // least one, and at no more once it has added `max_tokens` tokens. Returns the id behind the last
  // one.
  BlockId ReadSnapshot(BlockId begin, size_t max_ids, size_t max_tokens, LifecycleEvents lifecycle,
                       absl::Time now, std::vector<Event>* out) const;

 private:
  // A pin holds a block.
  struct BlockPin {
    BlockId block;
    TenantId tenant;
    PinId pin;
    friend auto operator<=>(const BlockPin&, const BlockPin&) = default;
  };

  SequenceBlocks& BlocksOf(Sequence& sequence) const { return sequence.windows[options_.index]; }
  const SequenceBlocks& BlocksOf(const Sequence& sequence) const {
    return sequence.windows[options_.index];
  }
  const TenantAccounts& accounts() const { return residency_.accounts(); }
  EventRecorder& recorder() { return *services_.recorder; }

  // --- Prefixes (window_prefixes.cc) ---
  bool IsThere(const Match& match, uint32_t index) const;
  // Holds the blocks of the match that lie in memory, and returns them.
  std::vector<BlockId> HoldInMemory(OperationScope& op, const Match& match);
  static NodeRef EndOf(const Match& match) {
    return match.blocks.empty() ? match.root : NodeRef::Block(match.blocks.back());
  }
  PrefixTree::Closest FindBeside(const Match& match, uint32_t index, uint32_t token_count) const;

  // --- A warm restart (window_restore.cc) ---
  BlockId RestoreOnDisk(OperationScope& op, const RecoveredBlock& block, NodeRef root,
                        NodeRef parent, uint32_t depth, std::vector<BlockRef>* entered);

  // --- Holding (window_block_manager.cc) ---
  void CountAllocated(OperationScope& op, size_t blocks) {
    tenant_counters_[op.tenant.value()].allocated_blocks += blocks;
  }
  // For the tenant that the holder works for.
  void Hold(OperationScope& op, BlockId id, TenantId tenant);
  void LetGo(OperationScope& op, BlockId id, TenantId tenant);
  // LetGo, after the step's kernels have finished where the operation drains.
  void Release(OperationScope& op, BlockId id, TenantId tenant);
  absl::Status CheckOneRaw(TenantId tenant, SessionId owner, const BlockRef& ref) const;
  void HoldUntilStep(BlockId id, TenantId tenant, Session& session);
  void DeferRelease(BlockId id, TenantId tenant, Session& session);
  void EndPinsOf(OperationScope& op, BlockId id, RemovalReason removal);
  // The first pin of the block, of the tenant's; where there is none, what follows.
  auto FirstPin(BlockId id, TenantId tenant) const {
    return pins_.lower_bound({id, tenant, PinId{0}});
  }
  bool IsPinnedBy(BlockId id, TenantId tenant) const {
    const auto it = FirstPin(id, tenant);
    return it != pins_.end() && it->block == id && it->tenant == tenant;
  }

  // --- Leaving (window_exits.cc) ---
  void Evict(OperationScope& op, BlockId victim, RemovalReason reason) override;
  // What is left of a block that leaves the tree.
  enum class Remains : uint8_t {
    kNothing,  // Its slot and its id are free.
    kHole,     // Its node stays for the children.
    kSlot,     // It is a private block now, in its slot, for its holders or its next one.
  };
  void LeaveTree(OperationScope& op, BlockId id, RemovalReason reason, Remains remains);
  // A block without children leaves; its holders keep it.
  void CutLeaf(OperationScope& op, BlockId id, RemovalReason reason) {
    LeaveTree(op, id, reason, store_[id].refs == 0 ? Remains::kNothing : Remains::kSlot);
  }
  uint64_t CutSubtree(OperationScope& op, BlockId top, RemovalReason reason);
  void EraseHoles(NodeRef node);
  // Where a reset is at that block, it goes on above it.
  void EraseFromTree(BlockId id) {
    if (id == cut_off_) [[unlikely]] {
      const NodeRef parent = tree_.parent(id);
      cut_off_ = parent.is_root() ? kNoBlock : parent.block();
    }
    tree_.Erase(id);
  }
  // Of a block that leaves the tree: before its tier or its owner is another. A reset has removed
  // what it cut off, whatever takes it out of the way then.
  void RecordRemoval(OperationScope& op, BlockId id, RemovalReason reason) {
    const bool cut_off = IsCutOff(id);
    CountRemoval(op, id, reason);
    if (!cut_off) recorder().Removed(window(), reason, id, tree_.hash(id), accounts().owner(id));
  }
  void CountRemoval(OperationScope& op, BlockId id, RemovalReason reason) {
    const Block& block = store_[id];
    if (IsCutOff(id)) {
      reason = RemovalReason::kCleared;
    } else {
      --cached_blocks_;
    }
    RemovalCounts& counts = accounts().any()
                                ? tenant_counters_[accounts().owner(id).value()].removed_blocks
                                : default_tenant_removed_;
    ++counts[block.tier_value][static_cast<size_t>(reason)];
    if (block.followed) UnfollowRemoved(op, id, reason);
  }
  void UnfollowRemoved(OperationScope& op, BlockId id, RemovalReason reason);
  // Before it is held.
  void NoteMatched(OperationScope& op, BlockId id) {
    const Block& block = store_[id];
    if (block.followed && block.refs == 0) reuse_intervals_.Matched(id, block.tier(), op.now);
  }
  void StartClock(OperationScope& op, BlockId id);
  void SetPriority(OperationScope& op, BlockId id, Priority priority);
  void SetBlockRetention(OperationScope& op, BlockId id, const BlockRetention& retention);

  // --- Sequences (window_sequences.cc) ---
  bool Detached(const SequenceBlocks& blocks) const;
  bool IsPrivateTo(BlockId id) const;
  BlockKey KeyOf(const Sequence& sequence, BlockId id, uint32_t index, uint32_t token_count);
  void ReleaseEntry(OperationScope& op, const Sequence& sequence, uint32_t index);
  std::optional<BlockRetention> WishFor(const Sequence& sequence, uint32_t index) const;
  BlockRetention RetentionAt(BlockId id) const;
  // Whether a wish of the tenant's may lower what the block is kept at. Of what tenants share it
  // may not: that is somebody else's too.
  bool MayLower(BlockId id, TenantId tenant) const {
    return tenant == kDefaultTenant || accounts().owner(id) == tenant;
  }
  bool Wish(OperationScope& op, BlockId id, const BlockRetention& wish, TenantId tenant);
  void RaiseRetention(OperationScope& op, BlockId id, const std::optional<BlockRetention>& had);
  void TakeOver(OperationScope& op, BlockId id);
  BlockId CopyTail(OperationScope& op, BlockId source, uint32_t num_tokens);
  bool PublishBlock(OperationScope& op, const Sequence& sequence, SequenceBlocks& blocks,
                    uint32_t index, uint32_t token_count);
  ContentFacts FactsOf(const Sequence& sequence, uint32_t index, uint32_t token_count) const;
  void InsertIntoTree(OperationScope& op, BlockId id, const Sequence& sequence,
                      const SequenceBlocks& blocks, uint32_t index, const BlockKey& key);
  using Prefixes = absl::InlinedVector<BlockId, 4>;
  Prefixes EvictablePrefixes(NodeRef parent, const BlockKey& key) const;
  void RemovePrefixes(OperationScope& op, const Prefixes& prefixes);
  BlockId FindLonger(NodeRef parent, const BlockKey& key) const;
  void FillFrom(OperationScope& op, BlockId canonical, const Sequence& sequence, uint32_t index);
  void RecordStored(OperationScope& op, BlockId id, NodeRef root, const BlockKey& key);
  void PublishTail(OperationScope& op, Sequence& sequence);
  void Slide(OperationScope& op, Sequence& sequence);

  const Options options_;
  const CoreServices services_;
  BlockStore store_;
  PrefixTree tree_;
  TierResidency residency_;
  ExpiryQueue expiries_;
  uint32_t holes_ = 0;
  uint32_t cached_blocks_ = 0;                   // In the tree, and not cut off.
  uint32_t next_cut_off_;                        // No block with a lower id is cut off.
  BlockId cut_off_ = kNoBlock;                   // Cut off, and leaves before next_cut_off_.
  absl::btree_set<BlockPin> pins_;               // Ascending by block.
  std::vector<uint32_t> tenant_pinned_;          // Pinned blocks by TenantId.
  WindowCounters counters_;                      // Without what Stats() takes from the tenants'.
  std::vector<TenantCounters> tenant_counters_;  // By TenantId.
  RemovalCounts default_tenant_removed_ = {};    // Without tenants: instead of tenant_counters_'s.
  ReuseIntervals reuse_intervals_;
  std::vector<TokenExtra> key_extras_;  // Of the key that KeyOf() made last.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_BLOCK_MANAGER_H_
