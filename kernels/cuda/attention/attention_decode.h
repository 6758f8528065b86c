// Attention of few rows on tensor cores: decode, and short chunks.
//
// Keys are the long side. They are the rows of the products' left matrix, 16 at a time; the unit's
// rows (a KV head's query heads and tokens) are the columns, 8 at a time. This avoids the waste of
// a tile of 64 rows (as TensorRT-LLM's XQA does):
//   S^T = K Q^T,  O^T = V^T P^T.
// Each warp works independently. It has a ring of stages in shared memory, each with K and V of 16
// tokens, which asynchronous copies fill ahead. It walks every fourth tile of the unit's keys, and
// needs no barrier beyond the warp. At the unit's end the warps' results are merged, in the warps'
// order.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_decode_rows.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/attention/attention_walk.h"
#include "kernels/cuda/device/device.h"

namespace pagoda::kernels::cuda {

// T: Half or BFloat16, the type of the products. kFormat: that of K and V; 16 bits are T.
// kDim: at least head_dim. kColumnTiles x 8: at least the unit's rows. kNumWarps: 4, or 2 for GPUs
// whose blocks cannot have the shared memory of 4.
template <class T, KvFormat kFormat, uint32_t kDim, uint32_t kColumnTiles, uint32_t kNumWarps = 4>
class DecodeKernel {
 public:
  static constexpr bool kFloat8 = kFormat != KvFormat::k16Bits;
  static constexpr uint32_t kWarps = kNumWarps;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kRowBytes = kDim * (kFloat8 ? 1 : 2);
  struct Layout {
    static constexpr uint32_t kMostKept = 16;
    static PAGODA_DEVICE uint32_t Queries() { return QueryBase(); }
    static PAGODA_DEVICE uint32_t Offset(uint32_t row, uint32_t chunk) {
      return TileOffset<kRowBytes>(row, chunk);
    }
  };
  using Rows = DecodeRows<T, kFormat, kDim, kColumnTiles, Layout>;
  static constexpr uint32_t kTokens = Rows::kTokens;  // Per tile of a warp.
  static constexpr uint32_t kRows = Rows::kRows;
  static constexpr uint32_t kTileBytes = kTokens * kRowBytes;
  static constexpr uint32_t kStageBytes = 2 * kTileBytes;
  // Two blocks per multiprocessor, 64 KiB each, wait for memory at the same time.
  static constexpr uint32_t kStages = kStageBytes > 8192
                                          ? 2
                                          : (24576 / kStageBytes < 6 ? 24576 / kStageBytes : 6);
  static constexpr uint32_t kRingBytes = kStages * kStageBytes;  // Per warp.
  static constexpr uint32_t kQueryBytes = kRows * kDim * 2;
  static constexpr uint32_t kStateBytes = kWarps * kRows * 8;  // The rows' largest and sum.
  // Queries that registers keep lie in the ring if not all GPUs have place for both.
  static constexpr bool kQueriesInRing =
      Rows::kKeepQueries &&
      kQueryBytes + kStateBytes + kWarps * kRingBytes > kSharedBytesEverywhere;
  static constexpr uint32_t kQueryPlace = kQueriesInRing ? 0 : kQueryBytes;
  static constexpr uint32_t kSharedBytes = kQueryPlace + kStateBytes + kWarps * kRingBytes;
  static constexpr uint32_t kMinBlocks = kSharedBytes <= 110 * 1024 ? 2 : 1;
  static_assert(kRows * Rows::kResultBytes <= kRingBytes);  // The ring also holds a warp's results.
  using Args = AttentionLaunch;

  static PAGODA_DEVICE void Run(const AttentionLaunch& launch) {
    const AttentionArgs& args = launch.args;
    const uint64_t num_units = NumUnits(args, launch.kind);
    for (uint64_t u = BlockIndex(); u < num_units; u += GridBlocks()) {
      const Unit unit = FindUnit(args, launch.kind, u);
      if (kQueriesInRing && u != BlockIndex()) SyncThreads();  // The previous unit is stored.
      LoadQueries<kDim, kRows, kFloat8>(args, unit, 0, unit.num_rows, QueryBase(), kThreads);
      SyncThreads();  // The queries are loaded, and the previous unit is stored.
      WarpState state;
      WalkKeys(args, unit, state);
      Combine(args, unit, state);
    }
  }

 private:
  using WarpState = typename Rows::WarpState;

  static PAGODA_DEVICE uint32_t QueryBase() {
    return SharedBase() + (kQueriesInRing ? kStateBytes : 0);
  }
  static PAGODA_DEVICE uint32_t StateBase() { return SharedBase() + kQueryPlace; }
  static PAGODA_DEVICE uint32_t FirstRing() { return StateBase() + kStateBytes; }
  static PAGODA_DEVICE uint32_t RingBase() { return FirstRing() + WarpIndex() * kRingBytes; }

  // The warp's first tile from `tile` on that can be seen; at or behind the end if there is none.
  static PAGODA_DEVICE uint32_t NextTile(const AttentionArgs& args, const Unit& unit,
                                         const Sight& sight, uint32_t tile) {
    const uint32_t first = NextSeenTile<kTokens, kWarps * kTokens>(
        args.mask, sight.first_position, sight.last_position, sight.end_key,
        unit.item.first_key + tile * kTokens);
    return (first - unit.item.first_key) / kTokens;
  }

  static PAGODA_DEVICE void WalkKeys(const AttentionArgs& args, const Unit& unit,
                                     WarpState& state) {
    Rows::Clear(state);
    const Sight sight = {.first_position = unit.first_position,
                         .last_position = unit.first_position + unit.item.num_queries - 1,
                         .end_key = unit.item.end_key};
    const uint32_t end = (unit.item.end_key - unit.item.first_key + kTokens - 1) / kTokens;
    const uint32_t key_chunks = args.kv.head_dim * (kFloat8 ? 1 : 2) / 16;
    const uint32_t value_chunks = args.value_dim * (kFloat8 ? 1 : 2) / 16;
    const float scale = args.scale * KeyScale(args, unit.kv_head);

    typename Rows::Queries queries;
    Rows::KeepQueries(queries);
    if (kQueriesInRing) SyncThreads();  // The queries are in registers.

    // The tile to copy next, and the offset of this lane's token in it. The offset is looked up one
    // tile ahead.
    uint32_t copied = NextTile(args, unit, sight, WarpIndex());
    uint64_t offset = FindRow(args, unit, sight, KeyOfLane(unit, copied));
    uint32_t copy_stage = 0;
    const auto copy_next = [&] {
      if (copied < end) {
        const uint32_t stage = RingBase() + copy_stage * kStageBytes;
        CopyRows<kRowBytes, kTokens>(stage, 0, args.kv.keys, offset, key_chunks);
        CopyRows<kRowBytes, kTokens>(stage + kTileBytes, 0, args.kv.values, offset, value_chunks);
        copied = NextTile(args, unit, sight, copied + kWarps);
        offset = FindRow(args, unit, sight, KeyOfLane(unit, copied));
      }
      CommitCopies();
      copy_stage = copy_stage + 1 == kStages ? 0 : copy_stage + 1;
    };
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < kStages; ++i) copy_next();

    uint32_t stage = 0;
#pragma unroll 1
    for (uint32_t tile = NextTile(args, unit, sight, WarpIndex()); tile < end;
         tile = NextTile(args, unit, sight, tile + kWarps)) {
      WaitForCopies<kStages - 2>();
      // All lanes see the copies of all lanes, and have read the stage that is filled next.
      SyncWarp();
      copy_next();
      const uint32_t keys = RingBase() + stage * kStageBytes;
      const uint32_t first = unit.item.first_key + tile * kTokens;
      float weights[kColumnTiles][4];
      Rows::WeighKeys(args, unit, sight, scale, Rows::ScalesOfLane(args, unit, sight, first), first,
                      keys, queries, state, weights);
      Rows::AddValues(keys + kTileBytes, weights, state);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    WaitForCopies<0>();
  }

  static PAGODA_DEVICE uint32_t KeyOfLane(const Unit& unit, uint32_t tile) {
    return unit.item.first_key + tile * kTokens + LaneIndex() % kTokens;
  }

  // Stores the warps' results, each by its share, in the output or the partial rows.
  static PAGODA_DEVICE void Combine(const AttentionArgs& args, const Unit& unit,
                                    const WarpState& state) {
    SyncWarp();  // No lane reads the ring any more.
    Rows::StoreWarp(state, RingBase(), StateBase() + WarpIndex() * kRows * 8);
    SyncThreads();
    const float scale = ValueScale(args, unit.kv_head);
    const uint32_t pairs = args.value_dim / 2;
    for (uint32_t i = ThreadIndex(); i < unit.num_rows * pairs; i += kThreads) {
      Rows::template StoreResult<kWarps>(args, unit, i / pairs, i % pairs * 2, scale, FirstRing(),
                                         kRingBytes, StateBase());
    }
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_DECODE_H_
