// The blocks of one attention window: hands them out, finds them by content, takes them back, moves
// them between tiers and evicts them.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_BLOCK_MANAGER_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_BLOCK_MANAGER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/error.h"
#include "events/tree_entry.h"
#include "manager/accounts/tenants.h"
#include "manager/advice/reuse_distances.h"
#include "manager/advice/reuse_intervals.h"
#include "manager/api/operation.h"
#include "manager/api/stats.h"
#include "manager/services/operation_scope.h"
#include "manager/tiers/tier_residency.h"
#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"
#include "manager/tree/prefix_uses.h"
#include "manager/tree/sequence.h"
#include "manager/window/passed_blocks.h"
#include "manager/window/publish_queue.h"
#include "manager/words/block_facts.h"
#include "manager/words/ids.h"
#include "manager/words/lifecycle_events.h"
#include "manager/words/lists.h"
#include "manager/words/prompt_key.h"
#include "manager/words/publishable_prefix.h"
#include "manager/words/recovered_block.h"
#include "manager/words/retention.h"
#include "pools/types.h"

namespace pagoda {

// Carries out changes and does not decide on them. Before the caller (BlockManager) changes a
// window, it has checked the arguments, and in every window that enough blocks are available.
// Records every change of the tree. Thread-compatible.
//
// Invariants
// 1. A block's state is one of BlockState's. A block that nothing holds is free, cached or a hole.
// 2. TierResidency keeps the place and the holders of each block, with its invariants.
// 3. Full attention: the parent of a held cached block is held, and no block lies in a nearer tier
// than its parent. So all blocks that nothing holds can be evicted, leaves first.
// 4. Only sliding windows have holes. A hole has children. There are at most max_holes.
// 5. Blocks that a reset has cut off keep all of the above until FreeCutOff() reaches them. They
// lie under other roots, so no match finds them, and no event mentions them any more.
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
    // One of so many blocks is followed for Stats().reuse_intervals; 0: none.
    uint32_t reuse_sample = 0;
    uint32_t max_distance_samples = 0;     // Of ReuseDistances, under full attention.
    std::string_view policy;               // Its name, if it is in EvictionPolicyNames().
    const TenantTable* tenants = nullptr;  // Outlives the manager.
    uint64_t block_bytes = 0;              // In all pools.
    std::optional<uint8_t> publish_min_uses = std::nullopt;  // See ManagerOptions.
  };
  using Policies = TierResidency::Policies;

  // A cached prefix: the part that was found or, after CutMatch, the wanted part of it. Holds
  // nothing.
  struct Match {
    // Whole blocks from the sequence's start. In a sliding window some are holes.
    std::vector<BlockId> blocks;
    uint32_t first = 0;  // A sequence that continues from the end needs no block before this one.
    // The block after them that shares its first source_tokens tokens; kNoBlock if none does.
    BlockId source = kNoBlock;
    uint32_t source_tokens = 0;
    uint32_t tokens = 0;  // Of the blocks and the source.
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
  enum class Tail : uint8_t { kNone, kCopy, kTakeOver };
  // The primary blocks that an operation takes under one limit, and the blocks that the limit
  // leaves.
  struct Need {
    uint64_t blocks = 0;
    uint64_t available = 0;

    bool met() const { return blocks <= available; }
  };
  // Under both limits. Each can refuse by itself.
  struct Needs {
    Need pool;   // Fresh blocks and blocks to onboard, while the match is held.
    Need quota;  // Blocks that the tenant does not hold yet. Always met without a quota.

    bool met() const { return pool.met() && quota.met(); }
  };
  // The needs of a match with reserved tokens behind it.
  struct Demand {
    Needs needs;
    Tail tail = Tail::kNone;
    bool fits = false;
  };

  // All block ids are below this.
  static uint32_t NumIds(const Options& options);

  // The blocks of each tier of the cache.
  static std::vector<uint32_t> BlocksPerTier(const Options& options);

  // Everything that `services` names outlives the manager.
  WindowBlockManager(const Options& options, Policies policies, const CoreServices& services);

  WindowSize window() const { return options_.window; }
  uint32_t index() const { return options_.index; }
  bool sliding() const { return options_.window != kFullAttention; }
  TokensPerBlock tokens_per_block() const { return options_.tokens_per_block; }
  uint32_t capacity(Tier tier = Tier::kPrimary) const {
    return options_.tiers[static_cast<size_t>(tier)].blocks;
  }
  // Primary blocks that can be taken now: free ones, and cached ones that nothing holds. For a
  // tenant, limited by its quota.
  uint32_t available() const { return residency_.counts().available(); }
  uint32_t available(TenantId tenant) const { return residency_.counts().available(tenant); }
  // Primary blocks that the tenant may hold in addition, and in total; kNoQuota: any number.
  uint32_t QuotaLeft(TenantId tenant) const { return accounts().Left(Tier::kPrimary, tenant); }
  uint32_t Quota(TenantId tenant) const { return accounts().QuotaOf(Tier::kPrimary, tenant); }
  // The needs of `blocks` fresh blocks.
  Needs NeedsOf(uint64_t blocks, TenantId tenant) const {
    return {.pool = {blocks, available()}, .quota = {blocks, QuotaLeft(tenant)}};
  }
  // Blocks of all tiers that a sequence, a session, a pin or a deferred release holds.
  uint32_t held_blocks() const { return residency_.counts().held_blocks(); }
  BlockHandle handle(BlockId id) const { return store_.handle(id); }
  // REQUIRES: the block is in the tree.
  BlockHash hash(BlockId id) const { return tree_.hash(id); }

  // --- Prefixes (window_prefixes.cc) ---

  // The tiers in which a prefix is looked up.
  enum class Reach : uint8_t { kMemory, kAllTiers };
  // The longest cached prefix of `key`.
  Match FindPrefix(const NamespaceKey& name_space, const PromptKey& key, Reach reach) const;
  // Adds up the tokens of a match, from the needed part on, by the tier of their nearest copy.
  void CountTokensByTier(const Match& match, std::vector<uint32_t>* tokens) const;
  // The tokens of a match that lie below the first tier. Cost: O(blocks of the match).
  uint32_t LowerTokens(const Match& match) const;
  // The cached block with content `key` after the match's whole blocks; kNoBlock if there is none.
  // REQUIRES: the match is not empty.
  BlockId FindTail(const Match& match, const BlockKey& key) const;
  // The lengths of the cached blocks there whose content is a beginning of `key`, longest first.
  // REQUIRES: the match is not empty. Cost: O(log siblings + lengths returned).
  absl::InlinedVector<uint32_t, 4> TailLengths(const Match& match, const BlockKey& key) const;
  // The largest length up to `limit` at which a sequence can go on from the match (rule 7). At a
  // hole, the cached sibling that shares most tokens with the key (PrefixTree::FindClosest) can
  // give the last tokens. Cost: O(holes between `limit` and the result).
  uint32_t ValidLength(const Match& match, uint32_t limit) const;
  // Cuts a match to a valid length.
  void CutMatch(Match& match, uint32_t tokens) const;
  // Whether all tokens of the match's source matched.
  bool SourceIsWhole(const Match& match) const;
  // The needs of AddSequence for the tenant, with capacity for `reserved_tokens` tokens.
  Demand DemandFor(TenantId tenant, const Match& match, uint64_t reserved_tokens) const;
  // The match's primary blocks that are held already: by any holder, so the pool does not give them
  // again; by the tenant, so its quota does not count them again.
  struct Held {
    uint32_t by_any = 0;
    uint32_t by_tenant = 0;
  };
  Held HeldIn(const Match& match, TenantId tenant) const;

  // Offload offloads the blocks of a match, last to first. Prefetch onboards them, first to last.
  // Each stops when it finds no slot. Both return the number of blocks moved.
  uint32_t Offload(OperationScope& op, const Match& match);
  uint32_t Prefetch(OperationScope& op, const Match& match);
  // Orders fetches of the match's blocks that lie on disk alone. `fetched` grows by the number of
  // fetches ordered. Returns the last one's ticket.
  Ticket Fetch(OperationScope& op, const Match& match, absl::Time deadline, uint32_t* fetched);
  // The blocks that a pin holds: the needed part of the match and its source.
  std::vector<BlockId> PinnableBlocks(const Match& match) const;
  // Whether the tenant may pin these blocks in addition. Errors: PIN_BUDGET_EXCEEDED.
  absl::Status CheckPinBudget(TenantId tenant, absl::Span<const BlockId> blocks) const;
  // The blocks that pins hold. With a tenant: those that its pins hold.
  uint32_t pinned_blocks() const { return residency_.counts().pinned_blocks(); }
  uint32_t pinned_blocks(TenantId tenant) const { return tenant_pinned_[tenant.value()]; }
  uint32_t pin_budget_blocks() const { return options_.pin_budget_blocks; }
  // The tenant's share of the pin budget. The default tenant may use all of it.
  uint32_t pin_budget_blocks(TenantId tenant) const;
  // The blocks that a pin would make `tenant` hold in addition, against its quota.
  Need PinNeed(absl::Span<const BlockId> blocks, TenantId tenant) const;
  struct PinHold {
    PinId pin;
    TenantId tenant;  // The tenant whose share of the pin budget it uses.
    TenantId holder;  // The tenant that is charged for the blocks.
  };
  // The blocks stay cached while the pin holds them. Before one leaves the tree, CoreServices::pins
  // ends the pin. REQUIRES: PinNeed() is met.
  void Pin(OperationScope& op, const PinHold& pin, absl::Span<const BlockId> blocks);
  void Unpin(OperationScope& op, const PinHold& pin, absl::Span<const BlockId> blocks);
  uint64_t Invalidate(OperationScope& op, const NamespaceKey& name_space, const PromptKey& prefix);
  // A tenant can only raise the retention of blocks that it does not own. Returns the number of
  // blocks that a range names and that it applied to.
  uint32_t SetRetention(OperationScope& op, const Match& match, const SequenceRetention& retention,
                        TenantId tenant);
  // Appends the match's blocks that have bytes, and its source.
  void Inspect(const Match& match, std::vector<InspectedBlock>* out) const;

  // --- Sequences (window_sequences.cc) ---

  // Makes the match the beginning of the sequence's blocks, and takes blocks until the table has
  // `table_size` entries. REQUIRES: DemandFor(tenant, match, ...) fits, with this tail.
  void Begin(OperationScope& op, Sequence& sequence, const NamespaceKey& name_space,
             const Match& match, Tail tail, uint32_t table_size);
  // Fresh blocks that growth to `table_size` entries takes. That is one more if a borrowed tail
  // must be copied first.
  uint32_t BlocksToGrow(const Sequence& sequence, uint32_t table_size) const;
  bool MustCopyTail(const Sequence& sequence) const;
  // Copies the part of a borrowed tail that lies in the first `computed_tokens` tokens. REQUIRES:
  // BlocksToGrow() <= available().
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
  // Puts the blocks that are full and computed into the tree. Then releases the blocks that a
  // sliding window has passed.
  void Publish(OperationScope& op, Sequence& sequence);
  // Publishes the rest, with kPublish also a computed tail. Then releases every block, tail first.
  // kDrop is for a client that can still write behind the tail.
  enum class ComputedTail : uint8_t { kPublish, kDrop };
  void End(OperationScope& op, Sequence& sequence, ComputedTail tail);
  // Shares the blocks of `parent` that have computed tokens.
  void Fork(const Sequence& parent, Sequence& child);
  // Whether the window still has the blocks that a sequence of `tokens` tokens needs.
  bool CanTruncate(const Sequence& sequence, uint32_t tokens) const;
  // Whether the block in which the cut lies must be copied.
  bool MustCopyCut(const Sequence& sequence, uint32_t tokens) const;
  // Drops the blocks behind the first `tokens` tokens. Returns the first entry that changed.
  // REQUIRES: CanTruncate(); if MustCopyCut(), available() > 0.
  uint32_t Truncate(OperationScope& op, Sequence& sequence, uint32_t tokens);
  // The entry of the sequence's table whose own block is `block`, if there is one.
  std::optional<uint32_t> FindEntry(const Sequence& sequence, BlockId block) const;

  // --- Raw blocks ---

  // REQUIRES: out.size() <= available().
  void TakeRaw(OperationScope& op, SessionId owner, absl::Span<BlockHandle> out);
  // OK if `owner` may free all of `blocks`, and each is named once. Errors: those of
  // BlockManager::FreeBlocks.
  absl::Status CheckRaw(TenantId tenant, SessionId owner, absl::Span<const BlockRef> blocks);
  // OK if `owner` may fill the blocks so, and each is named once (window_block_states.cc). Errors:
  // those of BlockManager::FillBlocks.
  absl::Status CheckFills(TenantId tenant, SessionId owner, absl::Span<const BlockFill> fills);
  // REQUIRES: CheckFills(tenant, owner, fills) is OK.
  void Fill(absl::Span<const BlockFill> fills);
  // REQUIRES: CheckRaw(op.tenant, owner, blocks) is OK.
  void FreeRaw(OperationScope& op, absl::Span<const BlockRef> blocks);
  // Adds deferred releases to `session` that hold the blocks of its sequence that it may write.
  void HoldWritable(const Sequence& sequence, Session& session);
  // The raw blocks of `owner` from id `*next` on, ascending: at most `max_blocks`, among at most
  // `max_ids` ids. Sets `*next` to the first id that it did not look at. Cost: O(ids looked at).
  std::vector<BlockRef> NextRawBlocks(SessionId owner, BlockId* next, size_t max_blocks,
                                      uint32_t max_ids) const;

  // --- What a session may know of its blocks (window_block_states.cc) ---

  using Metadata = absl::flat_hash_map<BlockId, BlockMetadata>;
  // Describes the raw blocks of `owner` among `blocks`, with one holder. The others that a sequence
  // holds get an entry with no holder. Errors: those of BlockManager::DescribeBlocks, except that
  // a block may be another session's sequence's.
  absl::StatusOr<Metadata> DescribeRaw(TenantId tenant, SessionId owner,
                                       absl::Span<const BlockRef> blocks) const;
  // Adds what the sequence tells of those of its blocks that `metadata` names. Cost: O(its table).
  void DescribeHeld(const Sequence& sequence, Metadata* metadata) const;
  // Completes the description of a block that sequences of the session hold.
  void CompleteMetadata(TenantId tenant, BlockId id, BlockMetadata* metadata) const;
  // FOREIGN_BLOCK, or STALE_HANDLE if the tenant must not learn that the block is in use.
  absl::Status ForeignBlock(TenantId tenant, const BlockRef& ref) const;

  // --- Time, copies, operators ---

  // A deferred release of the block for `tenant` ends.
  void EndDeferredRelease(OperationScope& op, BlockId id, TenantId tenant);
  // Ends priorities whose duration has run out, at most kMaxEndsByTime.
  void Expire(OperationScope& op);
  // Offloads victims until `free_target` blocks of the tier are free, at most `max_blocks`.
  uint32_t OffloadAhead(OperationScope& op, Tier tier, uint32_t free_target, uint32_t max_blocks) {
    return residency_.moves().OffloadAhead(op, tier, free_target, max_blocks);
  }
  // Whether `block` is current (its generation) and has its nearest copy in `slot`.
  bool Owns(BlockRef block, SlotRef slot) const;
  // The bytes of a block in the tree are lost. The block falls to its next copy, if it has one and
  // nothing holds the block. Otherwise it leaves the tree, with all blocks below it.
  void Lose(OperationScope& op, BlockId id) override;
  // A copy to `slot` failed. If the slot is a duplicate of the block, the block loses that
  // duplicate.
  void LoseLowerCopy(BlockRef block, SlotRef slot);
  bool in_tree(BlockId id) const { return store_[id].in_tree(); }

  // --- A tier on disk: see TierResidency ---

  bool has_disk() const { return residency_.slots().has_disk(); }
  void OrderBackups(OperationScope& op, uint32_t max_blocks) {
    residency_.backups().OrderBackups(op, max_blocks);
  }
  void CopyEnded(OperationScope& op, Ticket ticket, bool ok) {
    residency_.backups().CopyEnded(op, ticket, ok);
  }
  void FetchEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
    residency_.fetches().FetchEnded(op, ticket, status);
  }
  void BackupEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
    residency_.backups().BackupEnded(op, ticket, status);
  }
  Ticket OrderErase(FileErase::What what) { return residency_.backups().OrderErase(what); }
  // Takes back what was found on disk: blocks, and further copies of blocks that are already there.
  // Drops the rest. Returns the number of copies taken back. REQUIRES: nothing but Restore() has
  // happened yet. Errors: INVALID_ARGUMENT (a slot that does not exist or occurs twice; a block
  // that comes before its parent).
  absl::StatusOr<uint64_t> RestoreDisk(OperationScope& op, absl::Span<const RecoveredBlock> blocks);

  // --- A reset (window_reset.cc) ---

  // Empties the tree at once: cuts off all cached blocks. Returns how many. REQUIRES: no block is
  // pinned, and nothing is cut off. Cost: O(1).
  uint64_t CutOffTree();
  // Releases blocks that were cut off: those that nothing holds become free, those that sequences
  // hold become private. Looks at `max_blocks` ids. Returns how many it looked at. If these are
  // fewer, no cut-off block is left.
  uint32_t FreeCutOff(OperationScope& op, uint32_t max_blocks);
  // Whether cut-off blocks are left. Such a block is evictable unless held, and no event mentions
  // it.
  bool has_cut_off() const { return next_cut_off_ < num_ids(); }
  bool IsCutOff(BlockId id) const { return tree_.IsCutOff(id); }

  // --- A warm restart (window_restore.cc) ---

  // Whether Restore can take the blocks: their slots and parents exist, and no content occurs
  // twice. Errors: INVALID_ARGUMENT.
  absl::Status CheckRecovered(absl::Span<const RecoveredBlock> blocks) const;
  // Caches the blocks, whose bytes are in their slots. REQUIRES: CheckRecovered() is OK, and
  // nothing has happened yet.
  void Restore(OperationScope& op, absl::Span<const RecoveredBlock> blocks);
  // Holds every free primary slot by a deferred release.
  void HoldFree(OperationScope& op, std::deque<DeferredRelease>& deferred);

  WindowStats Stats() const;
  void AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const {
    residency_.counts().AddUses(tenant, uses);
  }
  // Stops the process unless rule 5 holds by the counters. Cost: O(1).
  void CheckAccounting() const { residency_.counts().CheckAccounting(); }

  // --- For operators (window_scans.cc): as BlockManager's methods of the same names ---

  uint32_t num_ids() const { return store_.num_ids(); }
  void SlotStates(Tier tier, uint32_t from, absl::Span<SlotState> states) const {
    residency_.counts().SlotStates(tier, from, states);
  }
  void PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const;
  std::optional<LocatedBlock> Locate(BlockId id, TierSet tiers) const;
  std::optional<PrefixUse> Describe(const UsedPrefix& prefix) const;

  // --- Publishing (window_publishing.cc): see BlockManager ---

  void TakePublishable(uint32_t max_prefixes, uint32_t max_blocks,
                       std::vector<PublishablePrefix>* out);
  PublishableBlocks publishable() const;

  // --- For tests ---

  // By block: the tenant of each hold. For a raw block, its session's tenant.
  using Holders = TierResidency::Holders;
  // Stops the process if the arrays disagree with `holders` or with each other.
  void CheckInvariants(const Holders& holders) const;
  void CheckSequence(const Sequence& sequence) const;
  std::vector<TreeEntry> DumpTree() const;
  std::vector<BlockId> DumpAllocated() const;

  // --- Late subscribers ---

  // Adds to `out` the cached blocks with ids from `begin` on. Also the window's pools if `begin` is
  // 0, and the blocks outside the tree that `lifecycle` asks for. Looks at up to `max_ids` ids, at
  // least at one. Stops once it has added `max_tokens` tokens. Returns the next id.
  BlockId ReadSnapshot(BlockId begin, size_t max_ids, size_t max_tokens, LifecycleEvents lifecycle,
                       absl::Time now, std::vector<Event>* out) const;

 private:
  struct Checker;  // Of the invariants.
  // One pin's hold of a block.
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
  const TenantAccounts& accounts() const { return residency_.counts().accounts(); }
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
  // `tenant`: the one that the holder works for.
  void Hold(OperationScope& op, BlockId id, TenantId tenant);
  void EndHold(OperationScope& op, BlockId id, TenantId tenant);
  // As EndHold. If the operation defers releases, the hold ends when the client completes the step.
  void Release(OperationScope& op, BlockId id, TenantId tenant);
  absl::Status CheckOneRaw(TenantId tenant, SessionId owner, const BlockRef& ref) const;
  absl::Status BlockError(Reason reason, const BlockRef& ref, std::string_view what) const;
  // Errors: UNKNOWN_BLOCK, STALE_HANDLE (another generation).
  absl::Status CheckCurrent(const BlockRef& ref) const;
  // Whether the block was freed, and only waits for the end of a step.
  bool OnlyDeferred(BlockId id) const {
    return store_[id].state() == BlockState::kPrivate && store_[id].deferred &&
           residency_.counts().deferred(id) == store_[id].refs;
  }
  void HoldUntilStep(BlockId id, TenantId tenant, Session& session);
  void DeferRelease(BlockId id, TenantId tenant, Session& session);
  void EndPinsOf(OperationScope& op, BlockId id, RemovalReason removal);
  // The first pin of the block by the tenant. If there is none, the next one in the order of pins_.
  auto FirstPin(BlockId id, TenantId tenant) const {
    return pins_.lower_bound({id, tenant, PinId{0}});
  }
  bool IsPinnedBy(BlockId id, TenantId tenant) const {
    const auto it = FirstPin(id, tenant);
    return it != pins_.end() && it->block == id && it->tenant == tenant;
  }

  // --- Many blocks of one request (window_runs.cc) ---
  void Take(OperationScope& op, BlockState state, absl::Span<BlockHandle> out);
  size_t ReuseVictims(OperationScope& op, BlockState state, absl::Span<BlockHandle> out);
  uint32_t PublishChain(OperationScope& op, const Sequence& sequence, SequenceBlocks& blocks,
                        uint32_t first, uint32_t end);
  void ReleaseAll(OperationScope& op, const Sequence& sequence);

  // --- Leaving (window_exits.cc) ---
  void Evict(OperationScope& op, BlockId victim, RemovalReason reason) override;
  // The remains of a block that leaves the tree.
  enum class Remains : uint8_t {
    kNothing,  // Its slot and its id are free.
    kHole,     // Its node stays for the children.
    kSlot,     // It is a private block now, in its slot, for its holders or its next one.
  };
  void LeaveTree(OperationScope& op, BlockId id, RemovalReason reason, Remains remains);
  // Takes a block without children out of the tree. Its holders keep it.
  void CutLeaf(OperationScope& op, BlockId id, RemovalReason reason) {
    LeaveTree(op, id, reason, store_[id].refs == 0 ? Remains::kNothing : Remains::kSlot);
  }
  uint64_t CutSubtree(OperationScope& op, BlockId top, RemovalReason reason);
  void EraseHoles(NodeRef node);
  void EraseFromTree(BlockId id);
  // Records that a block leaves the tree. Called before the block's tier or owner changes. A
  // cut-off block counts as cleared by the reset, whatever takes it out, and has no event.
  void RecordRemoval(OperationScope& op, BlockId id, RemovalReason reason) {
    const bool cut_off = IsCutOff(id);
    CountRemoval(op, id, reason);
    if (!cut_off) recorder().Removed(window(), reason, tree_.Named(id), accounts().owner(id));
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
  // Called before the block is held.
  void NoteMatched(OperationScope& op, BlockId id) {
    const Block& block = store_[id];
    if (block.followed && block.refs == 0) reuse_intervals_.Matched(id, block.tier(), op.now);
  }
  void StartClock(OperationScope& op, BlockId id);
  void SetPriority(OperationScope& op, BlockId id, Priority priority);
  void SetBlockRetention(OperationScope& op, BlockId id, const BlockRetention& retention);
  void CountMatch(OperationScope& op, Sequence& sequence, const Match& match, Tail tail,
                  uint32_t fresh);
  void CountLookup(OperationScope& op, uint32_t lookup_tokens, const Match& match);
  void CountPublished(const Sequence& sequence, uint32_t first, uint32_t end);
  void NotePublished(const Sequence& sequence, SequenceBlocks& blocks, uint32_t index, BlockId id);

  // --- Publishing (window_publishing.cc) ---
  void Used(BlockId id) override;
  bool IsPublishable(BlockId id) const;
  bool HasBytesInMemory(BlockId id) const;
  PublishablePrefix PrefixOf(absl::Span<const BlockId> path, NodeRef root) const;

  // --- Sequences (window_sequences.cc) ---
  bool Detached(const SequenceBlocks& blocks) const;
  bool IsPrivateTo(BlockId id) const;
  BlockKey KeyOf(const Sequence& sequence, BlockId id, uint32_t index, uint32_t token_count);
  void ReleaseEntry(OperationScope& op, const Sequence& sequence, uint32_t index);
  std::optional<BlockRetention> WishFor(const Sequence& sequence, uint32_t index) const;
  BlockRetention RetentionAt(BlockId id) const;
  // Whether a wish of the tenant may lower the block's retention. Tenants share the default
  // tenant's blocks, so only the default tenant may lower theirs.
  bool MayLower(BlockId id, TenantId tenant) const {
    return tenant == kDefaultTenant || accounts().owner(id) == tenant;
  }
  bool ApplyRetention(OperationScope& op, BlockId id, const BlockRetention& wish, TenantId tenant);
  void RaiseRetention(OperationScope& op, BlockId id, const std::optional<BlockRetention>& had);
  void TakeOver(OperationScope& op, BlockId id);
  BlockId CopyTail(OperationScope& op, BlockId source, uint32_t num_tokens);
  bool PublishBlock(OperationScope& op, const Sequence& sequence, SequenceBlocks& blocks,
                    uint32_t index, uint32_t token_count);
  ContentFacts FactsOf(const Sequence& sequence, uint32_t index, uint32_t token_count) const;
  void InsertIntoTree(OperationScope& op, BlockId id, const Sequence& sequence,
                      SequenceBlocks& blocks, uint32_t index, const BlockKey& key);
  using Prefixes = absl::InlinedVector<BlockId, 4>;
  Prefixes EvictablePrefixes(NodeRef parent, const BlockKey& key) const;
  void RemovePrefixes(OperationScope& op, const Prefixes& prefixes);
  BlockId FindLonger(NodeRef parent, const BlockKey& key) const;
  void FillFrom(OperationScope& op, BlockId canonical, const Sequence& sequence, uint32_t index);
  void RecordStored(OperationScope& op, BlockId id, NodeRef root, const BlockKey& key);
  void PublishTail(OperationScope& op, Sequence& sequence);
  void Slide(OperationScope& op, Sequence& sequence);
  void KeepBranch(SequenceBlocks& blocks, uint32_t index);
  uint32_t FirstNeeded(uint32_t tokens) const;

  const Options options_;
  const CoreServices services_;
  BlockStore store_;
  PrefixTree tree_;
  TierResidency residency_;
  ExpiryQueue expiries_;
  PassedBlocks passed_;  // Of a sliding window.
  uint32_t holes_ = 0;
  uint32_t cached_blocks_ = 0;  // In the tree, and not cut off.
  uint32_t next_cut_off_;       // No block with a lower id is cut off.
  // The cut-off block that leaves next. kNoBlock: FreeCutOff() looks from next_cut_off_ on.
  BlockId cut_off_ = kNoBlock;
  absl::btree_set<BlockPin> pins_;       // Ascending by block.
  std::vector<uint32_t> tenant_pinned_;  // Pinned blocks by TenantId.
  // Without the counts that Stats() adds up from tenant_counters_.
  WindowCounters counters_;
  std::vector<TenantCounters> tenant_counters_;  // By TenantId.
  // Used instead of TenantCounters::removed_blocks in a cache without tenants.
  RemovalCounts default_tenant_removed_ = {};
  ReuseIntervals reuse_intervals_;
  ReuseDistances reuse_distances_;
  std::optional<PublishQueue> publish_queue_;
  std::vector<TokenExtra> key_extras_;  // Of the key that KeyOf() made last.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_BLOCK_MANAGER_H_
