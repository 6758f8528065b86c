// Attention of few rows on Hopper: decode, and short chunks, over pools of 16 bits and of e4m3. It
// is bound by memory, so the number of bytes in flight matters most.
//
// A block has five warps. The last one brings tiles of 64 keys by TMA into a ring, alternating K
// and V, as far ahead as the ring is long, and across the ends of units. Two blocks of a
// multiprocessor have 64 to 96 KiB each in flight; above a head_dim of 128, one block has 128 to
// 160 KiB. Each of the other four warps takes 16 tokens of each tile and does the work of a
// DecodeKernel warp (DecodeRows): mma.sync is fast enough. Boxes request that L2 evicts their lines
// first, because they are not read again. Blocks are persistent, two per multiprocessor, and walk
// the units in steps of the grid.
//
// Invariants
// 1. Producer and consumers walk the same tiles in the same order, as in HopperPrefillKernel. K of
// the block's tile n, counted over all its units, is in the ring's slot 2 n % kSlots, and V in the
// next slot.
// 2. A box of which no row sees a key is zeros, and its table entry is not read.
// 3. Before its product, a warp clears the rows among its 16 rows of V that no row sees. It then
// fences, so that the next box for that place arrives later.
// 4. A warp waits for "full" of each slot, even if it sees none of its tokens, before it arrives at
// "empty". Otherwise its arrivals could count for the previous phase.
//
// Example: one tile, with head_dim 128, blocks of 16 tokens, group 4, a context of 1,000, cut at
// 512. Tile 7 of the second piece has keys 960 to 1,023. The producer's lanes 0 to 7 each have a
// box of 4 (tokens) x 2 (columns). Key 1,000 is in box 2; box 3 is zeros. K arrives at [column][64
// rows][128 bytes], 16 KiB. Warp 2 has keys 992 to 1,007: 8 loads of matrices and 8 products give
// it 16 scores by 8 columns, of which 4 are rows. The scores of keys 1,000 to 1,007 become
// -infinity. The warp clears V's rows 40 to 47 of the tile. Warp 3 sees no key, and only releases
// both slots.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_DECODE_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_DECODE_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_decode_rows.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/attention/attention_walk.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/hopper/attention_tile_hopper.h"
#include "kernels/cuda/hopper/hopper.h"

namespace pagoda::kernels::cuda {

// T: Half or BFloat16, the type of the products. kFormat: that of K and V; 16 bits are T. kDim: 64,
// 128 or 256, at least head_dim. kColumnTiles x 8: at least the unit's rows.
template <class T, KvFormat kFormat, uint32_t kDim, uint32_t kColumnTiles>
class HopperDecodeKernel {
 public:
  static constexpr bool kFloat8 = kFormat != KvFormat::k16Bits;
  static constexpr uint32_t kConsumers = 4;  // Warps.
  static constexpr uint32_t kConsumerThreads = kConsumers * kWarpThreads;
  static constexpr uint32_t kThreads = kConsumerThreads + kWarpThreads;
  static constexpr uint32_t kTokens = kConsumers * 16;
  static constexpr uint32_t kRowBytes = kDim * (kFloat8 ? 1 : 2);
  // Columns of 128 bytes. Rows of 64 bytes are followed by zeros.
  static constexpr uint32_t kColumns =
      kRowBytes < kColumnRowBytes ? 1 : kRowBytes / kColumnRowBytes;
  static constexpr uint32_t kTileColumnBytes = kTokens * kColumnRowBytes;
  static constexpr uint32_t kTileBytes = kColumns * kTileColumnBytes;
  static constexpr uint32_t kRows = kColumnTiles * 8;
  static constexpr uint32_t kQueryBytes = kRows * kDim * 2;
  static constexpr uint32_t kResultBytes = kRows * (kDim + 4) * 4;  // Per warp.
  static constexpr uint32_t kEndBytes = kConsumers * kRows * 8;     // Rows' largest and sums.
  static constexpr uint32_t kBarrierBytes = 256;
  static constexpr uint32_t kOtherBytes =
      kQueryBytes + kConsumers * kResultBytes + kEndBytes + kBarrierBytes;
  static constexpr uint32_t kMinBlocks = kDim > 128 ? 1 : 2;
  // The slots that fit with the other bytes into a multiprocessor's 227 KiB, less 1 KiB per
  // block.
  static constexpr uint32_t kFitting = (226 * 1024 / kMinBlocks - 1024 - kOtherBytes) / kTileBytes;
  static constexpr uint32_t kSlots = kFitting < 16 ? kFitting : 16;
  static constexpr uint32_t kSharedBytes = kSlots * kTileBytes + kOtherBytes;
  static_assert(kSlots >= 4 && 2 * kSlots * 8 <= kBarrierBytes);
  using Args = HopperLaunch;

  static PAGODA_DEVICE void Run(const HopperLaunch& launch) {
    if (ThreadIndex() == 0) {
      for (uint32_t s = 0; s < kSlots; ++s) {
        InitBarrier(Full(s), 1);
        InitBarrier(Empty(s), kConsumers);
      }
      FenceBarriers();
    }
    SyncThreads();
    if (WarpIndex() == kConsumers) {
      Produce(launch);
    } else {
      Consume(launch);
    }
  }

 private:
  struct Layout {
    // Two blocks of five warps leave 168 registers, not 255, to a thread.
    static constexpr uint32_t kMostKept = 8;
    static PAGODA_DEVICE uint32_t Queries() { return QueryBase(); }
    static PAGODA_DEVICE uint32_t Offset(uint32_t row, uint32_t chunk) {
      return chunk / 8 * kTileColumnBytes + SwizzledOffset(row, chunk % 8);
    }
  };
  using Rows = DecodeRows<T, kFormat, kDim, kColumnTiles, Layout>;
  using WarpState = typename Rows::WarpState;
  static_assert(kResultBytes == kRows * Rows::kResultBytes);

  static PAGODA_DEVICE uint32_t Tile(uint32_t slot) { return SharedBase() + slot * kTileBytes; }
  static PAGODA_DEVICE uint32_t QueryBase() { return SharedBase() + kSlots * kTileBytes; }
  static PAGODA_DEVICE uint32_t ResultBase() { return QueryBase() + kQueryBytes; }
  static PAGODA_DEVICE uint32_t EndBase() { return ResultBase() + kConsumers * kResultBytes; }
  static PAGODA_DEVICE uint32_t Full(uint32_t slot) { return EndBase() + kEndBytes + slot * 8; }
  static PAGODA_DEVICE uint32_t Empty(uint32_t slot) { return Full(kSlots + slot); }

  // The slot of the block's next tile of K or V. Invariant 1.
  struct Place {
    uint32_t slot = 0;
    uint32_t parity = 0;
    PAGODA_DEVICE void Next() {
      slot = slot + 1 == kSlots ? 0 : slot + 1;
      parity ^= slot == 0 ? 1 : 0;
    }
  };

  static PAGODA_DEVICE Sight SightOf(const Unit& unit) {
    return {.first_position = unit.first_position,
            .last_position = unit.first_position + unit.item.num_queries - 1,
            .end_key = unit.item.end_key,
            .first_key = unit.item.first_key};
  }

  // The producer: one warp.

  static PAGODA_DEVICE void Produce(const HopperLaunch& launch) {
    if (LaneIndex() == 0) {
      PrefetchMap(launch.keys);
      PrefetchMap(launch.values);
    }
    const AttentionArgs& args = launch.args;
    const auto num_units = static_cast<uint32_t>(NumUnits(args, launch.kind));
    Place place;
    uint32_t u = 0;
#pragma unroll 1
    for (uint32_t r = 0; (u = UnitOfRound(r, BlockIndex(), GridBlocks())) < num_units; ++r) {
      const Unit unit = FindUnit(args, launch.kind, u);
      const Sight sight = SightOf(unit);
      // The slot of the lane's box is looked up one tile ahead.
      uint32_t first = FirstTile<kTokens>(launch, sight);
      uint32_t slot = SlotOfBox<kTokens>(launch, unit, sight, first);
#pragma unroll 1
      while (first < sight.end_key) {
        const uint32_t next = NextTile<kTokens>(args, sight, first + kTokens);
        const uint32_t next_slot = SlotOfBox<kTokens>(launch, unit, sight, next);
        Bring(launch, launch.keys, unit, first, slot, place);
        place.Next();
        Bring(launch, launch.values, unit, first, slot, place);
        place.Next();
        first = next;
        slot = next_slot;
      }
    }
  }

  // Each lane copies a box.
  static PAGODA_DEVICE void Bring(const HopperLaunch& launch, const TensorMap& map,
                                  const Unit& unit, uint32_t first, uint32_t slot,
                                  const Place& place) {
    WaitFor(Empty(place.slot), place.parity ^ 1);
    if (LaneIndex() == 0) ArriveExpecting(Full(place.slot), kTileBytes);
    SyncWarp();
    const uint32_t boxes = kTokens / launch.box_tokens;
    if (LaneIndex() >= boxes * kColumns) return;
    const uint32_t row = LaneIndex() % boxes * launch.box_tokens;
    const uint32_t column = LaneIndex() / boxes;
    CopyBoxOnce(Tile(place.slot) + column * kTileColumnBytes + row * kColumnRowBytes, map,
                {.element = column * kColumnElements,
                 .token = (first + row) % launch.args.kv.tokens_per_block,
                 .head = unit.kv_head,
                 .slot = slot},
                Full(place.slot));
  }

  // The consumers: warps that are independent except at a unit's ends.

  static PAGODA_DEVICE void SyncConsumers() { SyncSome(1, kConsumerThreads); }

  static PAGODA_DEVICE void Consume(const HopperLaunch& launch) {
    const AttentionArgs& args = launch.args;
    const auto num_units = static_cast<uint32_t>(NumUnits(args, launch.kind));
    const uint32_t pairs = args.value_dim / 2;
    Place place;
    uint32_t u = 0;
#pragma unroll 1
    for (uint32_t r = 0; (u = UnitOfRound(r, BlockIndex(), GridBlocks())) < num_units; ++r) {
      const Unit unit = FindUnit(args, launch.kind, u);
      LoadQueries<kDim, kRows, kFloat8>(args, unit, 0, unit.num_rows, QueryBase(),
                                        kConsumerThreads);
      SyncConsumers();  // The queries are loaded, and the previous unit is stored.
      WarpState state;
      WalkKeys(launch, unit, place, state);
      Rows::StoreWarp(state, ResultBase() + WarpIndex() * kResultBytes,
                      EndBase() + WarpIndex() * kRows * 8);
      SyncConsumers();
      const float value_scale = kFloat8 ? ValueScale(args, unit.kv_head) : 1.0f;
      for (uint32_t i = ThreadIndex(); i < unit.num_rows * pairs; i += kConsumerThreads) {
        Rows::template StoreResult<kConsumers>(args, unit, i / pairs, i % pairs * 2, value_scale,
                                               ResultBase(), kResultBytes, EndBase());
      }
    }
  }

  static PAGODA_DEVICE void WalkKeys(const HopperLaunch& launch, const Unit& unit, Place& place,
                                     WarpState& state) {
    const AttentionArgs& args = launch.args;
    const Sight sight = SightOf(unit);
    Rows::Clear(state);
    typename Rows::Queries queries;
    Rows::KeepQueries(queries);
    const float scale = kFloat8 ? args.scale * KeyScale(args, unit.kv_head) : args.scale;
#pragma unroll 1
    for (uint32_t first = FirstTile<kTokens>(launch, sight); first < sight.end_key;
         first = NextTile<kTokens>(args, sight, first + kTokens)) {
      const uint32_t warps_first = first + WarpIndex() * 16;
      const bool sees = SeesBox(args, sight, warps_first, 16);
      typename Rows::LaneScales scales;
      if (sees) scales = Rows::ScalesOfLane(args, unit, sight, warps_first);
      float weights[kColumnTiles][4];
      WaitFor(Full(place.slot), place.parity);
      if (sees) {
        Rows::WeighKeys(args, unit, sight, scale, scales, warps_first, WarpsRows(place.slot),
                        queries, state, weights);
      }
      Release(place);
      WaitFor(Full(place.slot), place.parity);
      if (sees) {
        ClearUnseen(args, unit, sight, warps_first, WarpsRows(place.slot));
        Rows::AddValues(WarpsRows(place.slot), weights, state);
      }
      Release(place);
    }
  }

  // The warp's 16 rows of a tile.
  static PAGODA_DEVICE uint32_t WarpsRows(uint32_t slot) {
    return Tile(slot) + WarpIndex() * 16 * kColumnRowBytes;
  }

  // The warp no longer reads the slot.
  static PAGODA_DEVICE void Release(Place& place) {
    SyncWarp();
    if (LaneIndex() == 0) Arrive(Empty(place.slot));
    place.Next();
  }

  // Clears the rows of V that no row of the unit sees. Invariant 3.
  static PAGODA_DEVICE void ClearUnseen(const AttentionArgs& args, const Unit& unit,
                                        const Sight& sight, uint32_t first, uint32_t rows) {
    const uint32_t row = LaneIndex() % 16;
    const bool unseen = !AnySees(args, unit, sight, first + row);
    if (!AnyOfWarp(unseen)) return;
    // Two lanes share a row; each has every second chunk.
    for (uint32_t chunk = LaneIndex() / 16; chunk < kRowBytes / 16 && unseen; chunk += 2) {
      StoreShared(rows + Layout::Offset(row, chunk), Vector16{});
    }
    FenceAsync();
    SyncWarp();
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_DECODE_HOPPER_H_
