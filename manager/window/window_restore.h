// Takes back the cached blocks of an earlier run into one window.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_RESTORE_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_RESTORE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/services/operation_scope.h"
#include "manager/tree/prefix_tree.h"
#include "manager/window/cached_blocks.h"
#include "manager/window/window_counts.h"
#include "manager/window/window_part.h"
#include "manager/words/recovered_block.h"
#include "pools/types.h"

namespace pagoda {

// Keeps no state. Runs at the start, before any other operation. Thread-compatible.
//
// Invariant: what is taken back is evictable in the order in which a sequence would have released
// it, last block first, and has Stored events like a new block.
class WindowRestore final : private WindowPart {
 public:
  WindowRestore(const WindowFloor& floor, WindowCounts& counts, CachedBlocks& cached);

  // Whether Restore can take the blocks: their slots and parents exist, and no content occurs
  // twice. Errors: INVALID_ARGUMENT.
  absl::Status CheckRecovered(absl::Span<const RecoveredBlock> blocks) const;
  // Caches the blocks, whose bytes are in their slots. REQUIRES: CheckRecovered() is OK, and
  // nothing has happened yet.
  void Restore(OperationScope& op, absl::Span<const RecoveredBlock> blocks);
  // Takes back what was found on disk: blocks, and further copies of blocks that are already there.
  // Drops the rest. Returns the number of copies taken back. REQUIRES: nothing but Restore() has
  // happened yet. Errors: INVALID_ARGUMENT (a slot that does not exist or occurs twice; a block
  // that comes before its parent).
  absl::StatusOr<uint64_t> RestoreDisk(OperationScope& op, absl::Span<const RecoveredBlock> blocks);

 private:
  BlockId RestoreOnDisk(OperationScope& op, const RecoveredBlock& block, NodeRef root,
                        NodeRef parent, uint32_t depth, std::vector<BlockRef>* entered);

  WindowCounts& counts_;
  CachedBlocks& cached_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_RESTORE_H_
