// The raw blocks of one window, and what a session may know of its blocks.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_RAW_BLOCKS_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_RAW_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/error.h"
#include "manager/api/operation.h"
#include "manager/services/operation_scope.h"
#include "manager/tree/sequence.h"
#include "manager/window/block_holds.h"
#include "manager/window/cached_blocks.h"
#include "manager/window/window_counts.h"
#include "manager/window/window_part.h"
#include "manager/window/window_pins.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible.
//
// Invariants
// 1. The store names the session that has a raw block (Block::refs). Only that session fills and
// frees it.
// 2. A client's handle is checked before it names a block: an id that exists, the current
// generation, the session's own block. A tenant learns nothing of another tenant's blocks: they are
// stale handles to it.
class WindowRawBlocks final : private WindowPart {
 public:
  WindowRawBlocks(const WindowFloor& floor, WindowCounts& counts, BlockHolds& holds,
                  const WindowPins& pins, CachedBlocks& cached);

  // REQUIRES: so many blocks are available.
  void TakeRaw(OperationScope& op, SessionId owner, absl::Span<BlockHandle> out);
  // OK if `owner` may free all of `blocks`, and each is named once. Errors: those of
  // RawBlocks::FreeBlocks.
  absl::Status CheckRaw(TenantId tenant, SessionId owner, absl::Span<const BlockRef> blocks);
  // OK if `owner` may fill the blocks so, and each is named once. Errors: those of
  // RawBlocks::FillBlocks.
  absl::Status CheckFills(TenantId tenant, SessionId owner, absl::Span<const BlockFill> fills);
  // REQUIRES: CheckFills(tenant, owner, fills) is OK.
  void Fill(absl::Span<const BlockFill> fills);
  // REQUIRES: CheckRaw(op.tenant, owner, blocks) is OK.
  void FreeRaw(OperationScope& op, absl::Span<const BlockRef> blocks);
  // The raw blocks of `owner` from id `*next` on, ascending: at most `max_blocks`, among at most
  // `max_ids` ids. Sets `*next` to the first id that it did not look at. Cost: O(ids looked at).
  std::vector<BlockRef> NextRawBlocks(SessionId owner, BlockId* next, size_t max_blocks,
                                      uint32_t max_ids) const;

  // --- What a session may know of its blocks ---

  using Metadata = absl::flat_hash_map<BlockId, BlockMetadata>;
  // Describes the raw blocks of `owner` among `blocks`, with one holder. The others that a sequence
  // holds get an entry with no holder. Errors: those of RawBlocks::DescribeBlocks, except that
  // a block may be another session's sequence's.
  absl::StatusOr<Metadata> DescribeRaw(TenantId tenant, SessionId owner,
                                       absl::Span<const BlockRef> blocks) const;
  // Adds what the sequence tells of those of its blocks that `metadata` names. Cost: O(its table).
  void DescribeHeld(const Sequence& sequence, Metadata* metadata) const;
  // Completes the description of a block that sequences of the session hold.
  void CompleteMetadata(TenantId tenant, BlockId id, BlockMetadata* metadata) const;
  // FOREIGN_BLOCK, or STALE_HANDLE if the tenant must not learn that the block is in use.
  absl::Status ForeignBlock(TenantId tenant, const BlockRef& ref) const;

 private:
  absl::Status CheckOneRaw(TenantId tenant, SessionId owner, const BlockRef& ref) const;
  absl::Status BlockError(Reason reason, const BlockRef& ref, std::string_view what) const;
  bool IsCurrent(const BlockRef& ref) const {
    return ref.id.value() < store_.num_ids() && store_[ref.id].generation == ref.generation;
  }
  // Errors: UNKNOWN_BLOCK, STALE_HANDLE (another generation).
  absl::Status CheckCurrent(const BlockRef& ref) const;

  WindowCounts& counts_;
  BlockHolds& holds_;
  const WindowPins& pins_;
  CachedBlocks& cached_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_RAW_BLOCKS_H_
