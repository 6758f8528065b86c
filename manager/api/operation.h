// What a client asks of the cache, as values. The wire's Operation messages have the same fields.
// The part of the core that runs an operation says what it does and which errors it has: RawBlocks,
// RunningSequences or CachedPrefixes.
#ifndef PAGODA_MANAGER_API_OPERATION_H_
#define PAGODA_MANAGER_API_OPERATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "events/event.h"
#include "manager/words/ids.h"
#include "manager/words/retention.h"
#include "pools/order.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// The blocks of a sequence in one window, in token order: token t lies in table entry t /
// tokens_per_block. `blocks` holds the entries [first_block, first_block + blocks.size()). In the
// answer to a change, the entries before first_block are unchanged and none follow. An entry that a
// sliding window has passed is empty (kNoBlock).
struct BlockTable {
  WindowSize window = kFullAttention;
  uint32_t first_block = 0;
  std::vector<BlockHandle> blocks;

  // The block of token `token`, counted from the sequence's start. kNoBlock if the window has
  // passed it, or if this part of the table does not reach it. TokensPerBlock::OffsetInBlock(token)
  // is the token's place in the block.
  BlockHandle BlockForToken(uint64_t token, TokensPerBlock tokens_per_block) const {
    const uint64_t entry = tokens_per_block.BlockForToken(token);
    if (entry < first_block || entry - first_block >= blocks.size()) return {};
    return blocks[entry - first_block];
  }
  friend bool operator==(const BlockTable&, const BlockTable&) = default;
};

// A `ready` ticket in a result: the client may read and write the result's slots when the copies up
// to this ticket are done; 0: now. A copy can fail: see BatchResult::shortened.

// `keys` in an operation: in a keyed namespace (NamespaceKey::keyed) they name whole blocks, from
// the first one on, instead of tokens. `tokens`, ids and items are empty then, and every length in
// tokens is a whole number of blocks. Errors: KEYS_AND_TOKENS, WHOLE_BLOCKS_ONLY.

struct AllocateBlocks {
  WindowSize window = kFullAttention;
  uint32_t count = 0;
};
struct AllocatedBlocks {
  std::vector<BlockHandle> blocks;
  Ticket ready;
};

struct FreeBlocks {
  WindowSize window = kFullAttention;
  std::vector<BlockRef> blocks;
};
struct FreedBlocks {};

// The client has written the first `filled_tokens` tokens of a raw block. A finalised block is
// complete.
struct BlockFill {
  enum class End : uint8_t { kOpen, kFinal };
  BlockRef block;
  uint32_t filled_tokens = 0;
  End end = End::kOpen;
  friend bool operator==(const BlockFill&, const BlockFill&) = default;
};
struct FillBlocks {
  WindowSize window = kFullAttention;
  std::vector<BlockFill> blocks;
};
struct FilledBlocks {};

// What the core knows of a block that the client holds.
struct BlockMetadata {
  // Sequences that hold it, those of other sessions too; 1 for a raw block. Of the default tenant's
  // blocks a tenant's session counts its own sequences only.
  uint32_t holders = 0;
  uint32_t filled_tokens = 0;  // From the block's start, with complete KV.
  bool finalized = false;      // Full and committed, or a raw block that its client finalised.
  bool cached = false;         // In the tree: other sequences can match it.
  friend bool operator==(const BlockMetadata&, const BlockMetadata&) = default;
};
struct DescribeBlocks {
  WindowSize window = kFullAttention;
  std::vector<BlockRef> blocks;
};
struct DescribedBlocks {
  std::vector<BlockMetadata> blocks;  // One for each block, in order.
};

struct AddSequence {
  SequenceId sequence;
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  uint32_t reserved_tokens = 0;                  // From the sequence's start; 0: the whole prompt.
  std::vector<uint64_t> extra_token_ids;         // One for each token, or none.
  std::vector<MultimodalItem> multimodal_items;  // Ascending, not overlapping.
  SequenceRetention retention;
  std::string tenant = {};  // The tenant that is charged: see TenantTable::Charged.
  // Matches no part of a block, for engines that would drop it.
  bool whole_blocks_only = false;
  // All of them can match, also the last one: the engine has further tokens behind them.
  std::vector<ClientKey> keys = {};
  bool uncounted = false;  // See SequencePrompt.
};
struct AddedSequence {
  uint32_t matched_tokens = 0;
  uint32_t matched_lower_tokens = 0;  // The part of these that is being onboarded.
  // Cached on disk behind the match: PrefetchPrefix brings them into memory.
  uint32_t matched_below_tokens = 0;
  std::vector<BlockTable> tables;  // One for each window.
  Ticket ready;
};

struct ReserveTokens {
  SequenceId sequence;
  uint32_t count = 0;
};
struct ReservedTokens {
  std::vector<BlockTable> added;  // The new ends of the tables.
  Ticket ready;
};

struct CommitTokens {
  SequenceId sequence;
  std::vector<TokenId> tokens;
  uint32_t computed_tokens = 0;      // From the sequence's start; 0: unchanged.
  uint32_t known_losses = 0;         // See ShortenedSequence.
  std::vector<ClientKey> keys = {};  // The keys of the next blocks, in a keyed sequence.
};
struct CommittedTokens {
  uint32_t token_count = 0;
};

// ReserveTokens for the missing tokens, then CommitTokens; all or nothing.
struct AppendTokens {
  SequenceId sequence;
  std::vector<TokenId> tokens;
  uint32_t computed_tokens = 0;
  uint32_t known_losses = 0;
  std::vector<ClientKey> keys = {};
};
struct AppendedTokens {
  std::vector<BlockTable> added;
  uint32_t token_count = 0;
  Ticket ready;
};

// AppendTokens for each sequence of a decode step, in packed arrays. Each sequence succeeds or
// fails by itself, in the given order. A keyed sequence takes no tokens.
struct AppendStep {
  std::vector<SequenceId> sequences;  // 1 to kMaxStepSequences.
  // These have an entry for each sequence, or are empty.
  std::vector<uint32_t> token_counts = {};     // Empty: one token for each sequence.
  std::vector<uint32_t> computed_tokens = {};  // Empty: unchanged.
  std::vector<uint32_t> known_losses = {};     // Empty: 0.
  std::vector<TokenId> tokens;                 // Those of the sequences, one after the other.
};
// An operation holds the core's lock until it ends, so its length is limited.
inline constexpr size_t kMaxStepSequences = 1024;
// Only the changes: in most steps most sequences stay in their last block.
struct AppendedStep {
  // Table entries that are new or have changed, from first_block to the table's end, in each
  // window.
  struct Growth {
    uint32_t index = 0;  // In AppendStep::sequences.
    uint32_t first_block = 0;
    uint32_t blocks = 0;  // In each window.
    Ticket ready;
    friend bool operator==(const Growth&, const Growth&) = default;
  };
  struct Failure {
    uint32_t index = 0;
    absl::Status status;
    friend bool operator==(const Failure&, const Failure&) = default;
  };
  std::vector<Growth> grown;        // Ascending.
  std::vector<BlockHandle> blocks;  // For each growth its entries of each window, in the cache's
                                    // order.
  std::vector<Failure> failed;      // Ascending. They changed nothing.
};

struct ForkSequence {
  SequenceId sequence;
  SequenceId new_sequence;
};
struct ForkedSequence {
  uint32_t token_count = 0;
  uint32_t computed_tokens = 0;
  uint32_t losses = 0;  // Those of the original sequence.
  std::vector<BlockTable> tables;
  Ticket ready;
};

struct TruncateSequence {
  SequenceId sequence;
  uint32_t token_count = 0;
};
struct TruncatedSequence {
  uint32_t token_count = 0;
  uint32_t computed_tokens = 0;
  std::vector<BlockTable> tables;  // From the first entry that has changed or is gone.
  Ticket ready;
};

struct FreeSequence {
  SequenceId sequence;
};
struct FreedSequence {};

struct MatchPrefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids;
  std::vector<MultimodalItem> multimodal_items;
  std::vector<ClientKey> keys = {};
  // The tenant that asks, for a client that has a session for each tenant. The core does not read
  // it, and it is not sent. The same holds for OffloadPrefix and PrefetchPrefix.
  std::string tenant = {};
};
struct MatchedPrefix {
  uint32_t matched_tokens = 0;
  std::vector<BlockHandle> blocks;  // Blocks of the largest window. They are not held,
                                    // so they can be evicted at any time.
  // How much of the prompt is cached in any tier, and how much in each of the cache's tiers, by the
  // nearest copies of the largest window. A sequence matches nothing on disk.
  uint32_t cached_tokens = 0;
  std::vector<uint32_t> tokens_by_tier;
};

// Asks how many blocks a prompt, or more tokens of a running sequence, would take if all of them
// were in the tables at once. A sliding window releases blocks as it passes them, so a prompt that
// is computed in chunks needs fewer there.
struct QueryCapacity {
  SequenceId sequence;  // 0: a new one, with the fields below.
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  uint32_t max_new_tokens = 0;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  std::string tenant = {};  // The tenant of a new sequence, as in AddSequence.
  std::vector<ClientKey> keys = {};
};
struct WindowCapacity {
  WindowSize window = kFullAttention;
  uint32_t blocks_now = 0;            // To add the prompt; 0 for a running sequence.
  uint32_t blocks_to_completion = 0;  // With max_new_tokens more. Counts matched blocks that are
                                      // evictable: available_blocks includes them.
  uint32_t available_blocks = 0;  // Free or evictable; for a tenant, as far as its quota allows.
  // If the tenant has a quota: the quota, and how many more blocks the tenant can hold if it evicts
  // its cached blocks.
  std::optional<uint32_t> quota_blocks;
  std::optional<uint32_t> quota_left_blocks;
};
struct CapacityAnswer {
  uint32_t matched_tokens = 0;
  std::vector<WindowCapacity> windows;
};

// The operations below name a prefix by everything that a block's identity has, as AddSequence
// does.

struct OffloadPrefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  std::vector<ClientKey> keys = {};
  std::string tenant = {};
};
struct OffloadedPrefix {
  uint32_t blocks = 0;  // Offloaded, over all windows.
  Ticket ready;         // The last of their copies.
};

// kPrimary: blocks in memory are onboarded to the first tier. kMemory: they stay where they are. In
// both cases blocks that lie on disk alone are fetched.
enum class PrefetchTarget : uint8_t { kPrimary, kMemory };
struct PrefetchPrefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  PrefetchTarget target = PrefetchTarget::kPrimary;
  // Fetches that have not ended by then are given up. Blocks that have arrived stay.
  absl::Duration deadline = absl::InfiniteDuration();
  std::vector<ClientKey> keys = {};
  std::string tenant = {};
};
struct PrefetchedPrefix {
  uint32_t matched_tokens = 0;  // Cached in any tier.
  uint32_t blocks = 0;          // Onboarded between memory tiers, over all windows.
  Ticket ready;
  uint32_t fetched_blocks = 0;  // Being fetched from disk into the last memory tier.
  Ticket fetch;                 // The ticket of the last of these fetches, in Lane::kFetch.
};

struct PinPrefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  absl::Duration lease = absl::InfiniteDuration();
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  std::vector<ClientKey> keys = {};
};
struct PinnedPrefix {
  PinId pin;  // 0: nothing of the prefix is cached, and there is no pin.
  uint32_t pinned_tokens = 0;
  uint32_t blocks = 0;  // Over all windows, including blocks that other pins hold too.
};

struct UnpinPrefix {
  PinId pin;
};
struct UnpinnedPrefix {};

struct ListPins {};
struct PinInfo {
  PinId pin;
  std::string client_name;
  NamespaceKey name_space;
  uint32_t pinned_tokens = 0;
  uint32_t blocks = 0;
  absl::Time expires = absl::InfiniteFuture();
  std::string tenant = {};  // The tenant of the session that made it; empty: the default tenant.
};
// For a tenant: its own pins, the blocks that they hold, and its share of the budget.
struct ListedPins {
  std::vector<PinInfo> pins;  // Ascending by id.
  uint32_t pinned_blocks = 0;
  uint32_t budget_blocks = 0;
};

struct InvalidatePrefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  std::vector<ClientKey> keys = {};
};
struct InvalidatedPrefix {
  uint64_t removed_blocks = 0;
  Ticket durable;  // In Lane::kBackup. Once it is done, no such content comes back after a restart.
};

struct SetRetention {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  SequenceRetention retention;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  std::vector<ClientKey> keys = {};
};
struct RetentionSet {
  uint32_t blocks = 0;  // Cached blocks that a range names, over all windows.
};

// Waits until everything in the lane up to `ticket` has ended, at most kMaxTicketWait. Errors:
// WAIT_TIMEOUT, UNKNOWN_TICKET (the lane has not given this ticket yet).
inline constexpr absl::Duration kMaxTicketWait = absl::Seconds(5);
struct WaitForTicket {
  Ticket ticket;
  Lane lane = Lane::kMemory;
};
struct WaitedForTicket {
  Ticket completed;  // The last completed ticket of the lane.
};

struct DescribePools {};
struct DescribedPools {
  std::vector<PoolMapping> pools;
};

struct DescribeSequence {
  SequenceId sequence;
};
struct DescribedSequence {
  uint32_t token_count = 0;
  uint32_t computed_tokens = 0;
  uint32_t reserved_tokens = 0;
  uint32_t losses = 0;
  std::vector<BlockTable> tables;
  Ticket ready;
};

// An operation and its result have the same index in the two variants.
using OperationVariant =
    std::variant<AllocateBlocks, FreeBlocks, AddSequence, ReserveTokens, CommitTokens, AppendTokens,
                 FreeSequence, MatchPrefix, DescribePools, DescribeSequence, ForkSequence,
                 TruncateSequence, QueryCapacity, OffloadPrefix, PrefetchPrefix, PinPrefix,
                 UnpinPrefix, ListPins, InvalidatePrefix, SetRetention, WaitForTicket, AppendStep,
                 FillBlocks, DescribeBlocks>;
using OperationResultVariant =
    std::variant<AllocatedBlocks, FreedBlocks, AddedSequence, ReservedTokens, CommittedTokens,
                 AppendedTokens, FreedSequence, MatchedPrefix, DescribedPools, DescribedSequence,
                 ForkedSequence, TruncatedSequence, CapacityAnswer, OffloadedPrefix,
                 PrefetchedPrefix, PinnedPrefix, UnpinnedPrefix, ListedPins, InvalidatedPrefix,
                 RetentionSet, WaitedForTicket, AppendedStep, FilledBlocks, DescribedBlocks>;

// Classes, so that copies, moves and destructors are compiled once, in operation.cc. With a plain
// variant each file would compile them for all 24 alternatives. std::variant_size and
// std::variant_alternative need OperationVariant.
struct Operation : OperationVariant {
  using OperationVariant::OperationVariant;
  Operation();
  Operation(const Operation&);
  Operation(Operation&&) noexcept;
  Operation& operator=(const Operation&);
  Operation& operator=(Operation&&) noexcept;
  ~Operation();
};
struct OperationResult : OperationResultVariant {
  using OperationResultVariant::OperationResultVariant;
  OperationResult();
  OperationResult(const OperationResult&);
  OperationResult(OperationResult&&) noexcept;
  OperationResult& operator=(const OperationResult&);
  OperationResult& operator=(OperationResult&&) noexcept;
  ~OperationResult();
};

// The most operations one batch may hold.
inline constexpr size_t kMaxBatchOperations = 4096;
// Once the results of a batch hold this many block handles, the remaining operations are refused
// with BATCH_TOO_LARGE and do not run. So a request of a few bytes cannot cause an answer of
// gigabytes.
inline constexpr size_t kMaxBatchHandles = size_t{1} << 20;

// Block handles in a result. The description of a pool or a pin counts as 100 handles, a failure
// inside a result as 16.
size_t CountHandles(const OperationResult& result);

// Rule 11: the client's step that will use the blocks of a batch, and the last step whose kernels
// have finished. A block that is released in step s is not handed out again before s is completed.
// Step 0: the batch's releases are not deferred, unless earlier releases of the session still are;
// then they end with those. completed_step is 0 in this case.
struct StepRange {
  uint64_t step = 0;
  uint64_t completed_step = 0;
};

struct Batch {
  std::vector<Operation> operations;
  StepRange steps;
};

// Copies failed, and a running sequence lost computed tokens with them. The client computes these
// again, into the same blocks. Each commit says how many losses of the sequence the client knows
// of. A commit that knows of fewer could declare lost tokens computed, so it is refused with
// KV_LOST. This also covers batches that are under way, or answers that are lost, when a copy
// fails.
struct ShortenedSequence {
  SequenceId sequence;
  uint32_t computed_tokens = 0;
  uint32_t losses = 0;  // So far.
  // A sliding window has passed the lost tokens, so the sequence can only be freed.
  bool must_be_freed = false;
  friend bool operator==(const ShortenedSequence&, const ShortenedSequence&) = default;
};

struct BatchResult {
  std::vector<absl::StatusOr<OperationResult>> results;  // One for each operation, in order.
  // The revision of the last event after the batch.
  Revision revision;
  Ticket completed;         // Every copy up to this one has ended.
  Ticket completed_fetch;   // The same for Lane::kFetch,
  Ticket completed_backup;  // and for Lane::kBackup.
  // The session's sequences with losses that no commit has named yet.
  std::vector<ShortenedSequence> shortened;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_API_OPERATION_H_
