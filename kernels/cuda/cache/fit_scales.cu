// Fits the scales of float8 blocks before a cache write (kernels/float8_scales.h). One block of
// threads has all new tokens of a cache block, so that each scale has one writer.
#include "kernels/cuda/cache/cache_args.h"
#include "kernels/cuda/device/elements.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/float8_scales.h"

namespace pagoda::kernels::cuda {
namespace {

// The new tokens of a block: the rows first_row to first_row + num_tokens - 1.
struct NewTokens {
  uint64_t first_row;
  uint32_t slot;
  uint32_t first_token;  // In the block.
  uint32_t num_tokens;   // 0: the row is not the first of a block's new tokens.
};

// K or V of the new tokens, and the heads that share a scale.
struct ScaledHeads {
  const std::byte* rows;
  uint64_t row_stride;  // In elements.
  std::byte* pool;
  uint32_t dim;
  float* scale;
  uint32_t first_head;
  uint32_t num_heads;
};

struct FitKernel {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kWarps = kThreads / kWarpThreads;
  static constexpr uint32_t kSharedBytes = kWarps * 4;
  using Args = CacheArgs;

  static PAGODA_DEVICE void Run(const CacheArgs& args) {
    for (uint64_t n = BlockIndex(); n < args.rows.num_tokens; n += GridBlocks()) {
      const NewTokens tokens = FindTokens(args, n);
      if (tokens.num_tokens == 0) continue;
      FitPart(args, tokens, args.rows.keys, args.rows.key_token_stride, args.kv.keys,
              args.kv.head_dim, args.kv.scales.keys);
      FitPart(args, tokens, args.rows.values, args.rows.value_token_stride, args.kv.values,
              args.rows.value_dim, args.kv.scales.values);
    }
  }

  static PAGODA_DEVICE NewTokens FindTokens(const CacheArgs& args, uint64_t row) {
    const int64_t* slots = args.places.token_slots;
    const int64_t first = slots[row];
    const int64_t block_tokens = args.kv.tokens_per_block;
    if (first < 0 || first >= args.kv.num_slots * block_tokens) return {};
    const auto token = static_cast<uint32_t>(first % block_tokens);
    if (token > 0 && row > 0 && slots[row - 1] == first - 1) return {};
    const uint64_t left = args.rows.num_tokens - row;
    const auto most = static_cast<uint32_t>(block_tokens - token);
    uint32_t count = 1;
    while (count < most && count < left && slots[row + count] == first + count) ++count;
    return {.first_row = row,
            .slot = static_cast<uint32_t>(first / block_tokens),
            .first_token = token,
            .num_tokens = count};
  }

  static PAGODA_DEVICE void FitPart(const CacheArgs& args, const NewTokens& tokens,
                                    const std::byte* rows, uint64_t row_stride, std::byte* pool,
                                    uint32_t dim, const float* scales) {
    if (rows == nullptr || scales == nullptr) return;
    const KvScales& all = args.kv.scales;
    const uint32_t count = all.per_head ? args.kv.num_kv_heads : 1;
    const uint32_t heads = args.kv.num_kv_heads / count;
    for (uint32_t i = 0; i < count; ++i) {
      // Other kernels only read scales, so the pointers are const.
      Fit(args, tokens,
          {.rows = rows,
           .row_stride = row_stride,
           .pool = pool,
           .dim = dim,
           .scale = const_cast<float*>(scales) + tokens.slot * all.slot_stride + i,
           .first_head = i * heads,
           .num_heads = heads});
    }
  }

  static PAGODA_DEVICE void Fit(const CacheArgs& args, const NewTokens& tokens,
                                const ScaledHeads& heads) {
    const ElementType type = args.kv.type;
    float fitted = NeededScale(args, tokens, tokens.num_tokens, heads);
    if (tokens.first_token == 0) {
      fitted = LargerOf(fitted, kHeadroom * NeededScale(args, tokens, 1, heads));
    }
    const float before = *heads.scale;
    const bool keeps = tokens.first_token > 0 && IsScale(before);
    SyncThreads();  // All threads have the scale before one writes it.
    if (keeps && fitted <= before) return;
    if (keeps) {
      const uint32_t row = heads.num_heads * heads.dim;
      for (uint32_t i = ThreadIndex(); i < tokens.first_token * row; i += kThreads) {
        std::byte* element = heads.pool + tokens.slot * args.kv.slot_stride_bytes +
                             (heads.first_head + i % row / heads.dim) * args.kv.head_stride_bytes +
                             i / row * args.kv.token_stride_bytes + i % heads.dim;
        StoreElement(type, element, 0, LoadElement(type, element, 0) / (fitted / before));
      }
    }
    if (ThreadIndex() == 0) *heads.scale = fitted;
  }

  // The scale that the first `num_tokens` of the tokens need; the same for all threads.
  static PAGODA_DEVICE float NeededScale(const CacheArgs& args, const NewTokens& tokens,
                                         uint32_t num_tokens, const ScaledHeads& heads) {
    const uint32_t row = heads.num_heads * heads.dim;
    float largest = 0;
    for (uint32_t i = ThreadIndex(); i < num_tokens * row; i += kThreads) {
      const float number = LoadElement(
          args.rows.type, heads.rows,
          (tokens.first_row + i / row) * heads.row_stride + heads.first_head * heads.dim + i % row);
      largest = LargerOf(largest, std::bit_cast<float>(FiniteMagnitude(number)));
    }
    for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) {
      largest = LargerOf(largest, ShuffleXor(largest, mask));
    }
    SyncThreads();  // The previous results have been read.
    if (LaneIndex() == 0) StoreShared(SharedBase() + WarpIndex() * 4, largest);
    SyncThreads();
    for (uint32_t warp = 0; warp < kWarps; ++warp) {
      largest = LargerOf(largest, LoadShared<float>(SharedBase() + warp * 4));
    }
    return FittedScale(args.kv.type, std::bit_cast<uint32_t>(largest));
  }
};

}  // namespace

int LaunchFitScales(const CacheArgs& args, Stream stream) {
  return Launch<FitKernel>(
      {.blocks = args.rows.num_tokens, .shared_bytes = FitKernel::kSharedBytes}, stream, args);
}

}  // namespace pagoda::kernels::cuda
