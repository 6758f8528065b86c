// How much memory a cache's blocks take, and how many blocks a memory holds. Arithmetic only; sizes
// are in bytes, and a tier is divided between the windows of a layout once, at the start.
#ifndef PAGODA_POOLS_SIZING_H_
#define PAGODA_POOLS_SIZING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// A window with blocks below the first tier has one slot more than blocks in that tier: the spare
// of a swap between two full tiers.
inline constexpr uint32_t kSecondarySpareSlots = 1;
// The spare slots of a window with blocks in a tier.
constexpr uint32_t SpareSlots(Tier tier) {
  return tier == Tier::kPrimary ? 0 : kSecondarySpareSlots;
}
// The slots that `blocks` blocks of a window take in a tier in memory.
constexpr uint32_t SlotsFor(Tier tier, uint32_t blocks) {
  return blocks == 0 ? 0 : blocks + SpareSlots(tier);
}
// A window with blocks on disk has so many slots more in the tier above the disk: a block on its
// way to the disk is copied to one of them, so no other slot waits for the disk. The last slots of
// the tier.
inline constexpr uint32_t kStagingSlots = 16;
// What a slot of a file takes for a block of that many bytes: a page for its header, and whole
// pages.
constexpr uint64_t FileSlotBytes(uint64_t block_bytes) {
  constexpr uint64_t kPage = 4096;
  return kPage + (block_bytes + kPage - 1) / kPage * kPage;
}
// Of one window in one tier. The ids of two tiers, and as many again without a slot, fit 32 bits.
inline constexpr uint32_t kMaxBlocks = uint32_t{1} << 28;

// Bytes of one token's KV in all layers of a window; of a cache. Qwen3-8B in bfloat16: 144 KiB.
// Its share of scales and opaque bytes is in it; a window's are rounded up.
uint64_t BytesPerToken(const WindowLayout& window);
uint64_t BytesPerToken(const CacheLayout& layout);

// The sequences that run at once.
struct Workload {
  uint32_t max_sequence_tokens = 0;  // Prompt and output of the longest.
  uint32_t concurrent_sequences = 1;
  // Tokens that a sequence has room for beyond those computed: the largest prefill chunk; the
  // longest prompt, where prompts are not chunked.
  uint32_t chunk_tokens = 0;
};

// The most blocks that one sequence of a workload holds in a window: ceil(length /
// tokens_per_block) with full attention. With a sliding window at most ceil((min(length, window) +
// chunk) / tokens_per_block) + 1, where the one is for tokens that fill neither their first block
// nor their last; a window below a block counts as one, because a sequence keeps its last whole
// block. What a step has released and still drains is not counted.
uint64_t BlocksPerSequence(WindowSize window, TokensPerBlock tokens_per_block,
                           const Workload& workload);

// Bytes of primary memory in which all of a workload's sequences run at once. Errors:
// INVALID_ARGUMENT for a workload of nothing, and for more than 64 bits count.
absl::StatusOr<uint64_t> BytesForWorkload(const CacheLayout& layout, const Workload& workload);

// By what a tier's bytes are divided.
enum class ShareBy : uint8_t {
  // The blocks of a running sequence, so that every window holds as many sequences as any other.
  kBlocksPerSequence,
  // The tokens of a cached sequence that can still be attended to, min(length, window), times bytes
  // a token. The shares of TensorRT-LLM.
  kTokensInWindow,
};
// The parts of the bytes that go to each of layout.windows(); their sum is 1.
std::vector<double> WindowShares(const CacheLayout& layout, const Workload& workload, ShareBy by);

// How much of a tier there is to be.
struct ByteBudget {
  uint64_t bytes = 0;
};
struct FractionBudget {
  double fraction = 0;      // Above 0, at most 1; in steps of a billionth.
  uint64_t free_bytes = 0;  // Of the memory that the tier lies in: see FreeSharedMemoryBytes().
};
struct BlockBudget {
  std::vector<uint32_t> blocks;  // One entry for each window, or a single one for all.
};
using TierBudget = std::variant<ByteBudget, FractionBudget, BlockBudget>;

struct TierRequest {
  // Of the first tier divided by kBlocksPerSequence: running sequences are there. Of the others by
  // kTokensInWindow; no bytes or no blocks: nothing is there.
  TierBudget budget;
  Medium medium = Medium::kHost;
  std::string name;  // In errors; empty: DefaultTierName().
};

struct SizingRequest {
  Workload workload;
  std::vector<TierRequest> tiers;  // Nearest first; 1 to kMaxTiers.
};

struct SizingPlan {
  struct TierPlan {
    uint32_t blocks = 0;
    uint32_t slots = 0;  // Blocks, the spare and staging slots; on disk the blocks alone.
    uint64_t bytes = 0;  // Of the slots.
  };
  struct WindowPlan {
    WindowSize window;
    uint64_t bytes_per_token = 0;
    uint64_t bytes_per_block = 0;
    uint64_t blocks_per_sequence = 0;  // Of the workload.
    std::vector<TierPlan> tiers;       // As in SizingRequest::tiers.

    // Nothing of a tier that was not asked for.
    TierPlan tier(Tier t) const {
      const auto index = static_cast<size_t>(t);
      return index < tiers.size() ? tiers[index] : TierPlan{};
    }
  };
  std::vector<WindowPlan> windows;  // As in CacheLayout::windows().
  std::vector<Medium> media;        // Of the tiers.

  size_t num_tiers() const { return media.size(); }
  // For TierSpec::blocks. Empty for a tier without blocks.
  std::vector<uint32_t> blocks(Tier tier) const;
  // For PoolSet::Create: without the tiers on disk, which have no pools.
  SlotCounts slots() const;
  // What the pools of a tier take; of all windows.
  uint64_t bytes(Tier tier) const;
  // How many of the workload's longest sequences the first tier holds at once. May be 0: shorter
  // ones run.
  uint64_t max_concurrent_sequences() const;
};

// Divides each tier between the windows; each gets a block at least. What does not make a whole
// block stays unused: fewer bytes than one block of every window takes. Errors: INVALID_ARGUMENT
// for a workload of nothing, a number of tiers outside 1 to kMaxTiers, a budget that does not hold
// one block of every window (and the spares), more than kMaxBlocks of a window, a fraction outside
// its range, a BlockBudget with a wrong number of entries, and sizes that 64 bits do not count.
absl::StatusOr<SizingPlan> PlanSizes(const CacheLayout& layout, const SizingRequest& request);

}  // namespace pagoda

#endif  // PAGODA_POOLS_SIZING_H_
