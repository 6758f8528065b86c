// The vocabulary of the cache: what a client asks for, as values. The wire's Operation messages are
// these, field for field; what each one does and which errors it has is at BlockManager's method of
// the same name.
#ifndef PAGODA_MANAGER_OPERATION_H_
#define PAGODA_MANAGER_OPERATION_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "events/event.h"
#include "manager/ids.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// The blocks of a sequence in one window, in token order: token t lives in blocks[t /
// tokens_per_block].
struct BlockTable {
  WindowSize window = kFullAttention;
  std::vector<BlockHandle> blocks;
};

struct AllocateBlocks {
  WindowSize window = kFullAttention;
  uint32_t count = 0;
};
struct AllocatedBlocks {
  std::vector<BlockHandle> blocks;
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
  uint32_t room_tokens = 0;  // From the sequence's start; 0: the whole prompt.
};
struct AddedSequence {
  uint32_t matched_tokens = 0;
  std::vector<BlockTable> tables;  // One a window.
};

struct ReserveTokens {
  SequenceId sequence;
  uint32_t count = 0;
};
struct ReservedTokens {
  std::vector<BlockTable> added;  // The new ends of the tables.
};

struct CommitTokens {
  SequenceId sequence;
  std::vector<TokenId> tokens;
  uint32_t computed_tokens = 0;  // From the sequence's start; 0: unchanged.
};
struct CommittedTokens {
  uint32_t token_count = 0;
};

// ReserveTokens for as many tokens as are missing, then CommitTokens, all or nothing.
struct AppendTokens {
  SequenceId sequence;
  std::vector<TokenId> tokens;
  uint32_t computed_tokens = 0;
};
struct AppendedTokens {
  std::vector<BlockTable> added;
  uint32_t token_count = 0;
};

struct FreeSequence {
  SequenceId sequence;
};
struct FreedSequence {};

struct MatchPrefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
};
struct MatchedPrefix {
  uint32_t matched_tokens = 0;
  std::vector<BlockHandle> blocks;  // Of the largest window; not held, so they may go at any time.
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
  uint32_t room_tokens = 0;
  std::vector<BlockTable> tables;
};

// An operation and its result stand at the same index of the two variants.
using Operation =
    std::variant<AllocateBlocks, FreeBlocks, AddSequence, ReserveTokens, CommitTokens, AppendTokens,
                 FreeSequence, MatchPrefix, DescribePools, DescribeSequence>;
using OperationResult =
    std::variant<AllocatedBlocks, FreedBlocks, AddedSequence, ReservedTokens, CommittedTokens,
                 AppendedTokens, FreedSequence, MatchedPrefix, DescribedPools, DescribedSequence>;

// The most operations one batch may hold.
inline constexpr size_t kMaxBatchOperations = 4096;
// Once the results of a batch hold this many block handles, the operations that are left are
// refused with BATCH_TOO_LARGE and do not run: a few bytes of request must not become gigabytes of
// answer.
inline constexpr size_t kMaxBatchHandles = size_t{1} << 20;

// Block handles in a result; a pool's description counts as a hundred.
size_t CountHandles(const OperationResult& result);

struct BatchResult {
  std::vector<absl::StatusOr<OperationResult>> results;  // One an operation, in order.
  Revision revision;                                     // Of the last event after the batch.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_OPERATION_H_
