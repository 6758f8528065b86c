// A reset: the tree is cut off at once, and its blocks are released a few at a time.
#include "base/check.h"
#include "manager/window/window_block_manager.h"

namespace pagoda {

uint64_t WindowBlockManager::CutOffTree() {
  PAGODA_CHECK(!has_cut_off() && pinned_blocks() == 0,
               "a reset begins after the one before it, and after the pins");
  OrderErase(FileErase::What::kAll);
  const uint64_t left = cached_blocks_;
  if (left == 0) return 0;
  cached_blocks_ = 0;
  tree_.CutOff();
  reuse_distances_.Clear();
  next_cut_off_ = 0;
  recorder().WindowCleared(window());
  return left;
}

// Releases leaves first, so the tree is valid after each. Walks from an id down to a leaf below it,
// and up again as the blocks leave. Keeps its place in a path of any length.
uint32_t WindowBlockManager::FreeCutOff(OperationScope& op, uint32_t max_blocks) {
  uint32_t looked = 0;
  for (; looked < max_blocks && has_cut_off(); ++looked) {
    if (cut_off_ == kNoBlock) {
      const BlockId id{next_cut_off_};
      if (!IsCutOff(id)) {
        ++next_cut_off_;
        continue;
      }
      cut_off_ = id;
    }
    if (tree_.has_children(cut_off_)) {
      cut_off_ = tree_.AnyChild(cut_off_);
    } else {
      CutLeaf(op, cut_off_, RemovalReason::kCleared);
    }
  }
  return looked;
}

}  // namespace pagoda
