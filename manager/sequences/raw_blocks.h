// Blocks that sessions take by id, without a sequence.
#ifndef PAGODA_MANAGER_SEQUENCES_RAW_BLOCKS_H_
#define PAGODA_MANAGER_SEQUENCES_RAW_BLOCKS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "manager/accounts/session_table.h"
#include "manager/api/manager_options.h"
#include "manager/api/operation.h"
#include "manager/sequences/capacity_checks.h"
#include "manager/sequences/operation_runner.h"
#include "manager/sequences/running_sequences.h"
#include "manager/services/event_recorder.h"
#include "manager/services/operation_scope.h"
#include "manager/window/window_block_manager.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible.
//
// Invariant: Session::raw_blocks is the number of raw blocks that the session has, over all
// windows. With LifecycleEvents::kRaw each raw block has one Created and one Removed event. With
// kAll the windows record these events, as for every block.
class RawBlocks {
 public:
  // All references outlive it.
  RawBlocks(LifecycleEvents events, const WindowSet& windows, const CapacityChecks& capacity,
            const RunningSequences& sequences, SessionTable& sessions, EventRecorder& recorder,
            OperationRunner& runner)
      : records_(events == LifecycleEvents::kRaw),
        windows_(windows),
        capacity_(capacity),
        sequences_(sequences),
        sessions_(sessions),
        recorder_(recorder),
        runner_(runner) {}
  RawBlocks(const RawBlocks&) = delete;
  RawBlocks& operator=(const RawBlocks&) = delete;

  // Takes out.size() blocks that belong to no sequence. Fresh pools hand out slots in ascending
  // order. Returns the ticket that the slots wait for. Errors: UNKNOWN_WINDOW, INVALID_COUNT (none,
  // or more than the capacity or the tenant's quota), BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED.
  absl::StatusOr<Ticket> AllocateBlocks(SessionId session, WindowSize window,
                                        absl::Span<BlockHandle> out, absl::Time now);
  // Gives raw blocks back. Errors: UNKNOWN_WINDOW, INVALID_COUNT (none), UNKNOWN_BLOCK (no such
  // id), DOUBLE_FREE (already free, or twice in `blocks`), STALE_HANDLE (an earlier generation),
  // FOREIGN_BLOCK (it belongs to another session, to a sequence or to the cache).
  absl::Status FreeBlocks(SessionId session, WindowSize window, absl::Span<const BlockRef> blocks,
                          absl::Time now);
  // Notes how many tokens the client has written into raw blocks, and which of these are finalised;
  // all or nothing. Applies no expiries. Errors: those of FreeBlocks; BLOCK_FINALIZED (finalised
  // earlier), INVALID_COUNT (more tokens than a block holds), COMPUTED_BACKWARDS (fewer than
  // before).
  absl::Status FillBlocks(SessionId session, WindowSize window, absl::Span<const BlockFill> fills);
  // What is known of raw blocks of the session and of blocks in tables of its sequences, in this
  // order. A block may be named twice. Changes nothing. Cost: O(blocks), and O(entries of the
  // session's tables) if one is a sequence's. Errors: UNKNOWN_WINDOW, INVALID_COUNT (none, or more
  // than kMaxBatchHandles), UNKNOWN_BLOCK, STALE_HANDLE (an earlier generation, or freed),
  // FOREIGN_BLOCK.
  absl::StatusOr<std::vector<BlockMetadata>> DescribeBlocks(
      SessionId session, WindowSize window, absl::Span<const BlockRef> blocks) const;

  // For other parts: takes blocks back. REQUIRES: the session may free them.
  void Free(OperationScope& op, Session& session, WindowBlockManager& window,
            absl::Span<const BlockRef> blocks);

 private:
  const bool records_;  // Only raw blocks have lifecycle events.
  const WindowSet& windows_;
  const CapacityChecks& capacity_;
  const RunningSequences& sequences_;
  SessionTable& sessions_;
  EventRecorder& recorder_;
  OperationRunner& runner_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_RAW_BLOCKS_H_
