// The vocabulary of the cache: what a client asks for, as values. The wire's Operation messages are
// these, field for field; what each one does and which errors it has is at BlockManager's method of
// the same name.
#ifndef PAGODA_MANAGER_OPERATION_H_
#define PAGODA_MANAGER_OPERATION_H_

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
#include "manager/ids.h"
#include "manager/retention.h"
#include "pools/copy_order.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// The blocks of a sequence in one window, in token order: token t lives in entry t /
// tokens_per_block of the table. Entries [first_block, first_block + blocks.size()) of it: where it
// is the answer to a change, entries before first_block are as they were, and there are none
// after. Where a sliding window has passed, an entry is empty (kNoBlock).
struct BlockTable {
  WindowSize window = kFullAttention;
  uint32_t first_block = 0;
  std::vector<BlockHandle> blocks;

  // The block of token `token`, counted from the sequence's start; kNoBlock where the window has
  // passed it or this part of the table does not reach it. Its place in that block is
  // TokensPerBlock::OffsetInBlock(token).
  BlockHandle BlockForToken(uint64_t token, TokensPerBlock tokens_per_block) const {
    const uint64_t entry = tokens_per_block.BlockForToken(token);
    if (entry < first_block || entry - first_block >= blocks.size()) return {};
    return blocks[entry - first_block];
  }
  friend bool operator==(const BlockTable&, const BlockTable&) = default;
};

// A `ready` ticket in a result: the slots that the result names may be read and written when the
// copy with this ticket and those before it are done; 0 is now. A copy may fail: see
// BatchResult::shortened.

// `keys` in an operation: in a keyed namespace (NamespaceKey::keyed), the whole blocks that are
// meant, from the first one on, instead of tokens. `tokens`, ids and items are empty then, and
// every length in tokens is a whole number of blocks: KEYS_AND_TOKENS, WHOLE_BLOCKS_ONLY.

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

struct AddSequence {
  SequenceId sequence;
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  uint32_t reserved_tokens = 0;                  // From the sequence's start; 0: the whole prompt.
  std::vector<uint64_t> extra_token_ids;         // One a token, or none at all.
  std::vector<MultimodalItem> multimodal_items;  // Ascending, not overlapping.
  SequenceRetention retention;
  std::string tenant = {};  // Whom it is charged to: see TenantTable::Charged.
  // No part of a block is matched, for engines that would drop it.
  bool whole_blocks_only = false;
  // All of them may match, the last one too: the engine has tokens of its own behind them.
  std::vector<ClientKey> keys = {};
};
struct AddedSequence {
  uint32_t matched_tokens = 0;
  uint32_t matched_secondary_tokens = 0;  // Of these, those that are on their way up.
  // Cached behind the match, and on disk: PrefetchPrefix brings them into memory.
  uint32_t matched_below_tokens = 0;
  std::vector<BlockTable> tables;  // One a window.
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
  std::vector<ClientKey> keys = {};  // Of the next blocks, of a keyed sequence.
};
struct CommittedTokens {
  uint32_t token_count = 0;
};

// ReserveTokens for as many tokens as are missing, then CommitTokens, all or nothing.
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
// fails by itself, in the order in which they are named; a keyed one takes no tokens.
struct AppendStep {
  std::vector<SequenceId> sequences;  // 1 to kMaxStepSequences.
  // These have an entry for each sequence, or are empty.
  std::vector<uint32_t> token_counts = {};     // Empty: one token each.
  std::vector<uint32_t> computed_tokens = {};  // Empty: unchanged.
  std::vector<uint32_t> known_losses = {};     // Empty: 0.
  std::vector<TokenId> tokens;                 // One sequence's behind the other's.
};
// An operation runs in one go: more would hold the core's lock for long.
inline constexpr size_t kMaxStepSequences = 1024;
// What changed, and nothing else: in most steps most sequences stay in their last block.
struct AppendedStep {
  // Table entries that are new or other ones, from first_block to the table's end, in each window.
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
  std::vector<BlockHandle> blocks;  // Of each growth those of each window, in the cache's order.
  std::vector<Failure> failed;      // Ascending. These changed nothing.
};

struct ForkSequence {
  SequenceId sequence;
  SequenceId new_sequence;
};
struct ForkedSequence {
  uint32_t token_count = 0;
  uint32_t computed_tokens = 0;
  uint32_t losses = 0;  // Those of the sequence that it was forked from.
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
  std::vector<BlockTable> tables;  // From the first entry that is another one or gone.
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
};
struct MatchedPrefix {
  uint32_t matched_tokens = 0;
  std::vector<BlockHandle> blocks;  // Of the largest window; not held, so they may go at any time.
  // What is cached of the prompt in whichever tier, and how much of it lies in each of the cache's
  // tiers: by the nearest copies of the largest window. A sequence matches nothing on disk.
  uint32_t cached_tokens = 0;
  std::vector<uint32_t> tokens_by_tier;
};

// Blocks that a prompt, or more tokens of a running sequence, would take if all of them were in the
// tables at once. A sliding window lets go as it passes, so a prompt that is taken in piece by
// piece needs fewer there.
struct QueryCapacity {
  SequenceId sequence;  // 0: a new one, with what is named below.
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  uint32_t max_new_tokens = 0;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  std::string tenant = {};  // As in AddSequence; of a new one.
  std::vector<ClientKey> keys = {};
};
struct WindowCapacity {
  WindowSize window = kFullAttention;
  uint32_t blocks_now = 0;            // To take the prompt in; for a running sequence 0.
  uint32_t blocks_to_completion = 0;  // With max_new_tokens more. What is matched but held by
                                      // nobody counts: it is among the available ones.
  uint32_t available_blocks = 0;      // Free, or cached and held by nobody; for a tenant, as far as
                                      // its quota goes.
  // Of the tenant's quota, where it has one: all of it, and what it may hold more, with its cached
  // blocks given up.
  std::optional<uint32_t> quota_blocks;
  std::optional<uint32_t> quota_left_blocks;
};
struct CapacityAnswer {
  uint32_t matched_tokens = 0;
  std::vector<WindowCapacity> windows;
};

// The operations on prefixes name one by all that a block's identity has, as AddSequence does.

struct OffloadPrefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  std::vector<ClientKey> keys = {};
};
struct OffloadedPrefix {
  uint32_t blocks = 0;  // Moved down, over all windows.
  Ticket ready;         // The last of their copies.
};

// kPrimary: blocks in memory come up to the first tier. kMemory: they stay where they are, and what
// lies on disk alone is fetched.
enum class PrefetchTarget : uint8_t { kPrimary, kMemory };
struct PrefetchPrefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  PrefetchTarget target = PrefetchTarget::kPrimary;
  // Fetches that have not ended by then are given up: what came so far stays.
  absl::Duration deadline = absl::InfiniteDuration();
  std::vector<ClientKey> keys = {};
};
struct PrefetchedPrefix {
  uint32_t matched_tokens = 0;  // Cached in whichever tier.
  uint32_t blocks = 0;          // Moved up between memories, over all windows.
  Ticket ready;
  uint32_t fetched_blocks = 0;  // On their way from disk into the last memory tier.
  Ticket fetch;                 // Of Lane::kFetch: the last of them.
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
  uint32_t blocks = 0;  // Over all windows, those that other pins hold too among them.
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
  std::string tenant = {};  // Of the session that made it; empty: nobody's.
};
// For a tenant, its own pins, what they hold, and its share of the budget.
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
  Ticket durable;  // Of Lane::kBackup: then none of it comes back after a restart.
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
  uint32_t blocks = 0;  // Cached blocks that one of the ranges names, over all windows.
};

// Waits until everything in the lane up to `ticket` has ended, at most kMaxTicketWait; then it
// fails with WAIT_TIMEOUT. UNKNOWN_TICKET: the lane has not given this ticket yet.
inline constexpr absl::Duration kMaxTicketWait = absl::Seconds(5);
struct WaitForTicket {
  Ticket ticket;
  Lane lane = Lane::kMemory;
};
struct WaitedForTicket {
  Ticket completed;  // Of the lane.
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

// An operation and its result stand at the same index of the two variants.
using Operation =
    std::variant<AllocateBlocks, FreeBlocks, AddSequence, ReserveTokens, CommitTokens, AppendTokens,
                 FreeSequence, MatchPrefix, DescribePools, DescribeSequence, ForkSequence,
                 TruncateSequence, QueryCapacity, OffloadPrefix, PrefetchPrefix, PinPrefix,
                 UnpinPrefix, ListPins, InvalidatePrefix, SetRetention, WaitForTicket, AppendStep>;
using OperationResult =
    std::variant<AllocatedBlocks, FreedBlocks, AddedSequence, ReservedTokens, CommittedTokens,
                 AppendedTokens, FreedSequence, MatchedPrefix, DescribedPools, DescribedSequence,
                 ForkedSequence, TruncatedSequence, CapacityAnswer, OffloadedPrefix,
                 PrefetchedPrefix, PinnedPrefix, UnpinnedPrefix, ListedPins, InvalidatedPrefix,
                 RetentionSet, WaitedForTicket, AppendedStep>;

// The most operations one batch may hold.
inline constexpr size_t kMaxBatchOperations = 4096;
// Once the results of a batch hold this many block handles, the operations that are left are
// refused with BATCH_TOO_LARGE and do not run: a few bytes of request must not become gigabytes of
// answer.
inline constexpr size_t kMaxBatchHandles = size_t{1} << 20;

// Block handles in a result; a pool's description, or a pin's, counts as a hundred, and a failure
// inside a result as sixteen.
size_t CountHandles(const OperationResult& result);

// Rule 11: the client's step that will use the blocks of a batch, and the last one whose kernels
// have finished. What is released in step s is not handed out again before s is completed. Step 0:
// the batch's releases do not drain, unless earlier ones of the session still do: then they end
// with those. completed_step is then 0, too.
struct StepRange {
  uint64_t step = 0;
  uint64_t completed_step = 0;
};

struct Batch {
  std::vector<Operation> operations;
  StepRange steps;
};

// Copies failed, and with them went computed tokens of a running sequence. The client computes them
// again, into the same blocks, and says with each commit how many losses of the sequence it knows
// of: one that knows of fewer than there are may declare tokens computed that are not, and is
// refused with KV_LOST. So batches may be under way, and answers may be lost, when a copy fails.
struct ShortenedSequence {
  SequenceId sequence;
  uint32_t computed_tokens = 0;
  uint32_t losses = 0;  // So far.
  // A sliding window has passed what was lost: the sequence can only be freed.
  bool must_be_freed = false;
  friend bool operator==(const ShortenedSequence&, const ShortenedSequence&) = default;
};

struct BatchResult {
  std::vector<absl::StatusOr<OperationResult>> results;  // One an operation, in order.
  Revision revision;                                     // Of the last event after the batch.
  Ticket completed;                                      // Every copy up to this one has ended.
  Ticket completed_fetch;                                // Likewise of Lane::kFetch,
  Ticket completed_backup;                               // and of Lane::kBackup.
  // Those of the session whose losses no commit has named yet.
  std::vector<ShortenedSequence> shortened;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_OPERATION_H_
