#include "manager/block_store.h"

#include <utility>

#include "pools/check.h"

namespace pagoda {

BlockStore::BlockStore(uint32_t capacity, uint32_t tokens_per_block)
    : tokens_per_block_(tokens_per_block),
      blocks_(capacity),
      tokens_(size_t{capacity} * tokens_per_block) {
  free_slots_.reserve(capacity);
  for (uint32_t i = capacity; i-- > 0;) {
    blocks_[i].next_free = std::exchange(first_free_, BlockId{i});
    free_slots_.push_back(SlotIndex{i});
  }
}

BlockId BlockStore::Take(BlockState state) {
  PAGODA_CHECK(first_free_ != kNoBlock && state != BlockState::kFree, "a free block can be taken");
  const BlockId id = first_free_;
  Block& block = (*this)[id];
  first_free_ = block.next_free;
  block.generation = Generation{block.generation.value() + 1};
  block.slot = free_slots_.back();
  free_slots_.pop_back();
  block.refs = 1;
  block.token_count = 0;
  block.state = state;
  block.owner = SessionId{};
  return id;
}

void BlockStore::Release(BlockId id) {
  Block& block = (*this)[id];
  PAGODA_CHECK(block.state != BlockState::kFree && block.refs == 0,
               "rule 4: a block ends once, and after its last holder");
  block.state = BlockState::kFree;
  block.next_free = std::exchange(first_free_, id);
  free_slots_.push_back(block.slot);
}

}  // namespace pagoda
