// Blocks that sessions take by id, without a sequence.
#ifndef PAGODA_MANAGER_SEQUENCES_RAW_BLOCKS_H_
#define PAGODA_MANAGER_SEQUENCES_RAW_BLOCKS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "manager/accounts/session_table.h"
#include "manager/api/manager_options.h"
#include "manager/api/operation.h"
#include "manager/sequences/capacity_checks.h"
#include "manager/sequences/operation_runner.h"
#include "manager/services/event_recorder.h"
#include "manager/services/operation_scope.h"
#include "manager/window/window_block_manager.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"
#include "pools/copy_order.h"
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
            SessionTable& sessions, EventRecorder& recorder, OperationRunner& runner)
      : records_(events == LifecycleEvents::kRaw),
        windows_(windows),
        capacity_(capacity),
        sessions_(sessions),
        recorder_(recorder),
        runner_(runner) {}
  RawBlocks(const RawBlocks&) = delete;
  RawBlocks& operator=(const RawBlocks&) = delete;

  // As BlockManager's methods of the same names.
  absl::StatusOr<Ticket> AllocateBlocks(SessionId session, WindowSize window,
                                        absl::Span<BlockHandle> out, absl::Time now);
  absl::Status FreeBlocks(SessionId session, WindowSize window, absl::Span<const BlockRef> blocks,
                          absl::Time now);
  absl::Status FillBlocks(SessionId session, WindowSize window, absl::Span<const BlockFill> fills);

  // Takes blocks back. REQUIRES: the session may free them.
  void Free(OperationScope& op, Session& session, WindowBlockManager& window,
            absl::Span<const BlockRef> blocks);

 private:
  const bool records_;  // Only raw blocks have lifecycle events.
  const WindowSet& windows_;
  const CapacityChecks& capacity_;
  SessionTable& sessions_;
  EventRecorder& recorder_;
  OperationRunner& runner_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_RAW_BLOCKS_H_
