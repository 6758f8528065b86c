// The memory terms that all folders use: block, slot, tier, window, token.
#ifndef PAGODA_POOLS_TYPES_H_
#define PAGODA_POOLS_TYPES_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong_id.h"

namespace pagoda {

// Names a block from its allocation until it is freed; unique inside its window. Ids are dense from
// 0, so they index arrays.
using BlockId = StrongId<struct BlockIdTag, uint32_t>;
inline constexpr BlockId kNoBlock{std::numeric_limits<uint32_t>::max()};

// Counts the uses of a block id. Starts at 1 and grows by one each time the id is handed out again;
// the largest value is followed by 1. 0 names no use.
using Generation = StrongId<struct GenerationTag, uint32_t>;

// A block's place in its tier: the same index in every pool of the block's window. Token i of the
// block has the token slot `slot * tokens_per_block + i`.
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

// A tier: its index in the cache's list of tiers, nearest first.
using Tier = StrongId<struct TierTag, uint8_t>;
inline constexpr Tier kPrimaryTier{0};  // Engines compute in it.
inline constexpr size_t kMaxTiers = 4;  // The maximum for one cache.
// The name of a tier that has none in the cache's list: "primary", "secondary", then "tier2".
std::string DefaultTierName(Tier tier);

// The kind of memory that holds a tier's bytes.
enum class Medium : uint8_t { kGpu, kHost, kDisk };
inline constexpr std::array kAllMedia = {Medium::kGpu, Medium::kHost, Medium::kDisk};
// "gpu", "host" or "disk".
std::string_view MediumName(Medium medium);
// The medium that has that name; nothing if none has.
std::optional<Medium> MediumFromName(std::string_view name);

// A slot of a window in one tier.
struct SlotRef {
  Tier tier = kPrimaryTier;
  SlotIndex slot;
  friend bool operator==(const SlotRef&, const SlotRef&) = default;
};

// Names one use of a block id. The manager refuses a stale reference.
struct BlockRef {
  BlockId id = kNoBlock;
  Generation generation;
  friend bool operator==(const BlockRef&, const BlockRef&) = default;
};

// An entry of a block table: a block and its current slot. An entry without a block (kNoBlock,
// kNoSlot) stands for tokens that a sliding window has passed.
struct BlockHandle {
  BlockId id = kNoBlock;
  Generation generation;
  SlotIndex slot = kNoSlot;
  BlockRef ref() const { return {id, generation}; }
  friend bool operator==(const BlockHandle&, const BlockHandle&) = default;
};

// The number of tokens in a block: a power of two, so that finding a token is a shift and a mask.
class TokensPerBlock {
 public:
  // REQUIRES: `tokens` is a power of two.
  constexpr explicit TokensPerBlock(uint32_t tokens) : shift_(std::countr_zero(tokens)) {}

  constexpr uint32_t value() const { return uint32_t{1} << shift_; }
  // The token's entry in the block table, and its position in that block.
  constexpr uint32_t BlockForToken(uint64_t token) const {
    return static_cast<uint32_t>(token >> shift_);
  }
  constexpr uint32_t OffsetInBlock(uint64_t token) const {
    return static_cast<uint32_t>(token) & (value() - 1);
  }
  // The number of blocks that `tokens` tokens need; the last one can be partly filled.
  constexpr uint32_t BlocksFor(uint64_t tokens) const {
    return BlockForToken(tokens + value() - 1);
  }

 private:
  int shift_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_TYPES_H_
