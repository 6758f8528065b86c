// The prefix tree of one window, made from events alone, in flat arrays. It is like
// tests/events/shadow_tree.h for subscribers, but fast enough to compare with the core after every
// operation. It also keeps the places of holes, which readers of events need not do.
#ifndef PAGODA_TESTS_SIM_RECORD_SHADOW_H_
#define PAGODA_TESTS_SIM_RECORD_SHADOW_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "events/event.h"
#include "tests/events/shadow_tree.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/content.h"

namespace pagoda::sim {

inline constexpr uint32_t kNone = kNoBlock.value();

struct Node {
  // kHole: its block left a sliding window's tree while it had children.
  enum class State : uint8_t { kAbsent, kCached, kHole };
  State state = State::kAbsent;
  Tier tier = kPrimaryTier;
  TierSet lower;  // Farther tiers with a copy.
  Priority priority;
  uint8_t count = 0;  // Tokens.
  uint32_t name_space = 0;
  uint32_t depth = 0;  // The number of blocks above it.
  uint32_t parent = kNone;
  uint32_t first_child = kNone;
  uint32_t next_sibling = kNone;
  BlockHash hash;
  std::array<TokenKey, kMaxTokensPerBlock> keys = {};
  std::array<Value, kMaxTokensPerBlock> values = {};

  bool cached() const { return state == State::kCached; }
  bool in_tree() const { return state != State::kAbsent; }
};

class Shadow {
 public:
  Shadow(const SimConfig* config, uint32_t window_index);

  // Stops the run if the event does not fit the tree.
  void ApplyStored(const StoredEvent& stored);
  void ApplyUpdated(const UpdatedEvent& updated);
  void Clear();
  // One block of a removal.
  void Remove(BlockId id, BlockHash hash, uint32_t end_token);

  // Stops the run if `entries` (BlockManager::DumpTree) is a different tree.
  void Compare(const std::vector<TreeEntry>& entries) const;

  // The block with that id; absent if it was never seen.
  const Node& node(uint32_t id) const { return id < nodes_.size() ? nodes_[id] : absent_; }
  uint32_t num_ids() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t first_child(uint32_t parent, uint32_t name_space) const {
    return parent == kNone ? roots_[name_space] : nodes_[parent].first_child;
  }
  // The child with exactly these keys, cached or a hole; kNone if there is none.
  uint32_t FindChild(uint32_t parent, uint32_t name_space, absl::Span<const TokenKey> keys) const;
  // The cached children of `parent` that begin with these keys and are longer: the first in the
  // order of their tokens; kNone if there is none.
  uint32_t FirstLonger(uint32_t parent, uint32_t name_space, absl::Span<const TokenKey> keys) const;
  // The block whose last token has `value`, and its number of tokens; kNone if there is none. Cost:
  // O(ids).
  uint32_t FindValue(Value value) const;
  // The tokens from the prompt's start to the block's end.
  uint32_t EndToken(uint32_t id) const;
  bool HasChildren(uint32_t id) const { return nodes_[id].first_child != kNone; }
  // Whether children are cached in that tier or a nearer one.
  bool HasNearChildren(uint32_t id, Tier tier) const;
  uint32_t cached_count() const { return cached_count_; }
  uint32_t holes() const { return holes_; }

 private:
  void StoreOne(const StoredEvent& stored, const StoredBlock& block, uint32_t parent,
                uint32_t name_space, size_t token_begin);
  void CheckLower(uint32_t id) const;
  void Unlink(uint32_t id);
  void DropEmptyHoles(uint32_t id);
  uint32_t NameSpaceIndex(const NamespaceKey& key) const;

  const SimConfig* const config_;
  const WindowSize window_;
  const bool sliding_;
  const Node absent_;
  std::vector<Node> nodes_;
  // By id: the tokens of a block in the tree, and their extras.
  std::vector<std::pair<std::vector<TokenId>, std::vector<TokenExtra>>> contents_;
  std::vector<uint32_t> roots_;  // First child by name space.
  std::vector<BlockHash> root_hashes_;
  uint32_t cached_count_ = 0;
  uint32_t holes_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_SHADOW_H_
