// The blocks of one window as flat arrays by id: who is free, which life each is in, which slot it
// has, and its tokens.
#ifndef PAGODA_MANAGER_BLOCK_STORE_H_
#define PAGODA_MANAGER_BLOCK_STORE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "manager/ids.h"
#include "pools/types.h"

namespace pagoda {

enum class BlockState : uint8_t {
  kFree,     // In the free list; has no slot.
  kRaw,      // Taken by a session through AllocateBlocks.
  kPrivate,  // Of one or more sequences, not in the tree.
  kCached,   // In the tree; held by sequences or by nobody.
};

struct Block {
  Generation generation;     // Of the current life, or of the last one while free.
  SlotIndex slot;            // Means nothing while free.
  uint32_t refs = 0;         // Holders: sequences, or the owner of a raw block.
  uint16_t token_count = 0;  // Of a cached block: the tokens that are its content.
  BlockState state = BlockState::kFree;
  Tier tier = Tier::kPrimary;
  union {
    SessionId owner;    // Of a raw block.
    BlockId next_free;  // Of a free block; kNoBlock ends the list.
  };

  Block() : next_free(kNoBlock) {}
};

// Thread-compatible. All memory is taken at the start.
//
// Invariants
// 1. A block is free or has a slot that no other block has.
// 2. The generation grows by one with each Take, so no two lives of an id share a (id, generation).
// 3. A fresh store hands out ids and slots in ascending order; later the last freed goes first.
class BlockStore {
 public:
  BlockStore(uint32_t capacity, uint32_t tokens_per_block);

  uint32_t capacity() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t tokens_per_block() const { return tokens_per_block_; }
  uint32_t free_count() const { return static_cast<uint32_t>(free_slots_.size()); }

  // Starts a new life of a free block with one holder. REQUIRES: free_count() > 0, state is not
  // kFree.
  BlockId Take(BlockState state);
  // Ends a life. REQUIRES: `id` is not free and nobody holds it.
  void Release(BlockId id);

  Block& operator[](BlockId id) { return blocks_[id.value()]; }
  const Block& operator[](BlockId id) const { return blocks_[id.value()]; }
  BlockHandle handle(BlockId id) const { return {id, (*this)[id].generation, (*this)[id].slot}; }

  // All tokens_per_block() token ids of a block; what lies beyond its content means nothing.
  absl::Span<TokenId> tokens(BlockId id) {
    return {tokens_.data() + size_t{id.value()} * tokens_per_block_, tokens_per_block_};
  }
  absl::Span<const TokenId> tokens(BlockId id) const {
    return {tokens_.data() + size_t{id.value()} * tokens_per_block_, tokens_per_block_};
  }
  // The tokens that are a cached block's content.
  absl::Span<const TokenId> content(BlockId id) const {
    return tokens(id).first((*this)[id].token_count);
  }

 private:
  const uint32_t tokens_per_block_;
  std::vector<Block> blocks_;
  std::vector<TokenId> tokens_;
  BlockId first_free_ = kNoBlock;      // A stack, linked through the blocks.
  std::vector<SlotIndex> free_slots_;  // A stack as high as that.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_BLOCK_STORE_H_
