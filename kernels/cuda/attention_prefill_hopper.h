// Attention of many rows on Hopper's tensor cores: whole prefills and long chunks, over pools of 16
// bits.
//
// FlashAttention-3's method (Shah et al., 2024) with three warpgroups. The first one gives up its
// registers; one of its warps brings tiles of K and V to shared memory by TMA, into rings whose
// stages have a barrier "full" and a barrier "empty". Each of the other two has 64 rows of the unit
// (row = token * group + head) against all keys: S = Q K^T from shared memory, O = P V with the
// weights in registers. A warpgroup starts S of the next tile and O of this tile together, and
// computes the weights of one while the other is multiplied. Blocks are persistent, one per
// multiprocessor, and walk the units in steps of the grid, the longest units first.
//
// Why tensor maps, and not plain bulk copies of a block's contiguous bytes: products read swizzled
// matrices, and only boxes arrive swizzled. Boxes also follow every layout of KvLayer, fill a
// head_dim below 64 or 128 with zeros, and read a slot that does not exist as zeros. Each call
// encodes the maps on the host, in less than a microsecond, and passes them as parameters of the
// kernel. A graph keeps them by value, so a caller has nothing to keep.
//
// Invariants
// 1. Producer and consumers walk the same tiles in the same order: from FirstTile by NextTile, for
// the same Sight. Tile n of the block, counted over all its units, has stage n % kStages in both
// rings, in the phase of parity n / kStages % 2.
// 2. A tile has kTokens keys from a position that is a multiple of box_tokens. box_tokens divides
// tokens_per_block and kTokens, so each box of a tile lies in one block. A box of which no row sees
// a key is read from slot num_slots, which gives zeros; its table entry is not read.
// 3. When "full" is reached, a row of V that no row of the tile sees is zero, because a weight of 0
// times NaN would be NaN. If a box is seen in part, the producer itself waits for V and clears the
// rest. Such keys of K give NaN in S, where they are masked.
// 4. A consumer arrives at "empty" after it has waited for its products: nothing reads the stage
// any more.
//
// Example: one tile of 128 keys, with head_dim 128, blocks of 16 tokens, group 4. The block's rows
// are 32 query tokens at positions 968 to 999 of a context of 1,000. FirstTile is 0; tile 7 has
// keys 896 to 1,023. Its boxes are 8 of tokens x 2 columns of 64 elements, for lanes 0 to 15 of the
// producer. Box 6 (keys 992 to 1,007) is seen in part. Box 7 (from 1,008) is not seen, and is
// zeros. K arrives at [column][128 rows][128 bytes], 32 KiB, and "full" of K counts these bytes. V
// arrives in the same form at "landed". The lanes find keys 1,000 to 1,007 unseen, clear their 8 x
// 2 rows of 128 bytes and fence; then lane 0 arrives at "full" of V. Warpgroup 0 has rows 0 to 63
// (positions 968 to 983), warpgroup 1 the others. S is 8 products of m64n128k16, each 32 bytes
// further in the rows of Q and K, with 64 fp32 per lane. sees_all is false, so each lane masks its
// two rows' 64 scores. The weights are packed into 8 fragments, and O gets 8 products of
// m64n128k16, each 16 rows (2,048 bytes) further in V.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_PREFILL_HOPPER_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_PREFILL_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_scores.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/attention_tile_hopper.h"
#include "kernels/cuda/attention_unit.h"
#include "kernels/cuda/hopper.h"

namespace pagoda::kernels::cuda {

// T: Half or BFloat16, as in the pool. kDim: 64, 128 or 256, at least head_dim.
template <class T, uint32_t kDim>
class HopperPrefillKernel {
 public:
  static constexpr uint32_t kConsumers = 2;  // Warpgroups.
  static constexpr uint32_t kThreads = (1 + kConsumers) * kWarpgroupThreads;
  static constexpr uint32_t kMinBlocks = 1;
  // Keys at a time: the most that leave enough registers for the sums.
  static constexpr uint32_t kTokens = kDim > 128 ? 64 : 128;
  static constexpr uint32_t kStages = 2;
  static constexpr uint32_t kGroupRows = 64;
  static constexpr uint32_t kRows = kConsumers * kGroupRows;
  static constexpr uint32_t kColumns = kDim / kColumnElements;
  static constexpr uint32_t kTileColumnBytes = kTokens * kColumnRowBytes;
  static constexpr uint32_t kTileBytes = kColumns * kTileColumnBytes;
  static constexpr uint32_t kQueryColumnBytes = kGroupRows * kColumnRowBytes;
  static constexpr uint32_t kQueryBytes = kColumns * kQueryColumnBytes;  // Per warpgroup.
  static constexpr uint32_t kBarriers = 4 * kStages + 1;
  static constexpr uint32_t kSharedBytes =
      kConsumers * kQueryBytes + 2 * kStages * kTileBytes + kBarriers * 8;
  using Args = HopperLaunch;

  static PAGODA_DEVICE void Run(const HopperLaunch& launch) {
    if (ThreadIndex() == 0) {
      for (uint32_t s = 0; s < kStages; ++s) {
        InitBarrier(Full(kKeys, s), 1);
        InitBarrier(Full(kValues, s), 1);
        InitBarrier(Empty(kKeys, s), kConsumerWarps);
        InitBarrier(Empty(kValues, s), kConsumerWarps);
      }
      InitBarrier(Landed(), 1);
      FenceBarriers();
    }
    SyncThreads();
    // Registers: 128 x 40 + 256 x 232 equals 384 x 168, with which the block begins.
    if (WarpIndex() < kGroupWarps) {
      GiveUpRegisters<40>();
      if (WarpIndex() == 0) Produce(launch);
    } else {
      TakeRegisters<232>();
      Consume(launch);
    }
  }

 private:
  static constexpr uint32_t kGroupWarps = 4;
  static constexpr uint32_t kConsumerWarps = kConsumers * kGroupWarps;
  static constexpr uint32_t kTokenTiles = kTokens / 8;
  // The sums have this many elements at a time: 128, or all of 64.
  static constexpr uint32_t kParts = kDim > 128 ? kDim / 128 : 1;
  static constexpr uint32_t kPartTiles = kDim / kParts / 8;
  static constexpr uint32_t kPartColumns = kColumns / kParts;

  enum Ring : uint32_t { kKeys, kValues };

  static PAGODA_DEVICE uint32_t QueryBase(uint32_t consumer) {
    return SharedBase() + consumer * kQueryBytes;
  }
  static PAGODA_DEVICE uint32_t Tile(Ring ring, uint32_t stage) {
    return SharedBase() + kConsumers * kQueryBytes + (ring * kStages + stage) * kTileBytes;
  }
  static PAGODA_DEVICE uint32_t Barrier(uint32_t index) {
    return SharedBase() + kConsumers * kQueryBytes + 2 * kStages * kTileBytes + index * 8;
  }
  static PAGODA_DEVICE uint32_t Full(Ring ring, uint32_t stage) {
    return Barrier(ring * kStages + stage);
  }
  static PAGODA_DEVICE uint32_t Empty(Ring ring, uint32_t stage) {
    return Barrier((2 + ring) * kStages + stage);
  }
  static PAGODA_DEVICE uint32_t Landed() { return Barrier(4 * kStages); }

  // The stage of the block's next tile. Invariant 1.
  struct Place {
    static_assert(kStages == 2);
    uint32_t tile = 0;
    PAGODA_DEVICE uint32_t stage() const { return tile % 2; }
    PAGODA_DEVICE uint32_t parity() const { return tile / 2 % 2; }
    PAGODA_DEVICE void Next() { ++tile; }
  };

  // The keys that kRows rows of the unit, from first_row on, can see.
  static PAGODA_DEVICE Sight SightOf(const AttentionArgs& args, const Unit& unit,
                                     uint32_t first_row, uint32_t num_rows) {
    Sight sight = {.first_position = unit.first_position + first_row / args.group,
                   .last_position = unit.first_position + (first_row + num_rows - 1) / args.group,
                   .end_key = unit.item.end_key,
                   .first_key = unit.item.first_key};
    if (args.mask.causal && sight.last_position + 1 < sight.end_key) {
      sight.end_key = sight.last_position + 1;
    }
    return sight;
  }
  static PAGODA_DEVICE uint32_t RowsAt(const Unit& unit, uint32_t first_row) {
    return unit.num_rows - first_row < kRows ? unit.num_rows - first_row : kRows;
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
    uint32_t landings = 0;
#pragma unroll 1
    for (uint32_t u = BlockIndex(); u < num_units; u += GridBlocks()) {
      const Unit unit = FindUnit(args, launch.kind, u);
#pragma unroll 1
      for (uint32_t row = 0; row < unit.num_rows; row += kRows) {
        const Sight sight = SightOf(args, unit, row, RowsAt(unit, row));
#pragma unroll 1
        for (uint32_t first = FirstTile<kTokens>(launch, sight); first < sight.end_key;
             first = NextTile<kTokens>(args, sight, first + kTokens)) {
          WaitFor(Empty(kKeys, place.stage()), place.parity() ^ 1);
          BringTile(launch, unit, sight, launch.keys, first, Tile(kKeys, place.stage()),
                    Full(kKeys, place.stage()));
          WaitFor(Empty(kValues, place.stage()), place.parity() ^ 1);
          BringValues(launch, unit, sight, first, place.stage(), landings);
          place.Next();
        }
      }
    }
  }

  // Starts the copies of a tile, one box per lane; `barrier` counts them.
  static PAGODA_DEVICE void BringTile(const HopperLaunch& launch, const Unit& unit,
                                      const Sight& sight, const TensorMap& map, uint32_t first,
                                      uint32_t tile, uint32_t barrier) {
    const AttentionArgs& args = launch.args;
    if (LaneIndex() == 0) ArriveExpecting(barrier, kTileBytes);
    SyncWarp();
    const uint32_t boxes = kTokens / launch.box_tokens;
    for (uint32_t i = LaneIndex(); i < boxes * kColumns; i += kWarpThreads) {
      const uint32_t row = i % boxes * launch.box_tokens;
      const uint32_t column = i / boxes;
      const uint32_t key = first + row;
      const BoxPlace place = {.element = column * kColumnElements,
                              .token = key % args.kv.tokens_per_block,
                              .head = unit.kv_head,
                              .slot = SlotAt(launch, unit, sight, key)};
      CopyBox(tile + column * kTileColumnBytes + row * kColumnRowBytes, map, place, barrier);
    }
  }

  // Copies V, with zeros for keys that no row sees. Invariant 3.
  static PAGODA_DEVICE void BringValues(const HopperLaunch& launch, const Unit& unit,
                                        const Sight& sight, uint32_t first, uint32_t stage,
                                        uint32_t& landings) {
    const uint32_t tile = Tile(kValues, stage);
    uint32_t unseen = 0;  // Bit i: row LaneIndex() + 32 i is unseen, but its box is seen.
#pragma unroll
    for (uint32_t i = 0; i < kTokens / kWarpThreads; ++i) {
      const uint32_t key = first + LaneIndex() + i * kWarpThreads;
      const uint32_t box = key / launch.box_tokens * launch.box_tokens;
      if (SeesBox(launch.args, sight, box, launch.box_tokens) &&
          !AnySees(launch.args, unit, sight, key)) {
        unseen |= 1u << i;
      }
    }
    if (!AnyOfWarp(unseen != 0)) {
      BringTile(launch, unit, sight, launch.values, first, tile, Full(kValues, stage));
      return;
    }
    BringTile(launch, unit, sight, launch.values, first, tile, Landed());
    WaitFor(Landed(), landings % 2);
    ++landings;
#pragma unroll
    for (uint32_t i = 0; i < kTokens / kWarpThreads; ++i) {
      if ((unseen >> i & 1u) == 0) continue;
      for (uint32_t column = 0; column < kColumns; ++column) {
        const uint32_t row =
            tile + column * kTileColumnBytes + (LaneIndex() + i * kWarpThreads) * kColumnRowBytes;
        for (uint32_t chunk = 0; chunk < 8; ++chunk) StoreShared(row + chunk * 16, Vector16{});
      }
    }
    FenceAsync();
    SyncWarp();  // All lanes have stored and fenced.
    if (LaneIndex() == 0) Arrive(Full(kValues, stage));
  }

  // The consumers.

  // Element r of a product's result belongs to row lane / 4 + r / 2 * 8 of the warp's 16 rows.
  struct RowState {
    float sums[kParts][kPartTiles][4];
    float largest[2];
    float weights[2];  // The sums of weights, of the lane's columns.
  };
  using Scores = float[kTokenTiles][4];
  using Weights = uint32_t[kTokens / 16][4];  // Packed as left matrices.

  static PAGODA_DEVICE uint32_t ConsumerIndex() { return WarpIndex() / kGroupWarps - 1; }
  // The unit's row of the first of the warp's 16 rows.
  static PAGODA_DEVICE uint32_t WarpsRow(uint32_t first_row) {
    return first_row + (WarpIndex() - kGroupWarps) * 16;
  }
  static PAGODA_DEVICE void SyncGroup() { SyncSome(1 + ConsumerIndex(), kWarpgroupThreads); }

  static PAGODA_DEVICE void Consume(const HopperLaunch& launch) {
    const AttentionArgs& args = launch.args;
    const auto num_units = static_cast<uint32_t>(NumUnits(args, launch.kind));
    Place place;
#pragma unroll 1
    for (uint32_t u = BlockIndex(); u < num_units; u += GridBlocks()) {
      const Unit unit = FindUnit(args, launch.kind, u);
#pragma unroll 1
      for (uint32_t row = 0; row < unit.num_rows; row += kRows) Attend(launch, unit, row, place);
    }
  }

  static PAGODA_DEVICE void Attend(const HopperLaunch& launch, const Unit& unit, uint32_t first_row,
                                   Place& place) {
    const AttentionArgs& args = launch.args;
    const uint32_t num_rows = RowsAt(unit, first_row);
    const Sight sight = SightOf(args, unit, first_row, num_rows);
    const float scale = args.scale;  // Pools of 16 bits have no scales.
    LoadQueries(args, unit, first_row, num_rows);

    RowState state;
    Clear(state);
    uint32_t first = FirstTile<kTokens>(launch, sight);
    if (first < sight.end_key) {
      Scores scores;
      Weights weights;
      float factors[2];
      WaitFor(Full(kKeys, place.stage()), place.parity());
      MultiplyKeys(place.stage(), scores);
      WaitForProducts<0>();
      PinRegisters(scores);
      Release(kKeys, place.stage());
      Weigh(args, unit, sight, scale, first_row, first, scores, state, factors);
      Pack(scores, weights);
#pragma unroll 1
      for (;;) {
        first = NextTile<kTokens>(args, sight, first + kTokens);
        if (first >= sight.end_key) break;
        // S of this tile and O of the previous one, together.
        Place next = place;
        next.Next();
        WaitFor(Full(kKeys, next.stage()), next.parity());
        MultiplyKeys(next.stage(), scores);
        WaitFor(Full(kValues, place.stage()), place.parity());
        AddValues(place.stage(), weights, state);
        WaitForProducts<1>();
        PinRegisters(scores);
        Release(kKeys, next.stage());
        Weigh(args, unit, sight, scale, first_row, first, scores, state, factors);
        // The softmax of both rows runs in parallel to the products.
        ComputeFirst(state.weights);
        WaitForProducts<0>();
        PinSums(state);
        PinRegisters(weights);  // The products read them until now.
        Release(kValues, place.stage());
        Rescale(factors, state);
        Pack(scores, weights);
        place = next;
      }
      WaitFor(Full(kValues, place.stage()), place.parity());
      AddValues(place.stage(), weights, state);
      WaitForProducts<0>();
      PinSums(state);
      PinRegisters(weights);  // The products read them until now.
      Release(kValues, place.stage());
      place.Next();
    }
    Store(args, unit, first_row, num_rows, state);
  }

  // Copies a warpgroup's 64 rows, in columns, with zeros behind the last row and element.
  static PAGODA_DEVICE void LoadQueries(const AttentionArgs& args, const Unit& unit,
                                        uint32_t first_row, uint32_t num_rows) {
    constexpr uint32_t kChunks = kDim / 8;
    const uint32_t tile = QueryBase(ConsumerIndex());
    SyncGroup();  // The previous rows have been multiplied.
    for (uint32_t i = ThreadIndex() % kWarpgroupThreads; i < kGroupRows * kChunks;
         i += kWarpgroupThreads) {
      const uint32_t row = i / kChunks;
      const uint32_t chunk = i % kChunks;
      const uint32_t row_of_block = ConsumerIndex() * kGroupRows + row;
      Vector16 vector = {};
      if (row_of_block < num_rows && chunk * 8 < args.kv.head_dim) {
        const uint32_t token = (first_row + row_of_block) / args.group;
        const uint32_t head = unit.kv_head * args.group + (first_row + row_of_block) % args.group;
        const uint64_t element =
            (uint64_t{unit.item.first_query} + token) * args.query_token_stride +
            uint64_t{head} * args.kv.head_dim + chunk * 8;
        vector = LoadGlobal16(args.query + element * 2);
      }
      StoreShared(tile + chunk / 8 * kQueryColumnBytes + SwizzledOffset(row, chunk % 8), vector);
    }
    FenceAsync();
    SyncGroup();
  }

  static PAGODA_DEVICE void Clear(RowState& state) {
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) {
#pragma unroll
      for (uint32_t n = 0; n < kPartTiles; ++n) {
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) state.sums[p][n][r] = 0;
      }
    }
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      state.largest[e] = NegativeInfinity();
      state.weights[e] = 0;
    }
  }

  // Starts S = Q K^T.
  static PAGODA_DEVICE void MultiplyKeys(uint32_t stage, Scores& scores) {
    const Matrix queries = RowsOfColumn(QueryBase(ConsumerIndex()));
    const Matrix keys = RowsOfColumn(Tile(kKeys, stage));
    PinRegisters(scores);
    FenceProducts();
#pragma unroll
    for (uint32_t step = 0; step < kDim / 16; ++step) {
      const uint32_t column = step / 4;
      const uint32_t bytes = step % 4 * 32;
      MultiplyShared<T>(scores, Advance(queries, column * kQueryColumnBytes + bytes),
                        Advance(keys, column * kTileColumnBytes + bytes), step > 0);
    }
    CommitProducts();
  }

  // Starts O += P V.
  static PAGODA_DEVICE void AddValues(uint32_t stage, const Weights& weights, RowState& state) {
    const Matrix values = ColumnsOfRows(Tile(kValues, stage), kTileColumnBytes);
    PinSums(state);
    FenceProducts();
#pragma unroll
    for (uint32_t k = 0; k < kTokens / 16; ++k) {
#pragma unroll
      for (uint32_t p = 0; p < kParts; ++p) {
        MultiplyRegisters<T>(
            state.sums[p], weights[k],
            Advance(values, p * kPartColumns * kTileColumnBytes + k * 16 * kColumnRowBytes));
      }
    }
    CommitProducts();
  }

  static PAGODA_DEVICE void PinSums(RowState& state) {
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) PinRegisters(state.sums[p]);
  }

  // The warp no longer reads the stage.
  static PAGODA_DEVICE void Release(Ring ring, uint32_t stage) {
    SyncWarp();
    if (LaneIndex() == 0) Arrive(Empty(ring, stage));
  }

  // Turns products into weights. The caller must multiply the existing sums by `factors`.
  static PAGODA_DEVICE void Weigh(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                                  float scale, uint32_t first_row, uint32_t first, Scores& scores,
                                  RowState& state, float (&factors)[2]) {
    const bool bends = args.soft_cap > 0 || args.alibi_slopes != nullptr;
    const bool sees_all =
        first + kTokens <= sight.end_key &&
        SeesAll(args.mask, sight.first_position, sight.last_position, first, first + kTokens - 1);
    const float unbent = bends ? 1.0f : scale * kLog2E;
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t row = WarpsRow(first_row) + LaneIndex() / 4 + 8 * e;
      if (bends) BendRow(args, unit, scale, row, first, e, scores);
      if (!sees_all) MaskRow</*kSparse=*/false>(args, unit, sight, row, first, e, scores);
      if (first < sight.first_key) MaskBefore(sight.first_key, first, e, scores);
      WeighRow(e, bends || unbent > 0, unbent, scores, state, factors[e]);
    }
  }

  // `unbent`: the remaining factor of the scores. If it is positive, the largest score belongs to
  // the largest product, and one multiplication and addition turns each product into an exponent.
  static PAGODA_DEVICE void WeighRow(uint32_t e, bool rising, float unbent, Scores& scores,
                                     RowState& state, float& factor) {
    if (!rising) {
#pragma unroll
      for (uint32_t n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (uint32_t r = 2 * e; r < 2 * e + 2; ++r) {
          // Scores that the row does not see are -infinity, and stay so.
          if (scores[n][r] != NegativeInfinity()) scores[n][r] *= unbent;
        }
      }
      unbent = 1;
    }
    float largest = NegativeInfinity();
#pragma unroll
    for (uint32_t n = 0; n < kTokenTiles; ++n) {
      largest = LargerOf(scores[n][2 * e], largest);
      largest = LargerOf(scores[n][2 * e + 1], largest);
    }
    largest = LargerOf(largest, ShuffleXor(largest, 1));
    largest = LargerOf(largest, ShuffleXor(largest, 2));
    largest = LargerOf(largest * unbent, state.largest[e]);
    // No key seen yet: all scores are -infinity, and weights 0.
    const float reference = largest == NegativeInfinity() ? 0.0f : largest;
    factor = Exp2(state.largest[e] - reference);
    state.largest[e] = largest;
    float sum = state.weights[e] * factor;
#pragma unroll
    for (uint32_t n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (uint32_t r = 2 * e; r < 2 * e + 2; ++r) {
        scores[n][r] = Exp2(scores[n][r] * unbent - reference);
        sum += scores[n][r];
      }
    }
    state.weights[e] = sum;
  }

  static PAGODA_DEVICE void Rescale(const float (&factors)[2], RowState& state) {
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) {
#pragma unroll
      for (uint32_t n = 0; n < kPartTiles; ++n) {
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) state.sums[p][n][r] *= factors[r / 2];
      }
    }
  }

  // Two tiles of a product's result have the form of its left matrix.
  static PAGODA_DEVICE void Pack(const Scores& scores, Weights& weights) {
#pragma unroll
    for (uint32_t k = 0; k < kTokens / 16; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const float(&tile)[4] = scores[2 * k + i / 2];
        weights[k][i] = PackPair<T>(tile[i % 2 * 2], tile[i % 2 * 2 + 1]);
      }
    }
  }

  static PAGODA_DEVICE void Store(const AttentionArgs& args, const Unit& unit, uint32_t first_row,
                                  uint32_t num_rows, const RowState& state) {
    const uint32_t lane = LaneIndex();
    const bool whole = unit.item.partial == kWholeItem;
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      float sum = state.weights[e];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      const uint32_t row = WarpsRow(first_row) + lane / 4 + 8 * e;
      if (row >= first_row + num_rows) continue;
      const RowEnd end =
          EndRow(args, state.largest[e], sum, unit.kv_head * args.group + row % args.group, whole);
      if (lane % 4 == 0) StoreLogSum(args, unit, row, end.log_sum);
#pragma unroll
      for (uint32_t p = 0; p < kParts; ++p) {
#pragma unroll
        for (uint32_t n = 0; n < kPartTiles; ++n) {
          const uint32_t element = (p * kPartTiles + n) * 8;
          if (element >= args.value_dim) continue;  // A multiple of 8.
          StorePair<T>(args, unit, row, element + lane % 4 * 2,
                       state.sums[p][n][2 * e] * end.factor,
                       state.sums[p][n][2 * e + 1] * end.factor);
        }
      }
    }
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_PREFILL_HOPPER_H_
