// Computes how much memory a cache's blocks take, and how many blocks a memory holds. Arithmetic
// only. Sizes are in bytes. A tier is divided between the windows of a layout once, at the start.
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

// A window with blocks below the first tier has one more slot than blocks in that tier. A swap
// between two full tiers uses this spare slot.
constexpr uint32_t SpareSlots(Tier tier) { return tier == kPrimaryTier ? 0 : 1; }
// The number of slots that `blocks` blocks of a window take in a tier in memory.
constexpr uint32_t SlotsFor(Tier tier, uint32_t blocks) {
  return blocks == 0 ? 0 : blocks + SpareSlots(tier);
}
// The number of staging slots: extra slots of a window with blocks on disk, in the tier above the
// disk. A block on its way to the disk is first copied to a staging slot, so that no other slot
// waits for the disk. They are the last slots of that tier.
inline constexpr uint32_t kStagingSlots = 16;
// The bytes of a file slot for a block of `block_bytes` bytes: a page for the header, and the
// payload in whole pages.
constexpr uint64_t FileSlotBytes(uint64_t block_bytes) {
  constexpr uint64_t kPage = 4096;
  return kPage + (block_bytes + kPage - 1) / kPage * kPage;
}
// The maximum for one window in one tier. The ids of two tiers, and the same number of ids without
// a slot, fit 32 bits.
inline constexpr uint32_t kMaxBlocks = uint32_t{1} << 28;

// The bytes of one token's KV in all layers of a window or of a cache. Qwen3-8B in bfloat16: 144
// KiB. Includes the token's share of scales and opaque bytes; each window's sum is rounded up.
uint64_t BytesPerToken(const WindowLayout& window);
uint64_t BytesPerToken(const CacheLayout& layout);

// The sequences that run at the same time.
struct Workload {
  uint32_t max_sequence_tokens = 0;  // Prompt and output of the longest sequence.
  uint32_t concurrent_sequences = 1;
  // The tokens that a sequence reserves beyond those computed: the largest prefill chunk, or the
  // longest prompt if prompts are not chunked.
  uint32_t chunk_tokens = 0;
};

// The largest number of blocks that one sequence of a workload holds in a window. With full
// attention: ceil(length / tokens_per_block). With a sliding window: at most ceil((min(length,
// window) + chunk) / tokens_per_block) + 1; the one is for tokens that fill neither their first
// block nor their last. A window smaller than a block counts as one block, because a sequence keeps
// its last whole block. Blocks whose release is deferred until the step is completed are not
// counted.
uint64_t BlocksPerSequence(WindowSize window, TokensPerBlock tokens_per_block,
                           const Workload& workload);

// The bytes of primary memory in which all of a workload's sequences run at the same time. Errors:
// INVALID_ARGUMENT for an empty workload, and for a result beyond 64 bits.
absl::StatusOr<uint64_t> BytesForWorkload(const CacheLayout& layout, const Workload& workload);

// How a tier's bytes are divided between the windows.
enum class ShareBy : uint8_t {
  // By the blocks of a running sequence: all windows then hold the same number of sequences.
  kBlocksPerSequence,
  // By the tokens of a cached sequence that can still be attended to, min(length, window), times
  // the bytes per token. TensorRT-LLM divides its memory in this way.
  kTokensInWindow,
};
// The share of the bytes of each of layout.windows(); the sum is 1.
std::vector<double> WindowShares(const CacheLayout& layout, const Workload& workload, ShareBy by);

// The size of a tier.
struct ByteBudget {
  uint64_t bytes = 0;
};
struct FractionBudget {
  double fraction = 0;      // Above 0, at most 1; in steps of a billionth.
  uint64_t free_bytes = 0;  // Free bytes in the tier's memory: see FreeSharedMemoryBytes().
};
struct BlockBudget {
  std::vector<uint32_t> blocks;  // One entry per window, or a single one for all windows.
};
using TierBudget = std::variant<ByteBudget, FractionBudget, BlockBudget>;

struct TierRequest {
  // The first tier is divided by kBlocksPerSequence, because sequences run there. The other tiers
  // are divided by kTokensInWindow. No bytes or no blocks: the tier is empty.
  TierBudget budget;
  Medium medium = Medium::kHost;
  std::string name;  // For error messages. Empty: DefaultTierName().
};

struct SizingRequest {
  Workload workload;
  std::vector<TierRequest> tiers;  // Nearest first; 1 to kMaxTiers.
};

struct SizingPlan {
  struct TierPlan {
    uint32_t blocks = 0;
    uint32_t slots = 0;  // Blocks, the spare slot and the staging slots; on disk the blocks only.
    uint64_t bytes = 0;  // The bytes of the slots.
  };
  struct WindowPlan {
    WindowSize window;
    uint64_t bytes_per_token = 0;
    uint64_t bytes_per_block = 0;
    uint64_t blocks_per_sequence = 0;  // The blocks that one sequence of the workload needs.
    std::vector<TierPlan> tiers;       // In the order of SizingRequest::tiers.

    // Zeros for a tier that was not requested.
    TierPlan tier(Tier t) const { return t.value() < tiers.size() ? tiers[t.value()] : TierPlan{}; }
  };
  std::vector<WindowPlan> windows;  // In the order of CacheLayout::windows().
  std::vector<Medium> media;        // The medium of each tier.

  size_t num_tiers() const { return media.size(); }
  // For TierSpec::blocks. Empty for a tier without blocks.
  std::vector<uint32_t> blocks(Tier tier) const;
  // For PoolSet::Create: without the tiers on disk, which have no pools.
  SlotCounts slots() const;
  // The bytes of the tier's slots in all windows.
  uint64_t bytes(Tier tier) const;
  // How many of the workload's longest sequences the first tier holds at the same time. Can be 0:
  // shorter sequences still run.
  uint64_t max_concurrent_sequences() const;
};

// Divides each tier between the windows. Each window gets at least one block. A rest of fewer bytes
// than one block of every window stays unused. Errors, all INVALID_ARGUMENT: an empty workload; a
// number of tiers outside 1 to kMaxTiers; a budget that does not hold one block of every window
// (and the spares); more than kMaxBlocks of a window; a fraction outside its range; a BlockBudget
// with a wrong number of entries; sizes beyond 64 bits.
absl::StatusOr<SizingPlan> PlanSizes(const CacheLayout& layout, const SizingRequest& request);

}  // namespace pagoda

#endif  // PAGODA_POOLS_SIZING_H_
