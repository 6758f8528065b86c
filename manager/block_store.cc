#include "manager/block_store.h"

#include "pools/check.h"

namespace pagoda {

BlockStore::BlockStore(uint32_t capacity, uint32_t tokens_per_block)
    : tokens_per_block_(tokens_per_block),
      blocks_(capacity),
      tokens_(size_t{capacity} * tokens_per_block) {
  free_ids_.reserve(capacity);
  free_slots_.reserve(capacity);
  for (uint32_t i = capacity; i-- > 0;) {
    free_ids_.push_back(BlockId{i});
    free_slots_.push_back(SlotIndex{i});
  }
}

BlockId BlockStore::Take(BlockState state) {
  PAGODA_CHECK(!free_ids_.empty() && state != BlockState::kFree, "a free block can be taken");
  const BlockId id = free_ids_.back();
  free_ids_.pop_back();
  Block& block = (*this)[id];
  block.generation = Generation{block.generation.value() + 1};
  block.slot = free_slots_.back();
  free_slots_.pop_back();
  block.refs = 1;
  block.token_count = 0;
  block.state = state;
  return id;
}

void BlockStore::Release(BlockId id) {
  Block& block = (*this)[id];
  PAGODA_CHECK(block.state != BlockState::kFree && block.refs == 0,
               "rule 4: a block ends once, and after its last holder");
  block.state = BlockState::kFree;
  block.owner = SessionId{};
  free_ids_.push_back(id);
  free_slots_.push_back(block.slot);
}

}  // namespace pagoda
