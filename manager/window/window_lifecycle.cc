// The list of blocks outside the prefix tree.
#include <vector>

#include "manager/window/window_block_manager.h"

namespace pagoda {

std::vector<BlockId> WindowBlockManager::DumpAllocated() const {
  std::vector<BlockId> allocated;
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    if (store_[BlockId{i}].allocated_outside_tree()) allocated.push_back(BlockId{i});
  }
  return allocated;
}

}  // namespace pagoda
