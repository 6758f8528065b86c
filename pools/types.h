// The vocabulary of memory: what every room above calls a block, a slot, a tier.
#ifndef PAGODA_POOLS_TYPES_H_
#define PAGODA_POOLS_TYPES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/strong_id.h"

namespace pagoda {

// A block, as long as it lives; unique inside its window. Dense from 0, so that it indexes arrays.
using BlockId = StrongId<struct BlockIdTag, uint32_t>;
inline constexpr BlockId kNoBlock{std::numeric_limits<uint32_t>::max()};

// Which life of a block id. Starts at 1 and grows by one whenever the id is handed out again, from
// the largest to 1; 0 names no life.
using Generation = StrongId<struct GenerationTag, uint32_t>;

// A block's place in its tier, the same in every pool of its window. Token i of the block has the
// token slot `slot * tokens_per_block + i`.
using SlotIndex = StrongId<struct SlotIndexTag, uint32_t>;
inline constexpr SlotIndex kNoSlot{std::numeric_limits<uint32_t>::max()};

// An attention window in tokens. Full attention is the largest window.
using WindowSize = StrongId<struct WindowSizeTag, uint32_t>;
inline constexpr WindowSize kFullAttention{std::numeric_limits<uint32_t>::max()};

// "full", or the number of tokens.
std::string WindowName(WindowSize window);

// A token id of the model's vocabulary. A plain integer, because tokens are compared, hashed and
// copied in runs.
using TokenId = uint32_t;

// Where a block's bytes lie: an index in the cache's list of tiers, where 0 is nearest to the
// compute. Engines compute in the first tier. The first two indexes have names here, as code that
// speaks of two neighbours reads better with them.
enum class Tier : uint8_t { kPrimary = 0, kSecondary = 1 };
inline constexpr size_t kMaxTiers = 4;  // Of any cache.
// What a tier is called where the cache's list does not say: "primary", "secondary", then "tier2".
std::string DefaultTierName(Tier tier);

// What a tier's bytes lie in.
enum class Medium : uint8_t { kGpu, kHost, kDisk };
// "gpu", "host" or "disk".
std::string_view MediumName(Medium medium);

// A slot of a window, and which tier it is in.
struct SlotRef {
  Tier tier = Tier::kPrimary;
  SlotIndex slot;
  friend bool operator==(const SlotRef&, const SlotRef&) = default;
};

// Names one life of one block; a stale one is refused.
struct BlockRef {
  BlockId id = kNoBlock;
  Generation generation;
  friend bool operator==(const BlockRef&, const BlockRef&) = default;
};

// An entry of a block table: which block, and where its bytes lie now. A table entry without a
// block (kNoBlock, kNoSlot) stands where a sliding window has passed.
struct BlockHandle {
  BlockId id = kNoBlock;
  Generation generation;
  SlotIndex slot = kNoSlot;
  BlockRef ref() const { return {id, generation}; }
  friend bool operator==(const BlockHandle&, const BlockHandle&) = default;
};

// How many tokens a block holds: a power of two, so that finding a token is a shift and a mask.
class TokensPerBlock {
 public:
  // REQUIRES: `tokens` is a power of two.
  constexpr explicit TokensPerBlock(uint32_t tokens) : shift_(std::countr_zero(tokens)) {}

  constexpr uint32_t value() const { return uint32_t{1} << shift_; }
  // The table entry of a token, and its place in that block.
  constexpr uint32_t BlockForToken(uint64_t token) const {
    return static_cast<uint32_t>(token >> shift_);
  }
  constexpr uint32_t OffsetInBlock(uint64_t token) const {
    return static_cast<uint32_t>(token) & (value() - 1);
  }
  // Blocks that `tokens` tokens fill or begin.
  constexpr uint32_t BlocksFor(uint64_t tokens) const {
    return BlockForToken(tokens + value() - 1);
  }

 private:
  int shift_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_TYPES_H_
