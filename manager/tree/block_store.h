// The blocks of one window as flat arrays by id: state, generation, holders, slot and tokens.
#ifndef PAGODA_MANAGER_TREE_BLOCK_STORE_H_
#define PAGODA_MANAGER_TREE_BLOCK_STORE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/types/span.h"
#include "base/big_array.h"
#include "base/check.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "events/event.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

enum class BlockState : uint8_t {
  kFree,     // In the list of free ids.
  kRaw,      // Taken by a session through AllocateBlocks.
  kPrivate,  // Held by one or more sequences, not in the tree.
  kCached,   // In the tree; held by sequences and pins, or evictable.
  kHole,     // In the tree without bytes: a sliding window's block that left while it had children.
  kAlias,    // Held by one or more sequences; its bytes lie in the slot of a cached block that they
             // hold too.
};

// Whether a block in this state owns the slot that it names.
constexpr bool OwnsSlot(BlockState state) {
  return state == BlockState::kRaw || state == BlockState::kPrivate || state == BlockState::kCached;
}

// 16 bytes.
struct Block {
  Generation generation;     // The generation of the current use, or of the last one while free.
  SlotIndex slot = kNoSlot;  // In `tier`; has a meaning only if OwnsSlot(state) or kAlias.
  // The number of holders: sequences, pins, deferred releases. Of a raw block: its session's id.
  uint32_t refs = 0;
  // For a block in the tree: the tokens of its content. For a raw block: those that its client has
  // written.
  uint32_t token_count : 11 = 0;
  uint32_t priority_value : 7 = 0;
  uint32_t state_value : 3 = 0;
  uint32_t tier_value : 2 = 0;
  uint32_t timed : 1 = 0;     // Has a duration: see ExpiryQueue.
  uint32_t beside : 1 = 0;    // Some tokens have a TokenExtra, or a client's key names the block.
  uint32_t deferred : 1 = 0;  // Some of its holders are deferred releases.
  uint32_t pinned : 1 = 0;    // Some of its holders are pins.
  uint32_t followed : 1 = 0;  // By ReuseIntervals; only while in the tree.
  // For a block in the tree: which tree it is in, the one cut off or the current one.
  uint32_t tree : 1 = 0;
  uint32_t uses : 2 = 0;    // For a cached block: BlockFacts::uses. For a raw one: see finalized.
  uint32_t marked : 1 = 0;  // Scratch of a walk over blocks; 0 between calls.

  BlockState state() const { return static_cast<BlockState>(state_value); }
  void set_state(BlockState state) { state_value = static_cast<uint32_t>(state); }
  Tier tier() const { return Tier(tier_value); }
  Priority priority() const { return Priority{static_cast<uint8_t>(priority_value)}; }
  void set_priority(Priority priority) { priority_value = priority.value(); }
  bool in_tree() const { return state() == BlockState::kCached || state() == BlockState::kHole; }
  // For a raw block: its client writes it no more.
  bool finalized() const { return uses != 0; }
  void finalize() { uses = 1; }
  // Taken, and not in the tree. An alias has its own id, but shares its slot.
  bool allocated_outside_tree() const { return !in_tree() && state() != BlockState::kFree; }
};
static_assert(sizeof(Block) == 16 && kMaxTiers <= 4);

// Copies 64 bytes at a time, because memcpy of a constant size is a few inline instructions.
inline void CopyTokenIds(absl::Span<const TokenId> from, TokenId* to) {
  constexpr size_t kRun = 64 / sizeof(TokenId);
  for (; from.size() >= kRun; from.remove_prefix(kRun), to += kRun) {
    std::memcpy(to, from.data(), kRun * sizeof(TokenId));
  }
  std::copy(from.begin(), from.end(), to);
}

// Thread-compatible. All memory is taken at the start, except for token extras and clients' keys.
//
// Invariants
// 1. The generation grows by one each time the id is taken. After the largest comes 1 (0 is never
// given). So no two of the last 2^32 - 1 uses of an id share a generation. An older handle can be
// mistaken for a later use, but only in its own session, because a raw block keeps its session's
// id.
// 2. A fresh store hands out ids in ascending order. Later the id that was freed last is handed out
// first.
class BlockStore {
 public:
  struct Options {
    TokensPerBlock tokens_per_block{1};
    uint32_t num_ids = 0;
  };
  explicit BlockStore(const Options& options);

  uint32_t num_ids() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t free_ids() const { return free_ids_; }
  uint32_t tokens_per_block() const { return tokens_per_block_; }

  // Takes an id with a new generation: no slot, one holder, default priority. REQUIRES: free_ids()
  // > 0; `state` is not kFree.
  BlockId TakeId(BlockState state) {
    PAGODA_CHECK(free_ids_ > 0 && state != BlockState::kFree, "a free block id can be taken");
    const BlockId id{first_free_id_};
    Block& block = (*this)[id];
    first_free_id_ = block.slot.value();
    --free_ids_;
    block = {.generation = Next(block.generation),
             .refs = 1,
             .priority_value = kDefaultPriority.value(),
             .state_value = static_cast<uint32_t>(state)};
    return id;
  }
  // Makes the id free again. REQUIRES: `id` is not free, and nothing holds it.
  void ReleaseId(BlockId id) {
    Block& block = (*this)[id];
    PAGODA_CHECK(block.state() != BlockState::kFree && block.refs == 0,
                 "rule 4: a block ends once, and after its last holder");
    if (block.beside) EraseBeside(id);
    block = {.generation = block.generation, .slot = SlotIndex{first_free_id_}};
    first_free_id_ = id.value();
    ++free_ids_;
  }
  // Gives a block that nothing holds a new generation, in the same slot and with the same tokens.
  // REQUIRES: it owns its slot, before and in `state`.
  void Renew(BlockId id, BlockState state) {
    Block& block = (*this)[id];
    PAGODA_CHECK(block.refs == 0 && OwnsSlot(block.state()) && OwnsSlot(state),
                 "rule 4: a block's next life begins after its last holder");
    if (block.beside) EraseBeside(id);
    block = {.generation = Next(block.generation),
             .slot = block.slot,
             .refs = 1,
             .priority_value = kDefaultPriority.value(),
             .state_value = static_cast<uint32_t>(state),
             .tier_value = block.tier_value};
  }

  // The block's bytes lie there from now on. The caller makes sure that no other block owns the
  // slot.
  void SetSlot(BlockId id, SlotRef slot) {
    Block& block = (*this)[id];
    block.slot = slot.slot;
    block.tier_value = slot.tier.value();
  }

  Block& operator[](BlockId id) { return blocks_[id.value()]; }
  const Block& operator[](BlockId id) const { return blocks_[id.value()]; }
  SlotRef slot(BlockId id) const { return {(*this)[id].tier(), (*this)[id].slot}; }
  BlockHandle handle(BlockId id) const { return {id, (*this)[id].generation, (*this)[id].slot}; }

  // All tokens_per_block() token ids of a block. Those beyond its content have no meaning.
  absl::Span<TokenId> tokens(BlockId id) {
    return {tokens_.data() + size_t{id.value()} * tokens_per_block_, tokens_per_block_};
  }
  absl::Span<const TokenId> tokens(BlockId id) const {
    return {tokens_.data() + size_t{id.value()} * tokens_per_block_, tokens_per_block_};
  }
  // Empty if no token has any.
  absl::Span<const TokenExtra> extras(BlockId id) const {
    return (*this)[id].beside ? ExtrasOf(id) : absl::Span<const TokenExtra>();
  }
  // Keeps a copy until the id is released. An empty span removes the extras. REQUIRES: no client's
  // key names the block.
  void SetExtras(BlockId id, absl::Span<const TokenExtra> extras);
  // A client's key names the block instead of tokens, until the id is released.
  void SetClientKey(BlockId id, const ClientKey& key);
  // REQUIRES: a client's key names the block.
  const ClientKey& client_key(BlockId id) const { return client_keys_.at(id); }
  // Sets the block's content to `key`, and token_count to its tokens.
  void SetContent(BlockId id, const BlockKey& key);
  // The number of tokens of a block with this content.
  uint32_t TokensOf(const BlockKey& key) const {
    return key.keyed ? tokens_per_block_ : static_cast<uint32_t>(key.tokens.size());
  }
  // The content that finds a block in the tree: its first token_count tokens, or its client's key.
  BlockKey key(BlockId id) const {
    const Block& block = (*this)[id];
    const absl::Span<const TokenId> content = tokens(id).first(block.token_count);
    return block.beside ? KeyBeside(id, content) : BlockKey{content, {}};
  }

 private:
  static constexpr Generation Next(Generation generation) {
    const uint32_t next = generation.value() + 1;
    return Generation{next + (next == 0 ? 1 : 0)};
  }
  absl::Span<const TokenExtra> ExtrasOf(BlockId id) const;
  BlockKey KeyBeside(BlockId id, absl::Span<const TokenId> content) const;
  void EraseBeside(BlockId id);

  const uint32_t tokens_per_block_;
  BigArray<Block> blocks_;  // A free block's `slot` is the next free id.
  BigArray<TokenId> tokens_;
  uint32_t first_free_id_;
  uint32_t free_ids_;
  // A block is in at most one of the two.
  absl::flat_hash_map<BlockId, std::vector<TokenExtra>> extras_;
  absl::node_hash_map<BlockId, ClientKey> client_keys_;  // BlockKeys refer to the values.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TREE_BLOCK_STORE_H_
