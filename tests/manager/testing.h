// A core for tests: one layer with one head, because only the bookkeeping matters.
#ifndef PAGODA_TESTS_MANAGER_TESTING_H_
#define PAGODA_TESTS_MANAGER_TESTING_H_

#include <cstdint>
#include <memory>

#include "manager/block_manager.h"
#include "tests/manager/host_tiers.h"

namespace pagoda {

inline CacheLayout TinyLayout(uint32_t tokens_per_block) {
  return *CacheLayout::Create({.name = "test",
                               .tokens_per_block = tokens_per_block,
                               .layers = {{.num_kv_heads = 1, .head_dim = 1}}});
}

inline std::unique_ptr<BlockManager> MakeCore(uint32_t blocks, uint32_t tokens_per_block) {
  return *BlockManager::Create(
      {.layout = TinyLayout(tokens_per_block), .tiers = HostTiers({blocks}), .epoch = Epoch{1}});
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_TESTING_H_
